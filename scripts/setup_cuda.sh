#!/usr/bin/env bash
# Provides a CUDA toolkit for the build on machines with an NVIDIA driver. scripts/setup.sh calls this script.
#   scripts/setup_cuda.sh
# An installed CUDA 13 toolkit with cuDNN 9 and NCCL 2.28 or later is used as is. Where there is none, the wheels of scripts/cuda_wheels.txt are installed from PyPI
# into build/cuda, which CMake and ctrain prefer to an installed toolkit. Nothing else on the machine is changed: rm -r build/cuda undoes it.
# CTRAIN_SETUP_CUDA: auto (default); wheels: install the wheels even without a driver or with an installed toolkit; off: do nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
'') ;;
-h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
*) echo "setup: unknown argument '$1' (scripts/setup_cuda.sh has none)" >&2; exit 2 ;;
esac
mode=${CTRAIN_SETUP_CUDA:-auto}
case $mode in
auto | wheels) ;;
off) exit 0 ;;
*) echo "setup: CTRAIN_SETUP_CUDA is '$mode' (valid: auto, wheels, off)" >&2; exit 2 ;;
esac

# The CUDA version that the driver supports ("13.0"); "unknown" if there is a driver that does not report it; empty without a driver.
# CTRAIN_DRIVER_FILE is for tests.
driver_cuda() {
	local file=${CTRAIN_DRIVER_FILE:-/proc/driver/nvidia/version} version
	version=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p') || true
	if [ -n "$version" ]; then
		echo "$version"
	elif [ -r "$file" ]; then
		# Driver 580 is the first one for CUDA 13.
		version=$(sed -n 's/^NVRM version:.*Kernel Module[^0-9]*\([0-9]*\)\..*/\1/p' "$file")
		if [ -z "$version" ]; then
			echo unknown
		elif [ "$version" -ge 580 ]; then
			echo 13.0
		else
			echo "12 or older (driver $version)"
		fi
	fi
}

# The directory of NVIDIA's package cuda-compat-13-0, with which data-center GPUs run CUDA 13 on drivers from 535 on; empty if it is not
# installed. CTRAIN_COMPAT is for tests.
compat_directory() {
	local directory
	for directory in ${CTRAIN_COMPAT:-/usr/local/cuda-13*/compat}; do
		if [ -e "$directory/libcuda.so.1" ]; then
			echo "$directory"
			return
		fi
	done
}

# The directory of an installed CUDA 13 toolkit with nvcc, cuDNN 9 and NCCL, from the places where cmake/CtCuda.cmake searches.
installed_toolkit() {
	local root nvcc
	nvcc=$(command -v nvcc) || true
	for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}" /usr/local/cuda; do
		if [ -n "$root" ] && [ -x "$root/bin/nvcc" ] && has_libraries "$root"; then
			echo "$root"
			return
		fi
	done
}

has_libraries() { # ROOT: has CUDA 13 and, in its directories or the distribution's, cuDNN 9 and NCCL 2.28 or later
	local arch
	arch=$(uname -m)-linux-gnu
	grep -qE '^#define CUDART_VERSION +13' "$1/include/cuda_runtime_api.h" 2>/dev/null &&
		any_exists "$1/include/cudnn_graph.h" {/usr/include,/usr/include/"$arch"}/cudnn_graph.h &&
		any_exists "$1"/{lib64,lib}/libcudnn.so.9 "/usr/lib/$arch/libcudnn.so.9" &&
		has_nccl "$1/include/nccl.h" {/usr/include/"$arch",/usr/include}/nccl.h
}

has_nccl() { # HEADER...: the first one that exists, which CMake uses, is of NCCL 2.28 or later
	local header
	for header in "$@"; do
		if [ -e "$header" ]; then
			[ "$(sed -n 's/^#define NCCL_VERSION_CODE  *\([0-9]*\).*/\1/p' "$header")" -ge 22800 ] 2>/dev/null
			return
		fi
	done
	return 1
}

any_exists() {
	local file
	for file in "$@"; do
		[ ! -e "$file" ] || return 0
	done
	return 1
}

install_pip() {
	! python3 -m pip --version >/dev/null 2>&1 || return 0
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || { echo "setup: run this script as root or install sudo: it has to install python3-pip" >&2; exit 2; }
		as_root=(sudo)
	fi
	echo "setup: installing python3-pip"
	"${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y --no-install-recommends \
		install python3-pip >/dev/null
}

# build/cuda appears complete or not at all. Its file "wheels" is the list that was installed.
install_wheels() {
	local to=build/cuda part=build/cuda.part
	if cmp -s scripts/cuda_wheels.txt $to/wheels; then
		echo "setup: CUDA's wheels are in $to"
		return
	fi
	install_pip
	echo "setup: installing CUDA 13.0, cuDNN and NCCL from wheels into $to (1.2 GB to download)"
	rm -rf $part
	mkdir -p $part/tmp
	# The temporary files are large: the directory for them has the space, /tmp may not have it.
	if ! TMPDIR=$PWD/$part/tmp PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 \
		python3 -m pip install --quiet --no-cache-dir --no-compile --no-deps --only-binary=:all: --require-hashes \
		--requirement scripts/cuda_wheels.txt --target $part; then
		rm -rf $part
		echo "setup: CUDA could not be installed; to build ctrain with what is installed, set CTRAIN_SETUP_CUDA=off" >&2
		exit 1
	fi
	# One tree, as an installed toolkit. The licences stay in *.dist-info.
	local wheel
	for wheel in cudnn nccl; do
		cp -rl $part/nvidia/$wheel/. $part/nvidia/cu13
	done
	mv $part/nvidia/cu13/* $part
	rm -rf $part/nvidia $part/tmp
	cp scripts/cuda_wheels.txt $part/wheels
	rm -rf $to
	mv $part $to
}

if [ "$mode" = auto ]; then
	version=$(driver_cuda)
	case $version in
	'') exit 0 ;; # no NVIDIA driver
	unknown | 13.* | 1[4-9].*) ;;
	*)
		compat=$(compat_directory)
		if [ -z "$compat" ]; then
			echo "setup: the NVIDIA driver of this machine supports CUDA $version, but ctrain needs CUDA 13: to train on the GPU," \
				"update to driver 580 or later; on data-center GPUs with driver 535 or later, NVIDIA's package cuda-compat-13-0 is sufficient" >&2
			exit 0
		fi
		echo "setup: the NVIDIA driver of this machine supports CUDA $version: to train on the GPU, set LD_LIBRARY_PATH=$compat"
		;;
	esac
	toolkit=
	[ -e build/cuda/wheels ] || toolkit=$(installed_toolkit)
	if [ -n "$toolkit" ]; then
		echo "setup: using the CUDA toolkit in $toolkit"
		exit 0
	fi
fi
install_wheels
