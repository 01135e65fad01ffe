#!/usr/bin/env bash
# Runs every fuzz target of build/fuzz for SECONDS, two at a time, starting from its corpus in tests/fuzz/corpus. New inputs are
# written to build/fuzz/corpus, inputs that crash to build/fuzz/crashes, and a line "passed NAME" or "failed NAME" for each target to
# build/fuzz/fuzz.txt.
#   scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
results=build/fuzz/fuzz.txt
: >"$results"

# shellcheck disable=SC2317 # called by xargs
run_one() { # PROGRAM SECONDS RESULTS
	local name=${1##*/fuzz_}
	local work=build/fuzz/corpus/$name kept=tests/fuzz/corpus/$name log=build/fuzz/$name.log
	mkdir -p "$work" build/fuzz/crashes
	local corpora=("$work")
	[ ! -d "$kept" ] || corpora+=("$kept")
	if "$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="build/fuzz/crashes/$name-" \
		"${corpora[@]}" >"$log" 2>&1; then
		echo "passed $name" >>"$3"
		echo "fuzz $name: ok, $(grep -o 'Done [0-9]* runs' "$log" | tail -n 1)"
	else
		echo "failed $name" >>"$3"
		echo "fuzz $name: FAILED"
		tail -n 40 "$log"
		return 1
	fi
}
export -f run_one
mapfile -t targets < <(find build/fuzz -name 'fuzz_*' -type f -perm -u+x | sort)
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets in build/fuzz: run scripts/build.sh fuzz" >&2; exit 1; }
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'run_one "$@"' _ {} "$seconds" "$results"
