#!/usr/bin/env bash
# Checks ctrain on a machine with a GPU and measures its speed, in less than ten minutes and without a network.
#   scripts/gpu_gate.sh [--peers] [--dry] [--only STEP,...] [--budget SECONDS] [--scale FACTOR] [--plans FILE] BUNDLE OUT
# BUNDLE: made by scripts/gpu_bundle.sh, on this or another machine; it also contains this script. OUT/gate.json: all results; send this file.
# --peers: correctness with two or more GPUs, in two minutes. --dry: on the software GPU, with a bundle made with --dry. bench/gpu/gate.py
# describes steps, options, results and exit status.
set -euo pipefail
bundle=
for argument; do
	# The bundle is the first of the two last arguments.
	[ ! -f "$argument/gate/gate.py" ] || { bundle=$argument; break; }
done
case ${1:-} in
-h | --help)
	sed -n '2,6s/^# //p' "$0"
	exit 0
	;;
esac
if [ -z "$bundle" ]; then
	echo "gpu_gate: none of the arguments is a bundle (a directory with gate/gate.py; scripts/gpu_bundle.sh makes one)" >&2
	exit 2
fi
command -v python3 >/dev/null || { echo "gpu_gate: python3 is not installed" >&2; exit 2; }
exec python3 -B "$bundle/gate/gate.py" "$@"
