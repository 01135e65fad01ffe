#!/usr/bin/env bash
# Installs what ctrain needs to build and run, on Debian 12/13 and Ubuntu 22.04/24.04.
#   scripts/setup.sh          build and run
#   scripts/setup.sh --test   also what the tests need (sanitizers, fuzzers, network tools)
# CUDA is optional and never installed by this script.
set -euo pipefail

packages=(gcc g++ cmake ninja-build pkg-config ccache curl ca-certificates
	libyaml-dev zlib1g-dev libjansson-dev nettle-dev libdeflate-dev libjpeg-dev
	libspng-dev libdnnl-dev libgloo-dev)
test_packages=(libcmocka-dev clang python3 iproute2 procps psmisc)

want=("${packages[@]}")
for arg in "$@"; do
	case $arg in
	--test) want+=("${test_packages[@]}") ;;
	-h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
	*) echo "setup: unknown argument '$arg' (there is only --test)" >&2; exit 2 ;;
	esac
done

if ! command -v apt-get >/dev/null; then
	echo "setup: this script knows Debian and Ubuntu; elsewhere install: ${want[*]}" >&2
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
		command -v sudo >/dev/null || { echo "setup: to install $*: run as root, or install sudo" >&2; exit 2; }
		as_root=(sudo)
	fi
	echo "setup: installing $*"
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq update
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y --no-install-recommends \
		install "$@" >/dev/null
}

mapfile -t need < <(missing "${want[@]}")
install "${need[@]}"

# The runtime of clang's sanitizers and fuzzer is a package of its own where clang only recommends it.
if [[ " ${want[*]} " == *" clang "* ]]; then
	major=$(clang -dumpversion | cut -d. -f1)
	if ! ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer* >/dev/null 2>&1; then
		install "libclang-rt-$major-dev" || echo "setup: no fuzzer runtime for clang $major: fuzzing will be skipped" >&2
	fi
fi
echo "setup: done"
