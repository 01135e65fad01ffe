#!/usr/bin/env bash
# Runs every fuzz target of build/fuzz for SECONDS from its kept corpus, two at a time; new inputs go to build/fuzz/corpus.
#   scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
run_one() {
	local name=${1##*/fuzz_} seconds=$2
	local work=build/fuzz/corpus/$name kept=tests/fuzz/corpus/$name log=build/fuzz/$name.log
	mkdir -p "$work" "build/fuzz/crashes"
	if "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="build/fuzz/crashes/$name-" \
		"$work" $([ -d "$kept" ] && echo "$kept") >"$log" 2>&1; then
		echo "fuzz $name: ok, $(grep -o 'stat::number_of_executed_units: *[0-9]*\|Done [0-9]* runs' "$log" | tail -n 1)"
	else
		echo "fuzz $name: FAILED"
		tail -n 40 "$log"
		return 1
	fi
}
export -f run_one
mapfile -t targets < <(find build/fuzz -name 'fuzz_*' -type f -perm -u+x | sort)
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets in build/fuzz" >&2; exit 1; }
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'run_one {} '"$seconds"
