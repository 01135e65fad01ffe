#!/usr/bin/env bash
# Checks that the program exports what shared objects opened by ct_module_open use.
#   exports.sh NM PROGRAM SHARED-OBJECT... -- ARCHIVE...
# Every undefined ct_ symbol of a shared object must be among the program's dynamic symbols, and so must every external ct_ symbol of
# the archives: any of them may be used by the next shared object.
set -euo pipefail
nm=$1 program=$2
shift 2
objects=() archives=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	objects+=("$1")
	shift
done
[ $# -eq 0 ] || archives=("${@:2}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

"$nm" --dynamic --defined-only --format=posix "$program" | awk '{ print $1 }' | sort -u >"$work/exported"

check() { # WHAT: symbols on standard input
	local absent
	sort -u >"$work/needed"
	[ -s "$work/needed" ] || { echo "$1 has no ct_ symbols: is this the right file?"; bad=1; }
	absent=$(comm -13 "$work/exported" "$work/needed")
	[ -z "$absent" ] || { echo "$program does not export, of $1:"; echo "$absent"; bad=1; }
}

for object in "${objects[@]}"; do
	check "$object" < <("$nm" --dynamic --undefined-only --format=posix "$object" | awk '$1 ~ /^ct_/ { print $1 }')
done
for archive in "${archives[@]}"; do
	check "$archive" < <("$nm" --extern-only --defined-only --format=posix "$archive" | awk '$1 ~ /^ct_/ && NF > 1 { print $1 }')
done
exit $bad
