#!/usr/bin/env bash
# Downloads MNIST (4 files, 11.6 MB) and checks their SHA-256. Resumes an interrupted download; a file gets its final name when it is complete.
#   scripts/get_mnist.sh [DIR]                default: datasets/mnist
#   scripts/get_mnist.sh --fashion [DIR]      Fashion-MNIST, default: datasets/fashion_mnist
# CTRAIN_MNIST_MIRROR: base URLs, separated by spaces, to use instead of the public ones.
set -euo pipefail

what=MNIST
dir=datasets/mnist
mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist)
sums="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  train-images-idx3-ubyte.gz
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c  train-labels-idx1-ubyte.gz
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  t10k-images-idx3-ubyte.gz
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6  t10k-labels-idx1-ubyte.gz"
case ${1:-} in
--fashion)
	shift
	what=Fashion-MNIST
	dir=datasets/fashion_mnist
	mirrors=(http://fashion-mnist.s3-website.eu-central-1.amazonaws.com)
	sums="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84  train-images-idx3-ubyte.gz
a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845  train-labels-idx1-ubyte.gz
346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073  t10k-images-idx3-ubyte.gz
67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5  t10k-labels-idx1-ubyte.gz"
	;;
-h | --help)
	sed -n '2,5s/^# //p' "$0"
	exit 0
	;;
-*)
	echo "get_mnist: unknown option $1 (there is only --fashion)" >&2
	exit 2
	;;
esac
dir=${1:-$dir}
[ -z "${CTRAIN_MNIST_MIRROR:-}" ] || read -ra mirrors <<<"$CTRAIN_MNIST_MIRROR"
command -v curl >/dev/null || { echo "get_mnist: curl is missing: run scripts/setup.sh" >&2; exit 1; }
mkdir -p "$dir"

right() { # FILE SUM
	[ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]
}

download() { # URL FILE [CURL-OPTIONS]
	curl -fsSL --connect-timeout 10 --speed-limit 1000 --speed-time 30 --retry 1 "${@:3}" -o "$2" "$1"
}

fetch() { # NAME SUM
	local part=$dir/$1.part url resumed st
	for url in "${mirrors[@]}"; do
		! right "$part" "$2" || break
		resumed=no
		[ ! -s "$part" ] || resumed=yes
		st=0
		download "$url/$1" "$part" --continue-at - || st=$?
		# Start over when the server does not support ranges (33) or has no more bytes (22), or when the part belongs to another file.
		if [ $resumed = yes ] && { [ $st = 33 ] || [ $st = 22 ] || { [ $st = 0 ] && ! right "$part" "$2"; }; }; then
			echo "get_mnist: cannot resume $part, starting over" >&2
			rm -f "$part"
			st=0
			download "$url/$1" "$part" || st=$?
		fi
		if [ $st != 0 ]; then
			echo "get_mnist: cannot download $url/$1" >&2
		elif ! right "$part" "$2"; then
			echo "get_mnist: $url/$1 has a wrong checksum: deleted" >&2
			rm -f "$part"
		fi
	done
	right "$part" "$2" && mv "$part" "$dir/$1"
}

while read -r sum name; do
	right "$dir/$name" "$sum" && continue
	if ! fetch "$name" "$sum"; then
		echo "get_mnist: no mirror provided $name of $what. Are you offline? Put the four files into $dir yourself or set" >&2
		echo "get_mnist: CTRAIN_MNIST_MIRROR, or create a data set of drawn digits: ctrain data digits --out $dir" >&2
		exit 1
	fi
done <<<"$sums"
echo "get_mnist: $dir is complete"
