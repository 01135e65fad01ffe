#!/usr/bin/env bash
# Runs README's commands in bare Debian systems, each suite after the other: quickstart, "Build by hand", Debian packages (made there, and
# installed on another bare system), the C library from its packages (the commands of docs/EXPORT.md), only in other releases than this
# machine's own, in which scripts/test.sh runs: all commands of README and docs/ (tests/e2e/doc_commands.py --list shows them) and the quick
# tests, and only in trixie: quickstart as on a machine with an NVIDIA driver and no CUDA toolkit (CUDA from wheels,
# the module, the package, and training on the software GPU), and a build for aarch64 (the commands of docs/INSTALL.md).
#   scripts/test_chroot.sh [--all] [SUITE ...]     default: bookworm trixie. --all: every part in each suite; tests on emulated aarch64
# Each part writes a line "passed NAME", "failed NAME" or "skipped NAME: reason" to build/chroot-SUITE.txt and its output to
# build/chroot/SUITE-NAME.log; the results of the tests are copied to build/chroot-SUITE-PART.xml (for scripts/sum_tests.py).
# A system is unpacked into build/chroot/SUITE.root for one run. Kept for the next run, in build/chroot: SUITE.tar (the base system,
# made by mmdebstrap from the mirror that this machine's apt uses, with apt's signature checks), SUITE.archives (packages) and wheels.
# The compiler cache is this machine's. Where no chroot can be made, all parts are skipped with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
all=0
case ${1:-} in
--all)
	all=1
	shift
	;;
-h | --help)
	sed -n '2,13s/^# //p' scripts/test_chroot.sh
	exit 0
	;;
-*)
	echo "test_chroot: unknown argument '$1' (valid: --all and names of Debian releases)" >&2
	exit 2
	;;
esac
suites=("$@")
[ $# -gt 0 ] || suites=(bookworm trixie)
work=$PWD/build/chroot
shared=${CTRAIN_SHARED:-$PWD/../shared}
wheels=$work/wheels
own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mkdir -p "$work"

# The shell code of one section of a page.
section() { # PAGE HEADING
	local code
	code=$(awk -v heading="## $2" '$0 == heading { here = 1; next } /^## / { here = 0 }
		here && /^```$/ { code = 0 } here && code { print } here && /^```sh$/ { code = 1 }' "$1")
	[ -n "$code" ] || { echo "test_chroot: $1 has no section \"$2\" with shell code" >&2; return 1; }
	printf '%s\n' "$code"
}

# The first Debian mirror among apt's sources.
mirror() {
	# shellcheck disable=SC2016 # the variables are apt's
	apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}

why_not() {
	[ "$(id -u)" = 0 ] || { echo "a chroot needs root"; return; }
	local tool
	for tool in mmdebstrap unshare chroot apt-get git; do
		command -v $tool >/dev/null || { echo "$tool is not installed"; return; }
	done
	git rev-parse --git-dir >/dev/null 2>&1 || { echo "this is no git checkout"; return; }
	unshare --mount --pid --fork true 2>/dev/null || { echo "this machine does not allow new mount namespaces"; return; }
	[ -n "$(mirror)" ] || echo "apt's sources on this machine have no Debian mirror, or apt-get update was never run"
}

# Makes SUITE.tar if it is not there yet. 77: there is no such release, or the mirror cannot be reached.
make_base() { # SUITE
	local tar=$work/$1.tar log=$work/$1-base.log source options=() option
	[ ! -s "$tar" ] || return 0
	source=$(mirror)
	# What this machine's apt needs to reach the mirror; signatures are checked as always.
	while read -r option; do
		options+=("--aptopt=$option")
	done < <(apt-config dump | grep -E '^Acquire::(https?::[A-Za-z:.]*[Pp]roxy|Check-Date|Check-Valid-Until) ')
	[[ $source != https:* ]] || options+=(--include=ca-certificates)
	if ! mmdebstrap --mode=root --format=tar --variant=minbase --dpkgopt=force-unsafe-io "${options[@]}" "$1" "$tar.part" "$source" >"$log" 2>&1; then
		rm -f "$tar.part"
		grep -qE 'Could not (resolve|connect)|Temporary failure|Connection (failed|timed out)|does not have a Release file' "$log" &&
			return 77
		tail -n 20 "$log" >&2
		return 1
	fi
	mv "$tar.part" "$tar"
}

# The files of this work tree, as a fresh checkout in the chroot. Its path is always the same: the compiler cache knows it again.
checkout() { # ROOT [NAME]
	local to=$1/work/${2:-ctrain}
	mkdir -p "$to"
	# shellcheck disable=SC2016 # the variables are those of the inner shell
	git ls-files --cached --others --exclude-standard -z | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
		tar --create --null --files-from=- | tar --extract --no-same-owner --directory "$to"
}

unpack() { # SUITE ROOT
	rm -rf --one-file-system "$2"
	mkdir -p "$2"
	tar --extract --file "$work/$1.tar" --directory "$2"
	cp --dereference /etc/resolv.conf "$2/etc/resolv.conf"
	mkdir -p "$2"/work/{shared,wheels} "$2/root/.cache/ccache"
	checkout "$2"
}

# Runs shell code in the chroot's work tree, with mounts and processes that end with it. $emulator: which programs
# the kernel starts in which emulator, in a user namespace of their own, so that the rest of this machine is not affected; empty: none.
emulator=
inside() { # SUITE ROOT SECONDS CODE
	local cache=${CCACHE_DIR:-$(ccache --get-config cache_dir 2>/dev/null || true)}
	local archives=${2%.root}.archives
	local namespaces=(--mount --pid --fork --kill-child --propagation private)
	[ -z "$emulator" ] || namespaces+=(--user --map-root-user)
	mkdir -p "$archives/partial" "$wheels" ${cache:+"$cache"}
	# shellcheck disable=SC2016 # the variables are those of the inner shell
	timeout --kill-after=5 "$3" unshare "${namespaces[@]}" sh -c '
		set -e
		mount --bind "$1" "$1"
		mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		mount --rbind /sys "$1/sys"
		mount --bind "$2" "$1/var/cache/apt/archives"
		mount --bind "$6" "$1/work/wheels"
		[ -z "$3" ] || mount --bind "$3" "$1/root/.cache/ccache"
		[ -z "$7" ] || { mount -t binfmt_misc binfmt_misc "$1/proc/sys/fs/binfmt_misc" && printf %s "$7" >"$1/proc/sys/fs/binfmt_misc/register"; }
		[ ! -d "$4" ] || { mount --bind "$4" "$1/work/shared" && mount -o remount,bind,ro "$1/work/shared"; }
		exec chroot "$1" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
			bash -c "set -e -o pipefail; cd /work/ctrain; $5"' sh "$2" "$archives" "$cache" "$shared" "$4" "$wheels" "$emulator" </dev/null
}

# Runs one part and reports it. The code ends at the first command that fails.
part() { # SUITE ROOT NAME CODE [SECONDS]
	local start=$SECONDS log=$work/$1-$3.log
	if inside "$1" "$2" "${5:-1500}" "$4" >"$log" 2>&1; then
		echo "passed $3" >>"$work-$1.txt"
		echo "chroot $1: $3: ok ($((SECONDS - start)) s)"
	else
		echo "failed $3" >>"$work-$1.txt"
		echo "chroot $1: $3: FAILED after $((SECONDS - start)) s; the end of $log:"
		tail -n 60 "$log"
	fi
}

# Downloads the wheels of scripts/cuda_wheels.txt if they are not there yet. 77: pip is missing, or no package index can be reached.
make_wheels() {
	local log=$work/wheels.log
	! cmp -s scripts/cuda_wheels.txt "$wheels/list" || return 0
	python3 -m pip --version >/dev/null 2>&1 || return 77
	rm -rf "$wheels"
	if ! python3 -m pip download --quiet --no-cache-dir --no-deps --only-binary=:all: --require-hashes --dest "$wheels" \
		--requirement scripts/cuda_wheels.txt >"$log" 2>&1; then
		grep -qE 'NewConnectionError|Temporary failure in name resolution|Network is unreachable|timed out' "$log" && return 77
		tail -n 20 "$log" >&2
		return 1
	fi
	cp scripts/cuda_wheels.txt "$wheels/list"
}

run_cuda() { # SUITE ROOT
	local start=$SECONDS status=0
	make_wheels || status=$?
	case $status in
	0) echo "chroot $1: wheels: ok ($((SECONDS - start)) s)" ;;
	77)
		echo "skipped cuda: pip is not installed, or no package index can be reached" >>"$work-$1.txt"
		return
		;;
	*)
		echo "failed cuda" >>"$work-$1.txt"
		return
		;;
	esac
	part "$1" "$2" cuda "$cuda"
}

# quickstart on a machine with a driver and without a toolkit. The driver is a stand-in that only reports which CUDA it supports; the wheels
# come from a directory. Then the software GPU, which consults the wheels' cuDNN about each graph.
# shellcheck disable=SC2016 # the variables are those of the inner shell
cuda='
	printf "#!/bin/sh\necho CUDA Version: 13.0\n" >/usr/local/bin/nvidia-smi
	chmod +x /usr/local/bin/nvidia-smi
	export PIP_NO_INDEX=1 PIP_FIND_LINKS=/work/wheels
	scripts/quickstart.sh configs/smoke.yaml
	build/release/ctrain info >info.txt
	cat info.txt
	grep -q "libcudart.so.13: CUDA 13.0 .*/build/cuda/lib/" info.txt
	grep -q "libcudnn.so.9: .*/build/cuda/lib/" info.txt
	grep -q "driver: not installed" info.txt
	cmake --install build/release --prefix /opt/ctrain
	/opt/ctrain/bin/ctrain info | grep "libctrain_cuda.so: .*/opt/ctrain/lib/ctrain/"
	scripts/build.sh release -- soft_ctrain_cuda test_cuda_cudnn_plans test_soft_gpu_nvcc
	ctest --test-dir build/release --output-on-failure --no-tests=error -R "^test_(cuda_cudnn_plans|soft_gpu_nvcc)$"
	export CTRAIN_CUDA_LIBS=build/release/soft_cudart SOFT_CUDNN_REAL=$PWD/build/cuda/lib/libcudnn.so.9
	export SOFT_CUDNN_DEVICE=tests/nn/cuda/devices/h200.json
	build/release/ctrain configs/smoke.yaml run.name=soft train.max_steps=10 data.n_val=64 >soft.txt
	cat soft.txt
	grep -q "cuda:0: Software GPU" soft.txt' # device: auto has chosen it

# The build for aarch64, the program in the emulator, and programs of tests with the same flags.
before_cross='
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq -y --no-install-recommends install ccache python3 >/dev/null'
after_cross='
	apt-get -qq -y --no-install-recommends install qemu-user libcmocka-dev:arm64 >/dev/null
	QEMU_CPU=a64fx qemu-aarch64 build/aarch64/ctrain info | grep "onednn *no: SVE"
	QEMU_CPU=neoverse-v1 qemu-aarch64 build/aarch64/ctrain info | tee info.txt
	grep -q "onednn *yes" info.txt
	grep -q "gloo *yes" info.txt
	cmake build/aarch64 -DCTRAIN_TESTS=ON
	cmake --build build/aarch64 --target tests/{base,nn}/all'
# Excluded is what the emulator does not do: it has no start times of forked processes, ignores advice on huge pages, and does not let a
# parent wait for the exec of its child.
# shellcheck disable=SC2016 # the variables are those of the inner shell
aarch64='
	export QEMU_CPU=neoverse-v1 # SVE with 256 bits
	export OMP_NUM_THREADS=1 # emulated threads wait long for each other
	cmake --build build/aarch64 --target tests/{lazy,base,data,nn,infer,trainer}/all
	build/aarch64/ctrain configs/smoke.yaml
	ctest --test-dir build/aarch64 --output-on-failure --no-tests=error --output-junit "$PWD/build/aarch64.xml" -j $(nproc) \
		-L "^(unit|ops)$" -R "^test_" -E "^test_(clock|mem|subprocess)$"'
# Programs for aarch64, by the head of their files.
format_aarch64='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00'
format_aarch64+='\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

# shellcheck disable=SC2016 # the variables are those of the inner shell
package='
	scripts/setup.sh --package
	cpack --config build/release/CPackConfig.cmake -B /work/packages
	cmake -S . -B build/make -DCTRAIN_CUDA=OFF >/dev/null # the default generator
	grep -q "CMAKE_GENERATOR:INTERNAL=Unix Makefiles" build/make/CMakeCache.txt'
# On a system that has nothing but the packages.
# shellcheck disable=SC2016
deb='
	cd /root
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install /work/packages/ctrain_*.deb /work/packages/ctrain-gloo_*.deb >/dev/null
	ctrain version
	ctrain info | grep "gloo *yes"
	ctrain smoke
	ctrain data digits --out datasets/mnist --train 2000 --test 500
	ctrain mnist_mlp train.epochs=1
	ctrain eval runs/mnist_mlp'
# Then with the packages of the C library and a compiler: the commands of docs/EXPORT.md, with the run of quickstart.
# shellcheck disable=SC2016
before_c_library='
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install /work/packages/libctrain-infer*.deb gcc libc6-dev pkg-config >/dev/null
	cp -r /usr/share/ctrain/configs /usr/share/doc/ctrain/examples /work/quickstart
	cd /work/quickstart'
# Both examples print the same classes and probabilities as ctrain predict, without a report of the sanitizer; the second one from two
# threads.
# shellcheck disable=SC2016
after_c_library='
	ctrain predict digits.safetensors 0.png 1.png --top 3 | awk "/ % / { print image \":\" \$0; next } { image = \$0 }" | sort >wanted.txt
	test $(wc -l <wanted.txt) = 6
	for example in classify classify_threads; do
		./$example digits.safetensors 0.ppm 1.ppm | sed "s/ppm/png/" | sort | diff - wanted.txt
	done
	apt-get -qq -y remove ctrain libctrain-infer0 >/dev/null
	test ! -e /usr/bin/ctrain -a ! -e /usr/share/ctrain -a ! -e /usr/include/ctrain_infer.h'

# The commands of docker/Dockerfile.cpu, which needs no container engine here: its build stage in the system that has the packages, its last
# stage in a bare one. Then the program as the image starts it: no root, and no file of its own but those below its directory.
# shellcheck disable=SC2016 # the variables are those of the inner shell
image_build='CONTEXT=/work/context bash /work/image_build.sh'
# shellcheck disable=SC2016
image='cd /
	CONTEXT=/work/ctrain STAGES=/work/stages bash /work/image_final.sh
	. /image.env
	in_image() {
		(cd "$IMAGE_DIR" && setpriv --reuid=${IMAGE_USER%:*} --regid=${IMAGE_USER#*:} --clear-groups $IMAGE_ENTRYPOINT "$@")
	}
	in_image $IMAGE_CMD >help.txt
	grep -q "^usage: ctrain" help.txt
	in_image info | tee info.txt
	grep -q "gloo *yes" info.txt
	grep -q "onednn *yes" info.txt
	grep -q "hwloc *yes" info.txt
	in_image /usr/local/share/ctrain/configs/smoke.yaml
	test -s "$IMAGE_DIR/runs/smoke/metrics.jsonl"'

run_image() { # SUITE ROOT
	local bare=$work/$1-image.root
	checkout "$2" context
	part "$1" "$2" image-build "$image_build"
	rm -rf "$work/$1-image.archives"
	cp -rl "$work/$1.archives" "$work/$1-image.archives"
	rm -f "$work/$1-image.archives/lock"
	unpack "$1" "$bare"
	mkdir -p "$bare/work/stages/build"
	[ ! -d "$2/out" ] || cp -a "$2/out" "$bare/work/stages/build"
	cp "$work/$1.root/work/image_final.sh" "$bare/work"
	part "$1" "$bare" image "$image"
	rm -rf --one-file-system "$bare" "$work/$1-image.archives"
}

# The suite of the image's base.
has_image() { # SUITE
	grep -qx "ARG BASE=debian:$(sed -n 's/^VERSION_ID="*\([0-9.]*\)"*$/\1/p' "$work/$1.release")-slim" docker/Dockerfile.cpu
}

# Another system, with the packages, the run of quickstart, and a directory of archives that apt can lock.
run_deb() { # SUITE ROOT
	local bare=$work/$1-bare.root
	if ! ls "$2"/work/packages/*.deb >/dev/null 2>&1; then
		printf 'failed %s\n' deb c-library >>"$work-$1.txt"
		return
	fi
	rm -rf "$work/$1-bare.archives"
	cp -rl "$work/$1.archives" "$work/$1-bare.archives"
	rm -f "$work/$1-bare.archives/lock"
	unpack "$1" "$bare"
	mkdir "$bare/work/packages" "$bare/work/quickstart"
	cp "$2"/work/packages/*.deb "$bare/work/packages"
	cp -r "$2"/work/first/{runs,datasets} "$bare/work/quickstart"
	part "$1" "$bare" deb "$deb"
	part "$1" "$bare" c-library "$before_c_library
		$c_library
		$after_c_library"
	rm -rf --one-file-system "$bare" "$work/$1-bare.archives"
}

run_aarch64() { # SUITE
	local root=$work/$1-aarch64.root
	unpack "$1" "$root"
	part "$1" "$root" cross "$before_cross
		${cross/cmake -S/cmake -DCTRAIN_WERROR=ON -S}
		$after_cross"
	if [ $all = 1 ]; then
		if ! unshare --user --map-root-user --mount mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc 2>/dev/null; then
			echo "skipped aarch64: the kernel of this machine has no binfmt_misc in user namespaces" >>"$work-$1.txt"
		else
			emulator=:aarch64:M::$format_aarch64:/usr/bin/qemu-aarch64:OP
			part "$1" "$root" aarch64 "$aarch64" 7200
			emulator=
			cp "$root/work/ctrain/build/aarch64.xml" "$work-$1-aarch64.xml" 2>/dev/null || true
		fi
	fi
	rm -rf --one-file-system "$root"
}

# Not this machine's own release, or --all: the suite runs what depends least on the release, too.
is_foreign() { # SUITE
	[ $all = 1 ] || [ "$1" != "$own" ]
}

run_suite() { # SUITE
	local root=$work/$1.root
	unpack "$1" "$root"
	part "$1" "$root" quickstart 'scripts/quickstart.sh
		grep -q "\"kind\":\"end\".*\"status\":\"done\"" runs/mnist_ddp/metrics.jsonl'
	# Another checkout on the same system, which now has what scripts/setup.sh installs and nothing else.
	mv "$root/work/ctrain" "$root/work/first"
	checkout "$root"
	part "$1" "$root" by-hand "$by_hand
		build/release/ctrain info
		build/release/ctrain configs/smoke.yaml"
	part "$1" "$root" package "$package"
	run_deb "$1" "$root" & # mostly waits for apt
	local bare=$!
	printf '%s\n' "$doc_commands" >"$root/work/doc_commands.sh"
	cp "$root/etc/os-release" "$work/$1.release"
	if has_image "$1"; then
		python3 -B tests/e2e/dockerfile.py docker/Dockerfile.cpu build >"$root/work/image_build.sh"
		python3 -B tests/e2e/dockerfile.py docker/Dockerfile.cpu final >"$root/work/image_final.sh"
		run_image "$1" "$root" &
		local image_root=$!
	fi
	if is_foreign "$1"; then
		part "$1" "$root" docs 'cp -r ../first/runs ../first/datasets . && bash ../doc_commands.sh'
	fi
	wait $bare ${image_root:+$image_root}
	rm -rf --one-file-system "$root/work/ctrain"
	mv "$root/work/first" "$root/work/ctrain"
	if is_foreign "$1"; then
		part "$1" "$root" quick 'scripts/test.sh --quick'
		cp "$root/work/ctrain/build/release.xml" "$work-$1-quick.xml" 2>/dev/null || true
	fi
	[ "$1" != trixie ] || run_cuda "$1" "$root"
	rm -rf --one-file-system "$root"
	[ "$1" != trixie ] || run_aarch64 "$1"
}

failed=0
by_hand=$(section README.md "Build by hand")
cross=$(section docs/INSTALL.md "Cross-compiling")
c_library=$(section docs/EXPORT.md "C library")
doc_commands=$(python3 -B tests/e2e/doc_commands.py)
missing=$(why_not)
for suite in "${suites[@]}"; do
	rm -f "$work-$suite.txt" "$work-$suite"-*.xml "$work/$suite"-*.log
	reason=$missing
	if [ -z "$reason" ]; then
		start=$SECONDS status=0
		make_base "$suite" || status=$?
		case $status in
		0) echo "chroot $suite: base system: ok ($((SECONDS - start)) s)" ;;
		77) reason="the Debian mirror of this machine's apt cannot be reached or does not have $suite" ;;
		*)
			echo "failed base" >"$work-$suite.txt"
			failed=1
			continue
			;;
		esac
	fi
	if [ -n "$reason" ]; then
		printf 'skipped %s: '"$reason"'\n' quickstart by-hand package deb c-library >"$work-$suite.txt"
		! is_foreign "$suite" || printf 'skipped %s: '"$reason"'\n' docs quick >>"$work-$suite.txt"
		[ "$suite" != trixie ] || printf 'skipped %s: '"$reason"'\n' cuda cross >>"$work-$suite.txt"
		continue
	fi
	run_suite "$suite"
	! grep -q ^failed "$work-$suite.txt" || failed=1
done
exit $failed
