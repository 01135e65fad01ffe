#!/usr/bin/env bash
# Builds two checkouts in different directories, with a compiler cache of their own, and compares: the program, its modules and the C library
# are the same byte for byte, and at least 95 % of the second build's files come from the compiler cache of the first.
#   scripts/test_reproducible.sh [--all]     --all: also the tests and bench/, which takes several times as long
# Files of this work tree that git does not ignore are part of both checkouts. The toolkit for GPUs is the same for both.
set -euo pipefail
cd "$(dirname "$0")/.."
targets=(-- ctrain ctrain_infer ctrain_infer_static)
arguments=(-DCTRAIN_TESTS=OFF -DCTRAIN_BENCH=OFF)
case $#:${1:-} in
0:) ;;
1:--all) targets=() arguments=(-DCTRAIN_TESTS=ON -DCTRAIN_BENCH=ON) ;;
1:-h | 1:--help)
	sed -n '2,5s/^# //p' "$0"
	exit 0
	;;
*)
	echo "test_reproducible: unknown arguments '$*' (valid: --all)" >&2
	exit 2
	;;
esac
command -v ccache >/dev/null || { echo "test_reproducible: ccache is not installed" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The configuration of this machine's cache might hide what the build itself does not say.
: >"$work/ccache.conf"
export CCACHE_DIR=$work/cache CCACHE_CONFIGPATH=$work/ccache.conf
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

checkout() { # DIRECTORY
	mkdir -p "$1"
	# shellcheck disable=SC2016 # the variables are those of the inner shell
	git ls-files --cached --others --exclude-standard -z | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
		tar --create --null --files-from=- | tar --extract --no-same-owner --directory "$1"
}

first=$work/a second=$work/another/directory/with/a/longer/name
for directory in "$first" "$second"; do
	checkout "$directory"
	# The cache trusts only headers that are older than the build.
	find "$directory" -type f -exec touch -d '1 hour ago' {} +
	ccache --zero-stats >/dev/null
	start=$SECONDS
	"$directory/scripts/build.sh" release "${arguments[@]}" "${targets[@]}" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
	echo "built in $((SECONDS - start)) s"
done

failed=0
n=0
while read -r file; do
	n=$((n + 1))
	if ! cmp "$first/$file" "$second/$file"; then
		failed=1
	fi
done < <(cd "$first" && find build/release -maxdepth 1 -type f \( -name ctrain -o -name '*.so*' -o -name '*.a' \) | sort)
[ $n -ge 3 ] || { echo "test_reproducible: only $n files to compare" >&2; failed=1; }
[ $failed = 1 ] || echo "the same in both: $n files"

hits=$(ccache --print-stats | awk '/^(direct|preprocessed)_cache_hit/ { hit += $2 } /^cache_miss/ { miss = $2 }
	END { printf "%d %d", hit, hit + miss }')
read -r hit all <<<"$hits"
echo "compiler cache: $hit of $all files of the second build"
if [ "$all" = 0 ] || [ $((100 * hit)) -lt $((95 * all)) ]; then
	echo "test_reproducible: the compiler cache knew fewer than 95 % of the files" >&2
	failed=1
fi
exit $failed
