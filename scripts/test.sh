#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test that this machine can run. Ends with the seconds of each stage and with the
# counts of tests that passed, failed and were skipped. All stages together run beside each other: the output of each one appears when it has
# ended, and is kept in build/stages. Two cores need about half an hour. When this script is interrupted, it ends all that it has started.
#   scripts/test.sh               all stages except long
#   scripts/test.sh --quick       stage release, without the packages that only other stages need
#   scripts/test.sh --long        stages coverage and long
#   scripts/test.sh --stage NAME  one stage:
#     release    warnings are errors; unit, ops, dist
#     asan       address and undefined-behaviour sanitizers: unit, ops, dist, golden, gpu, and training on the software GPU, without three long ones
#     tsan       thread sanitizer: tests of base, data and dist, and the test of nn with a second thread
#     fuzz       every fuzz target for CTRAIN_FUZZ_SECONDS (default 6; 60 in stage long)
#     e2e        release: golden, gpu, bench-smoke, end to end, cluster
#     bookworm   README's commands in this bare Debian system
#     trixie     README's commands and the quick tests in this bare Debian system, and a build for aarch64 there
#     coverage   the share of lines that the tests run, of each directory; too few are a failure
#     long       container images, with two engines; nodes that Slurm loses; faults of hosts and networks; two builds in different directories; and what
#                repeats other stages: cuDNN's plans of all graphs, tests that otherwise run only with sanitizers or only without, longer fuzzing, and the
#                quick tests also in a bare system of this machine's release; tests of units and operations, and a run, on an emulated aarch64
# CTRAIN_SHARED: directory with real data sets (default ../shared); without it, the tests that need them are skipped, listed and counted.
# shellcheck disable=SC2317 # stages are called by their names
set -euo pipefail
cd "$(dirname "$0")/.."
complete=(release asan tsan fuzz e2e bookworm trixie)
stages=("${complete[@]}")
setup=--test
case $#:${1:-} in
0:) ;;
1:--quick) stages=(release) setup=--test-quick ;;
1:--long) stages=(coverage long) ;;
2:--stage)
	stages=("$2")
	[[ " ${complete[*]} coverage long " == *" $2 "* ]] || { echo "test: there is no stage '$2' (stages: ${complete[*]} coverage long)" >&2; exit 2; }
	;;
1:-h | 1:--help)
	sed -n '2,/^set /s/^# //p' scripts/test.sh | grep -v ^shellcheck
	exit 0
	;;
*)
	echo "test: unknown arguments '$*' (valid: --quick, --long, --stage NAME)" >&2
	exit 2
	;;
esac
if [ -n "${CTRAIN_SHARED:-}" ] || [ -d ../shared ]; then
	CTRAIN_SHARED=$(cd "${CTRAIN_SHARED:-../shared}" && pwd)
	export CTRAIN_SHARED
fi
# intercept_tls_get_addr=0: up to GCC 13 and clang 16, that interceptor expects a header of old glibcs in front of thread-local storage, and
# the leak sanitizer sometimes crashes when it follows it ("Tracer caught signal 11").
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:intercept_tls_get_addr=0} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp}
# Many tests wait more than they compute. The others take half a core each at worst.
jobs=$(($(nproc) + 2))
# Except in stage long: the same comparisons as without sanitizers, and no line that other tests do not reach with them.
only_sanitized='^(test_cuda_engine|e2e_cuda_(nccl|ranks|faults))$'
never_sanitized='^(test_golden_resnet|e2e_cuda|e2e_cuda_configs)$'
state=$PWD/build/stages # what a stage leaves: NAME.log, NAME.results (files for scripts/sum_tests.py), NAME.failed, NAME.seconds

say() { printf '\n== %s (%d s)\n' "$*" $SECONDS; }
fail() { : >"$state/$stage.failed"; }
result() { printf '%s\n' "$@" >>"$state/$stage.results"; }

# Compilers give way to tests of other stages, some of which expect an answer within seconds.
build() { # PRESET ARGS...: as scripts/build.sh, but prints no line for each file; a build that fails is a failed test
	nice -n 10 scripts/build.sh "$@" | { grep -Ev '^\[[0-9]+/[0-9]+\] ' || true; } && return 0
	fail
	echo "failed the build" >"build/$1.txt"
	result "build/$1.txt"
	return 1
}

build_release() { build release -DCTRAIN_ONEDNN=ON -DCTRAIN_GLOO=ON -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=ON; }

run_ctest() { # RESULT DIR ARGS...
	local result=$PWD/build/$1.xml
	rm -f "$result"
	"${prefix[@]}" ctest --test-dir "$2" --output-on-failure --no-tests=error --test-output-size-passed 1000000 \
		--test-output-size-failed 1000000 --output-junit "$result" -j "$jobs" "${@:3}" || fail
	result "$result"
}

run_command() { # NAME COMMAND...: as one test
	local verdict=passed
	"${@:2}" || { verdict=failed; fail; }
	echo "$verdict $1" >"build/$1.txt"
	result "build/$1.txt"
}

run_fuzz() { # SECONDS
	if ! ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1; then
		mkdir -p build
		echo "skipped all targets: clang's fuzzer runtime is not installed" >build/fuzz.txt
		result build/fuzz.txt
	elif build fuzz; then
		nice -n 10 scripts/fuzz.sh "${CTRAIN_FUZZ_SECONDS:-$1}" || fail
		result build/fuzz/fuzz.txt
	fi
}

run_chroot() { # SUITE OPTIONS...
	nice -n 10 scripts/test_chroot.sh "${@:2}" "$1" || fail
	result "build/chroot-$1.txt"
	local file
	for file in "build/chroot-$1"-*.xml; do
		[ ! -e "$file" ] || result "$file"
	done
}

# ThreadSanitizer of older compilers does not work with the number of random address bits that newer kernels use.
prefix=()
plain_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && plain_addresses=(setarch "$(uname -m)" -R)

stage_build() { build_release; } # for the stages after it

stage_release() {
	build_release && run_ctest release build/release -L '^(unit|ops|dist)$'
}

stage_asan() {
	build asan -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=OFF || return 0
	[ ! -x build/release/ctrain ] || export CTRAIN_E2E_REF=$PWD/build/release/ctrain # "ref" is slow with sanitizers
	run_ctest asan build/asan -L '^(unit|ops|dist|golden|gpu|asan)$' -E "$never_sanitized"
	unset CTRAIN_E2E_REF
}

stage_tsan() {
	local directory names
	build tsan -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=OFF -- tests/{base,data,dist}/all test_onednn_export || return 0
	names=$(for directory in base data dist; do
		ctest --test-dir "build/tsan/tests/$directory" --show-only -LE '^(cluster|one-thread)$'
	done | sed -n 's/^ *Test *#[0-9]*: \([a-z0-9_]*\).*/\1/p' | paste -sd '|')
	prefix=("${plain_addresses[@]}")
	run_ctest tsan build/tsan -R "^(${names:?no tests}|test_onednn_export)$"
	prefix=()
}

stage_fuzz() { run_fuzz 6; }

stage_e2e() {
	build_release && run_ctest e2e build/release -LE '^(unit|ops|dist|long)$' -E "$only_sanitized"
}

stage_bookworm() { run_chroot bookworm; }
stage_trixie() { run_chroot trixie; }

# Without the tests that take minutes and reach no line that others do not.
# e2e_export links the static library into a program of its own, without the library that counts.
stage_coverage() {
	build coverage -DCTRAIN_WERROR=OFF -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=OFF || return 0
	find build/coverage -name '*.gcda' -delete
	run_ctest coverage build/coverage -L '^(unit|ops|dist|golden|gpu|e2e|cluster)$' \
		-E '^(test_(golden_resnet|gradients|cuda_sass)|e2e_(cuda_configs|cuda_plans|export|torchvision|gate|package|setup|build|scripts|docs|containers))$'
	run_command line_coverage scripts/coverage.py --check --uncovered 30
}

stage_long() {
	local suite
	if build_release; then
		run_ctest long build/release -R "$only_sanitized"
		build asan -DCTRAIN_WERROR=ON -DCTRAIN_TESTS=ON -DCTRAIN_BENCH=OFF && run_ctest long_asan build/asan -R "$never_sanitized"
		scripts/setup.sh --containers
		run_ctest slow build/release -L '^long$'
		run_command reproducible scripts/test_reproducible.sh --all
		[ ! -x build/release/bench/cudnn_plans ] || run_command plans_of_all_graphs build/release/bench/cudnn_plans --check --all
	fi
	run_fuzz 60
	for suite in bookworm trixie; do
		run_chroot "$suite" --all
	done
}

run_stage() { # NAME
	local stage=$1 start=$SECONDS
	"stage_$1" || fail
	echo $((SECONDS - start)) >"$state/$stage.seconds"
}

title() { [ "$1" != build ] || echo "the program and its tests for the other stages"; sed -n "s/^#     $1  *//p" scripts/test.sh | head -n 1; }

run_lane() { # STAGE...: one after the other; each one's output appears when it has ended
	local name
	for name; do
		echo "-- $name starts ($SECONDS s)"
		run_stage "$name" >"$state/$name.log" 2>&1
		{
			flock 9
			say "$name: $(title "$name")"
			cat "$state/$name.log"
			echo "-- $name ended after $(cat "$state/$name.seconds") s ($SECONDS s)"
		} 9>"$state/lock"
	done
}

# Ends what this script has started, however far it has got. Programs of tests may be in groups of their own: the mark in the environment finds
# them, too. (tests/e2e/harness.py removes variables of ctrain.)
export TEST_SH_RUN=$$-$SRANDOM
marked() { grep -lsz "^TEST_SH_RUN=$TEST_SH_RUN\$" /proc/[0-9]*/environ | cut -d/ -f3 || true; }

stop_all() {
	local status=$? pid pids
	trap '' INT TERM HUP EXIT
	for pid in "${lanes[@]}"; do
		kill -TERM -- "-$pid" 2>/dev/null || true
	done
	mapfile -t pids < <(marked)
	kill -TERM "${pids[@]}" 2>/dev/null || true
	for _ in {1..50}; do
		mapfile -t pids < <(marked)
		# The list is made by programs that have the mark and are gone.
		kill -0 "${pids[@]}" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "${pids[@]}" 2>/dev/null || true
	exit "$status"
}

start_lane() { # STAGE...
	set -m # a group of its own, which can be ended as one
	if [ ${#stages[@]} = 1 ]; then
		(set +m; run_stage "$1") </dev/null &
	else
		(set +m; run_lane "$@") </dev/null &
	fi
	lanes+=($!)
	set +m
}

lanes=()
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
trap stop_all EXIT
mkdir -p "$state"
rm -f "$state"/*

scripts/setup.sh "$setup" </dev/null
times="$SECONDS s setup"
started=("${stages[@]}")
if [ "${stages[*]}" = "${complete[*]}" ]; then
	# The tests that mostly wait run beside compilers and the sanitizers' tests; the bare systems, which mostly install packages, beside both. All of
	# them use the release build. The lanes take about the same time.
	jobs=$((jobs - 1))
	started=(build "${stages[@]}")
	start_lane build
	wait "${lanes[0]}" || true
	lanes=()
	start_lane release e2e
	start_lane asan tsan fuzz
	start_lane bookworm trixie
else
	[ ${#stages[@]} -gt 1 ] || say "$(title "${stages[0]}")"
	start_lane "${stages[@]}"
fi
for lane in "${lanes[@]}"; do
	wait "$lane" || true # what failed is in the files
done
lanes=()

say "result"
results=()
failed=0
for stage in "${started[@]}"; do
	[ ! -e "$state/$stage.failed" ] || failed=1
	[ ! -e "$state/$stage.seconds" ] || times+=$'\n'"$(cat "$state/$stage.seconds") s $stage"
	[ -e "$state/$stage.seconds" ] || results+=("$state/$stage did not end")
	[ ! -e "$state/$stage.results" ] || mapfile -t -O ${#results[@]} results <"$state/$stage.results"
done
printf '%s\n' "$times" "$SECONDS s in all"
scripts/sum_tests.py "${results[@]}" || failed=1
exit $failed
