#!/usr/bin/env bash
# Downloads MNIST (4 files, 11.6 MB) with checksums; goes on where an earlier try stopped; leaves no half file under a final name.
#   scripts/get_mnist.sh [DIR]                default: datasets/mnist
#   scripts/get_mnist.sh --fashion [DIR]      Fashion-MNIST, default: datasets/fashion_mnist
# CTRAIN_MNIST_MIRROR: a base URL to try first.
set -euo pipefail

mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist)
sums="f68b3c2dcbeaaa9fbdd348bbdeb94873  train-images-idx3-ubyte.gz
d53e105ee54ea40749a09fcbcd1e9432  train-labels-idx1-ubyte.gz
9fb629c4189551a2d022fa330f9573f3  t10k-images-idx3-ubyte.gz
ec29112dd5afa0611ce80d1b7f02629c  t10k-labels-idx1-ubyte.gz"
dir=datasets/mnist
if [ "${1:-}" = --fashion ]; then
	shift
	mirrors=(http://fashion-mnist.s3-website.eu-central-1.amazonaws.com)
	sums="8d4fb7e6c68d591d4c3dfef9ec88bf0d  train-images-idx3-ubyte.gz
25c81989df183df01b3e8a0aad5dffbe  train-labels-idx1-ubyte.gz
bef4ecab320f06d8554ea6380940ec79  t10k-images-idx3-ubyte.gz
bb300cfdad3c16e7a12a480ee83cd310  t10k-labels-idx1-ubyte.gz"
	dir=datasets/fashion_mnist
fi
dir=${1:-$dir}
[ -n "${CTRAIN_MNIST_MIRROR:-}" ] && mirrors=("$CTRAIN_MNIST_MIRROR" "${mirrors[@]}")
command -v curl >/dev/null || { echo "get_mnist: curl is missing: run scripts/setup.sh" >&2; exit 1; }
mkdir -p "$dir"

right() { # FILE SUM
	[ -f "$1" ] && [ "$(md5sum <"$1" | cut -d' ' -f1)" = "$2" ]
}

fetch() { # NAME SUM
	local url
	for url in "${mirrors[@]}"; do
		if ! curl -fsSL --connect-timeout 10 --retry 2 --continue-at - -o "$dir/$1.part" "$url/$1"; then
			echo "get_mnist: $url/$1 can't be had" >&2
			continue
		fi
		if right "$dir/$1.part" "$2"; then
			mv "$dir/$1.part" "$dir/$1"
			return 0
		fi
		echo "get_mnist: $url/$1 has a wrong checksum, dropped" >&2
		rm -f "$dir/$1.part"
	done
	return 1
}

while read -r sum name; do
	right "$dir/$name" "$sum" && continue
	if ! fetch "$name" "$sum"; then
		echo "get_mnist: no mirror gave $name. Are you offline? Put the four files into $dir yourself, set CTRAIN_MNIST_MIRROR," >&2
		echo "get_mnist: or make a data set of drawn digits: ctrain data digits --out $dir" >&2
		exit 1
	fi
done <<<"$sums"
echo "get_mnist: $dir is complete"
