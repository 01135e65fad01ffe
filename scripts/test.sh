#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test that this machine can run. The last line counts the tests of all stages.
#   scripts/test.sh           everything: release, address + undefined sanitizers, thread sanitizer, fuzzing, end to end, and README's
#                             commands in bare Debian systems
#   scripts/test.sh --quick   the release build's unit, ops and dist tests only
# CTRAIN_FUZZ_SECONDS: per fuzz target (default 60). CTRAIN_SHARED: directory with real data sets (default ../shared); without it the
# tests that need them are skipped, listed and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=0
case ${1:-} in
--quick) quick=1 ;;
-h | --help)
	sed -n '2,7s/^# //p' "$0"
	exit 0
	;;
'') ;;
*)
	echo "test: unknown argument '$1' (there is only --quick)" >&2
	exit 2
	;;
esac
if [ -n "${CTRAIN_SHARED:-}" ] || [ -d ../shared ]; then
	CTRAIN_SHARED=$(cd "${CTRAIN_SHARED:-../shared}" && pwd)
	export CTRAIN_SHARED
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp}
failed=0
results=() # of the stages, for scripts/sum_tests.py

say() { printf '\n== %s (%d s)\n' "$*" $SECONDS; }

build() { # PRESET ARGS...: as scripts/build.sh; a build that fails is a failed test
	scripts/build.sh "$@" && return 0
	failed=1
	echo "failed the build" >"build/$1.txt"
	results+=("build/$1.txt")
	return 1
}

run_ctest() { # STAGE DIR ARGS...
	local result=$PWD/build/$1.xml
	rm -f "$result"
	"${prefix[@]}" ctest --test-dir "$2" --output-on-failure --no-tests=error --test-output-size-passed 1000000 \
		--test-output-size-failed 1000000 --output-junit "$result" "${@:3}" || failed=1
	results+=("$result")
}

# ThreadSanitizer of older compilers does not work with the number of random address bits that newer kernels use.
prefix=()
plain_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && plain_addresses=(setarch "$(uname -m)" -R)

if [ $quick = 1 ]; then
	scripts/setup.sh --test-quick
else
	scripts/setup.sh --test
fi

say "release: warnings are errors; unit, ops, dist"
if build release -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=ON; then
	run_ctest release build/release -j 2 -L '^(unit|ops|dist)$'
fi

if [ $quick = 0 ]; then
	say "address and undefined-behaviour sanitizers: unit, ops, dist, golden, gpu"
	if build asan -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON; then
		run_ctest asan build/asan -j 2 -L '^(unit|ops|dist|golden|gpu)$'
	fi

	if [ -e build/asan/ctrain ]; then
		say "address and undefined-behaviour sanitizers: training on the software GPU, and its faults"
		[ ! -x build/release/ctrain ] || export CTRAIN_E2E_REF=$PWD/build/release/ctrain # "ref" is slow with sanitizers
		run_ctest asan-cuda build/asan -R '^e2e_cuda(_faults|_configs)?$'
		unset CTRAIN_E2E_REF
	fi

	say "thread sanitizer: tests of base, data and dist, and the test of nn with a second thread"
	if build tsan -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -- tests/{base,data,dist}/all test_onednn_export; then
		prefix=("${plain_addresses[@]}")
		for folder in base data dist; do
			run_ctest "tsan-$folder" "build/tsan/tests/$folder" -j 2 -LE '^cluster$'
		done
		run_ctest tsan-nn build/tsan/tests/nn -R '^test_onednn_export$'
		prefix=()
	fi

	say "fuzzing, ${CTRAIN_FUZZ_SECONDS:-60} s a target"
	if ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1; then
		if build fuzz; then
			scripts/fuzz.sh "${CTRAIN_FUZZ_SECONDS:-60}" || failed=1
			results+=(build/fuzz/fuzz.txt)
		fi
	else
		echo "skipped all targets: clang's fuzzer runtime is not installed" >build/fuzz.txt
		results+=(build/fuzz.txt)
	fi

	say "release: the rest, end to end and cluster last"
	run_ctest release-rest build/release -LE '^(unit|ops|dist|e2e|cluster)$'
	run_ctest release-e2e build/release -L '^(e2e|cluster)$'

	# Last, so that its downloads and builds disturb no other test.
	for suite in bookworm trixie; do
		say "README's commands in a bare Debian system: $suite"
		scripts/test_chroot.sh $suite || failed=1
		results+=("build/chroot-$suite.txt")
		[ ! -e "build/chroot-$suite-quick.xml" ] || results+=("build/chroot-$suite-quick.xml")
	done
fi

say "result"
scripts/sum_tests.py "${results[@]}" || failed=1
exit $failed
