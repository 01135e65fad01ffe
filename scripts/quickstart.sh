#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a trained model: set-up, build, get MNIST, train.
#   scripts/quickstart.sh [CONFIG] [KEY=VALUE ...] [OPTIONS]     default: configs/mnist_ddp.yaml
# What follows CONFIG is handed to ctrain. Run it again after an interruption: it goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
-h | --help)
	sed -n '2,4s/^# //p' "$0"
	exit 0
	;;
esac
config=configs/mnist_ddp.yaml
if [[ "${1:-}" == *.yaml || "${1:-}" == *.yml ]]; then
	config=$1
	shift
fi

scripts/setup.sh
scripts/build.sh release -DCTRAIN_TESTS=OFF
ctrain=build/release/ctrain

# The program knows where its config and this command line look for data.
resolved=$($ctrain config dump "$config" "$@")
key() { # of section data
	sed -n "/^data:/,/^[^ ]/s/^  $1: *\"\\{0,1\\}\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p" <<<"$resolved"
}
name=$(key name)
dir=$(key dir)
files=0
for file in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
	[ ! -e "$dir/$file" ] && [ ! -e "$dir/$file.gz" ] || files=$((files + 1))
done

if [ "$name" = fashion_mnist ] && [ $files != 4 ]; then
	scripts/get_mnist.sh --fashion "$dir"
elif [ "$name" = mnist ] && [ $files != 4 ] && ! scripts/get_mnist.sh "$dir"; then
	[ $files = 0 ] || exit 1 # half of the real data: nothing to mix drawn digits into
	cat >&2 <<-TEXT

	*******************************************************************************
	*  MNIST could not be downloaded. Training on DRAWN DIGITS instead: pictures   *
	*  made by this program (ctrain data digits). The accuracy is not MNIST's.     *
	*******************************************************************************
	   To get the real data later:
	   rm -r $dir && scripts/get_mnist.sh $dir

	TEXT
	$ctrain data digits --out "$dir"
fi

# A process of its own, so that its start is the start of training. If this script is killed, it is told to save and end.
status=0
setpriv --pdeathsig TERM $ctrain "$config" "$@" || status=$?
exit $status
