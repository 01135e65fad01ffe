#!/usr/bin/env bash
# Every function of a stand-in library exists in the real one under the same version, and none of ours is missing from the map.
# usage: symbols.sh NM STAND-IN REAL NAME[@VERSION]...
set -euo pipefail
if ! [ -e "$3" ]; then
	echo "skipped: $3 is not there"
	exit 77
fi
names() { "$nm" -D --defined-only "$1" | awk '$2 ~ /[TW]/ { sub(/@@/, "@", $3); print $3 }' | LC_ALL=C sort; }
nm=$1
ours=$(names "$2")
unknown=$(LC_ALL=C comm -23 <(grep '@lib\|^nccl' <<< "$ours") <(names "$3"))
if [ -n "$unknown" ]; then
	echo "not in the real library:"
	echo "$unknown"
	exit 1
fi
for name in "${@:4}"; do
	grep -qx "$name" <<< "$ours" || { echo "missing: $name"; exit 1; }
done
if grep soft__ <<< "$ours"; then
	echo "these are private"
	exit 1
fi
