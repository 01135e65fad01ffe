#!/usr/bin/env bash
# Every function of the stand-in libcudart exists in the real one under the same version, and none of ours is missing from the map.
# usage: symbols.sh NM STAND-IN REAL
set -euo pipefail
if ! [ -e "$3" ]; then
	echo "skipped: $3 is not there"
	exit 77
fi
names() { "$nm" -D --defined-only "$1" | awk '$2 == "T" { sub(/@@/, "@", $3); print $3 }' | LC_ALL=C sort; }
nm=$1
ours=$(names "$2")
unknown=$(LC_ALL=C comm -23 <(grep cuda <<< "$ours") <(names "$3"))
if [ -n "$unknown" ]; then
	echo "not in the real library:"
	echo "$unknown"
	exit 1
fi
for name in cudaMalloc@libcudart.so.13 __cudaRegisterFunction@libcudart.so.13 soft_gpu_post@SOFT_GPU; do
	grep -qx "$name" <<< "$ours" || { echo "missing: $name"; exit 1; }
done
if grep soft__ <<< "$ours"; then
	echo "these are private"
	exit 1
fi
