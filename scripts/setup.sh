#!/usr/bin/env bash
# Installs what ctrain needs to build and run, on Debian 12/13 and Ubuntu 22.04/24.04.
#   scripts/setup.sh                build and run
#   scripts/setup.sh --mpi          also Open MPI and MPICH, for dist.backend: mpi
#   scripts/setup.sh --package      also what cpack needs to make Debian packages
#   scripts/setup.sh --containers   also Podman, Buildah and Docker's engine, for the long stage of scripts/test.sh
#   scripts/setup.sh --test-quick   also what scripts/test.sh --quick needs
#   scripts/setup.sh --test         also what scripts/test.sh needs (sanitizers, fuzzers, network tools, Slurm, bare Debian systems)
# On machines with an NVIDIA driver, scripts/setup_cuda.sh then provides CUDA, unless CTRAIN_SETUP_CUDA is "off".
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

packages=(gcc g++ cmake ninja-build make pkg-config ccache curl ca-certificates
	libyaml-dev zlib1g-dev libjansson-dev nettle-dev libdeflate-dev libjpeg-dev
	libspng-dev libdnnl-dev libgloo-dev libhwloc-dev)
quick_packages=(libcmocka-dev python3 python3-pil iproute2 procps psmisc)
mpi_packages=(libopenmpi-dev openmpi-bin libmpich-dev mpich)
deb_packages=(dpkg-dev file)
container_packages=(podman buildah runc docker-compose mmdebstrap)
test_packages=("${quick_packages[@]}" "${mpi_packages[@]}" "${deb_packages[@]}" clang git python3-jsonschema python3-pip mmdebstrap debian-archive-keyring slurm-wlm munge faketime iptables
	openssh-client openssh-server mkdocs)

want=("${packages[@]}")
for arg in "$@"; do
	case $arg in
	--containers)
		# Docker's engine: the only package with a name of this form.
		mapfile -t engine < <(apt-cache search --names-only '^docker[.]..$' | cut -d' ' -f1)
		want+=("${container_packages[@]}" "${engine[@]}")
		;;
	--package) want+=("${deb_packages[@]}") ;;
	--mpi) want+=("${mpi_packages[@]}") ;;
	--test) want+=("${test_packages[@]}") ;;
	--test-quick) want+=("${quick_packages[@]}") ;;
	-h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
	*) echo "setup: unknown argument '$arg' (valid: --mpi, --package, --containers, --test-quick, --test)" >&2; exit 2 ;;
	esac
done

if ! command -v apt-get >/dev/null; then
	echo "setup: this script supports Debian and Ubuntu only; on other systems install the equivalents of: ${want[*]}" >&2
	exit 2
fi

missing() {
	local p
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null)" = "install ok installed" ] || echo "$p"
	done
}

install() {
	[ $# -gt 0 ] || return 0
	local as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || { echo "setup: run this script as root or install sudo: it has to install $*" >&2; exit 2; }
		as_root=(sudo)
	fi
	echo "setup: installing $*"
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq update
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y --no-install-recommends \
		install "$@" >/dev/null
}

mapfile -t need < <(missing "${want[@]}")
install "${need[@]}"

# Where clang's package only recommends the runtime of its sanitizers and fuzzer, that runtime is a separate package.
if [[ " ${want[*]} " == *" clang "* ]]; then
	major=$(clang -dumpversion | cut -d. -f1)
	if ! ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1; then
		install "libclang-rt-$major-dev" || echo "setup: no fuzzer runtime for clang $major: fuzzing will be skipped" >&2
	fi
fi
# Some releases do not have these packages. torchvision exchanges weights with ctrain.
if [[ " $* " == *" --test "* ]]; then
	mapfile -t need < <(missing python3-torchvision)
	install "${need[@]}" || echo "setup: no python3-torchvision here: the tests that need it will be skipped" >&2
	# Shows reports. Ubuntu's package is not a browser, but installs one from elsewhere.
	if [ "$(. /etc/os-release && echo "$ID")" = debian ]; then
		mapfile -t need < <(missing chromium)
		install "${need[@]}" || echo "setup: no chromium here: the tests that need a browser will be skipped" >&2
	fi
fi
# Packages of Python for the tests only; nothing else on the machine is changed. The directory appears complete or not at all. Its file
# "wheels" is the list that was installed.
wheels() { # LIST DIRECTORY WHAT
	local list=$root/scripts/$1 directory=$root/build/$2
	! cmp -s "$list" "$directory/wheels" || return 0
	echo "setup: installing $3 from wheels into build/$2"
	rm -rf "$directory.part"
	if PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 python3 -m pip install --quiet \
		--no-cache-dir --no-compile --no-deps --only-binary=:all: --requirement "$list" --target "$directory.part"; then
		cp "$list" "$directory.part/wheels"
		rm -rf "$directory"
		mv "$directory.part" "$directory"
	else
		rm -rf "$directory.part"
		echo "setup: the wheels of $3 could not be installed: the tests that need them will be skipped" >&2
	fi
}
if [[ " $* " == *" --test "* ]]; then
	wheels onnx_wheels.txt onnx "onnx and onnxruntime" # check exported models; Debian has no onnxruntime
	wheels format_wheels.txt format clang-format       # the format depends on the version
	wheels sass_wheels.txt sass "CUDA's disassembler"  # for the table of GPU kernels
fi
"$(dirname "$0")/setup_cuda.sh"
echo "setup: done"
