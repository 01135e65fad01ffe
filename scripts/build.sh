#!/usr/bin/env bash
# Configures and builds one preset (release, debug, asan, tsan, fuzz) into build/PRESET.
#   scripts/build.sh [PRESET] [CMake arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
cmake --preset "$preset" "$@" >"build-$preset.log" 2>&1 || { cat "build-$preset.log" >&2; rm -f "build-$preset.log"; exit 1; }
rm -f "build-$preset.log"
cmake --build "build/$preset" --parallel "$(nproc)"
