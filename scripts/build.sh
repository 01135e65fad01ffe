#!/usr/bin/env bash
# Configures and builds one preset (release, debug, asan, tsan, coverage, fuzz) into build/PRESET.
#   scripts/build.sh [PRESET [CMAKE-ARGUMENTS] [-- TARGETS]]     default: release, everything (tests: if cmocka is installed)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
arguments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	arguments+=("$1")
	shift
done
targets=()
[ $# -lt 2 ] || targets=(--target "${@:2}")

log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" "${arguments[@]}" >"$log" 2>&1 || {
	cat "$log" >&2
	exit 1
}
# What this machine lacks, and the build therefore leaves out.
[ "$preset" = fuzz ] || sed -nE 's/^-- (no (oneDNN|gloo|hwloc): .*)/build: \1/p' "$log"
cmake --build "build/$preset" --parallel "$(nproc)" "${targets[@]}"
