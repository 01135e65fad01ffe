#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a trained model: set-up, build, get MNIST, train.
#   scripts/quickstart.sh [CONFIG] [KEY=VALUE ...]     default: configs/mnist_ddp.yaml
set -euo pipefail
cd "$(dirname "$0")/.."
config=${1:-configs/mnist_ddp.yaml}
shift || true

scripts/setup.sh
scripts/build.sh release -DCTRAIN_TESTS=OFF
ctrain=build/release/ctrain
data=${CTRAIN_DATA:-datasets}

if grep -q '^ *name: *mnist' "$config" && [[ "$*" != *data.dir=* ]] && [ ! -e "$data/mnist/train-images-idx3-ubyte.gz" ]; then
	if ! scripts/get_mnist.sh "$data/mnist"; then
		cat >&2 <<-TEXT

		*********************************************************************************
		*  MNIST could not be downloaded. Training on DRAWN DIGITS instead: pictures     *
		*  made by this program (ctrain data digits). The accuracy is not MNIST's.       *
		*  To get the real data later: rm -r $data/mnist && scripts/get_mnist.sh $data/mnist
		*********************************************************************************

		TEXT
		$ctrain data digits --out "$data/mnist"
	fi
fi
exec $ctrain "$config" "$@"
