#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test that this machine can run.
#   scripts/test.sh           everything: release, address + undefined sanitizers, thread sanitizer, fuzzing, end to end
#   scripts/test.sh --quick   the release build's unit, ops and dist tests only
# CTRAIN_FUZZ_SECONDS: per fuzz target (default 60). CTRAIN_SHARED: folder with real data sets (default ../shared); without it the
# tests that need them are skipped and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=0
case ${1:-} in
--quick) quick=1 ;;
'') ;;
*) echo "test: unknown argument '$1' (there is only --quick)" >&2; exit 2 ;;
esac
[ -d "${CTRAIN_SHARED:-../shared}" ] && export CTRAIN_SHARED=${CTRAIN_SHARED:-$(cd ../shared && pwd)}
failed=0
began=$SECONDS

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - began)); }

run_ctest() { # PRESET ARGS...
	local preset=$1
	shift
	ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@" || failed=1
}

scripts/setup.sh --test

say "release build, warnings are errors"
scripts/build.sh release -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON
if [ $quick = 1 ]; then
	run_ctest release -L 'unit|ops|dist'
	exit $failed
fi

say "address and undefined-behaviour sanitizers: unit, ops, dist, golden"
scripts/build.sh asan -DCTRAIN_WERROR=ON
run_ctest asan -j 2 -L 'unit|ops|dist|golden' -LE 'no-sanitizer'

say "thread sanitizer: data, dist"
scripts/build.sh tsan -DCTRAIN_WERROR=ON -DCTRAIN_ONEDNN=OFF
run_ctest tsan -j 2 -L 'thread-sanitizer'

if ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1; then
	say "fuzzing, ${CTRAIN_FUZZ_SECONDS:-60} s a target"
	scripts/build.sh fuzz
	scripts/fuzz.sh "${CTRAIN_FUZZ_SECONDS:-60}" || failed=1
else
	say "fuzzing SKIPPED: clang's fuzzer runtime is not installed"
fi

say "release: everything, end to end last"
run_ctest release -LE 'e2e|cluster'
run_ctest release -L 'e2e|cluster'

say "done"
[ $failed = 0 ] && echo "all test stages passed" || echo "SOME TESTS FAILED"
exit $failed
