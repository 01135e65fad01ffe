#!/usr/bin/env bash
# Installs what ctrain needs to build and run, on Debian 12/13 and Ubuntu 22.04/24.04.
#   scripts/setup.sh                build and run
#   scripts/setup.sh --mpi          also Open MPI and MPICH, for dist.backend: mpi
#   scripts/setup.sh --containers   also Podman, Buildah and Docker's engine, for the long stage of scripts/test.sh
#   scripts/setup.sh --test-quick   also what scripts/test.sh --quick needs
#   scripts/setup.sh --test         also what scripts/test.sh needs (sanitizers, fuzzers, network tools, Slurm, bare Debian systems)
# On machines with an NVIDIA driver, scripts/setup_cuda.sh then provides CUDA, unless CTRAIN_SETUP_CUDA is "off".
set -euo pipefail

packages=(gcc g++ cmake ninja-build pkg-config ccache curl ca-certificates
	libyaml-dev zlib1g-dev libjansson-dev nettle-dev libdeflate-dev libjpeg-dev
	libspng-dev libdnnl-dev libgloo-dev)
quick_packages=(libcmocka-dev python3 python3-pil iproute2 procps psmisc)
mpi_packages=(libopenmpi-dev openmpi-bin libmpich-dev mpich)
container_packages=(podman buildah runc docker-compose mmdebstrap)
test_packages=("${quick_packages[@]}" "${mpi_packages[@]}" clang git python3-pip mmdebstrap debian-archive-keyring slurm-wlm munge faketime iptables
	openssh-client openssh-server)

want=("${packages[@]}")
for arg in "$@"; do
	case $arg in
	--containers)
		# Docker's engine: the only package with a name of this form.
		mapfile -t engine < <(apt-cache search --names-only '^docker[.]..$' | cut -d' ' -f1)
		want+=("${container_packages[@]}" "${engine[@]}")
		;;
	--mpi) want+=("${mpi_packages[@]}") ;;
	--test) want+=("${test_packages[@]}") ;;
	--test-quick) want+=("${quick_packages[@]}") ;;
	-h | --help) sed -n '2,8s/^# //p' "$0"; exit 0 ;;
	*) echo "setup: unknown argument '$arg' (valid: --mpi, --containers, --test-quick, --test)" >&2; exit 2 ;;
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
# Exchanges weights with torchvision. Some releases do not have the package.
if [[ " $* " == *" --test "* ]]; then
	mapfile -t need < <(missing python3-torchvision)
	install "${need[@]}" || echo "setup: no python3-torchvision here: the tests that need it will be skipped" >&2
fi
"$(dirname "$0")/setup_cuda.sh"
echo "setup: done"
