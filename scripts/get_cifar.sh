#!/usr/bin/env bash
# Downloads CIFAR-10 (the binary version, 170 MB) and checks the SHA-256 of its files. Resumes an interrupted download.
#   scripts/get_cifar.sh [DIR]                default: datasets/cifar-10-batches-bin
# CTRAIN_CIFAR_MIRROR: base URLs, separated by spaces, to use instead of the public one.
set -euo pipefail

archive=cifar-10-binary.tar.gz
mirrors=(https://www.cs.toronto.edu/~kriz)
sums="cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  test_batch.bin"
case ${1:-} in
-h | --help)
	sed -n '2,4s/^# //p' "$0"
	exit 0
	;;
-*)
	echo "get_cifar: unknown option $1" >&2
	exit 2
	;;
esac
dir=${1:-datasets/cifar-10-batches-bin}
[ -z "${CTRAIN_CIFAR_MIRROR:-}" ] || read -ra mirrors <<<"$CTRAIN_CIFAR_MIRROR"
command -v curl >/dev/null || { echo "get_cifar: curl is missing: run scripts/setup.sh" >&2; exit 1; }
mkdir -p "$dir"
part=$dir/$archive.part

complete() { # DIRECTORY
	(cd "$1" && sha256sum --quiet --status --check <<<"$sums") 2>/dev/null
}

# Moves the files of the archive into place if they are right.
unpack() {
	rm -rf "$dir/unpacked"
	mkdir "$dir/unpacked"
	tar -xzf "$part" -C "$dir/unpacked" --strip-components=1 --no-same-owner 2>/dev/null && complete "$dir/unpacked" &&
		mv "$dir"/unpacked/*.bin "$dir" &&
		{ [ ! -f "$dir/unpacked/batches.meta.txt" ] || mv "$dir/unpacked/batches.meta.txt" "$dir"; } &&
		rm -rf "$dir/unpacked" "$part"
}

download() { # URL [CURL-OPTIONS]
	curl -fsSL --connect-timeout 10 --speed-limit 1000 --speed-time 30 --retry 1 "${@:2}" -o "$part" "$1"
}

for url in "${mirrors[@]}"; do
	! complete "$dir" || break
	resumed=no
	[ ! -s "$part" ] || resumed=yes
	! download "$url/$archive" --continue-at - || ! unpack || break
	# The part may belong to another file, be complete, or the server may not support ranges.
	if [ $resumed = yes ]; then
		rm -f "$part"
		echo "get_cifar: cannot resume the download, starting over" >&2
		! download "$url/$archive" || ! unpack || break
	fi
	echo "get_cifar: cannot get $url/$archive with the right contents" >&2
	rm -rf "$dir/unpacked"
done
if ! complete "$dir"; then
	echo "get_cifar: no mirror provided $archive. Are you offline? Download the \"CIFAR-10 binary version\" elsewhere, unpack" >&2
	echo "get_cifar: it into $dir, or set CTRAIN_CIFAR_MIRROR. configs/smoke.yaml trains on generated images." >&2
	exit 1
fi
echo "get_cifar: $dir is complete"
