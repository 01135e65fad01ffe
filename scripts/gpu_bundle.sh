#!/usr/bin/env bash
# Collects what scripts/gpu_gate.sh needs on a machine with a GPU: programs, libraries, data, expected results and scripts.
#   scripts/gpu_bundle.sh [--build BUILD] [--data DATA] [DIR]     DIR: build/gpu_bundle
#   scripts/gpu_bundle.sh --dry --build BUILD [DIR]               for gpu_gate.sh --dry: with the software GPU of that build
# The machine needs Python 3, CUDA 13's runtime, cuDNN 9 and their libraries (glibc, libstdc++), but no compiler.
# BUILD: a build directory with the CUDA module; without it, build/gpu is built, without oneDNN. DATA: a directory with mnist/ and
# imagenet-wds/ [$CTRAIN_SHARED/data or ../shared/data]; if there is none, generated digits replace MNIST.
set -euo pipefail
cd "$(dirname "$0")/.."
dry=0 build='' data='' out=build/gpu_bundle
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		sed -n '2,7s/^# //p' "$0"
		exit 0
		;;
	--dry) dry=1 ;;
	--build) build=${2:?--build needs a directory}; shift ;;
	--data) data=${2:?--data needs a directory}; shift ;;
	-*)
		echo "gpu_bundle: unknown argument '$1'" >&2
		exit 2
		;;
	*) out=$1 ;;
	esac
	shift
done
[ -n "$data" ] || data=${CTRAIN_SHARED:-../shared}/data

fail() { echo "gpu_bundle: $*" >&2; exit 1; }
take() { # DIRECTORY FILE...: copies files, without debug information
	local directory=$out/$1 file
	mkdir -p "$directory"
	for file in "${@:2}"; do
		[ -e "$file" ] || fail "$file does not exist"
		cp -L "$file" "$directory/"
	done
}

if [ -z "$build" ]; then
	[ $dry = 0 ] || fail "--dry needs --build"
	build=build/gpu
	# Binaries without oneDNN keep the bundle small: on a GPU, the CPU only decodes images.
	cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCTRAIN_CUDA=ON -DCTRAIN_ONEDNN=OFF -DCTRAIN_GLOO=OFF -DCTRAIN_TESTS=ON \
		-DCTRAIN_BENCH=ON >/dev/null
	rm -rf $build/tests/nn/cuda/gpu # also programs that an older version built
	cmake --build $build --parallel "$(nproc)" -- ctrain ctrain_cuda gpu_facts cudnn_norms gpu_tests
fi
if [ -e "$out" ]; then
	[ -e "$out/gate/gate.py" ] || fail "$out exists and is not a bundle"
	rm -r "$out"
fi

if [ $dry = 1 ]; then
	take bin "$build/ctrain" "$build/bench/soft_gpu_facts"
	mv "$out/bin/soft_gpu_facts" "$out/bin/gpu_facts"
	take soft "$build"/soft_cudart/{libcudart.so.13,libcudnn.so.9,libctrain_cuda.so}
	[ ! -e "$build/soft_cudart/libnccl.so.2" ] || take soft "$build/soft_cudart/libnccl.so.2" # not there without NCCL's header
	take tests "$build"/tests/nn/cuda/test_cuda_*kernel*
else
	take bin "$build"/{ctrain,libctrain_cuda.so} "$build"/bench/{gpu_facts,cudnn_norms}
	take tests "$build"/tests/nn/cuda/gpu/*
fi
# Libraries that the programs need and that another machine may lack. CUDA and what CUDA needs must be there.
while read -r name path; do
	case $name in
	libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux* | libstdc++* | libgcc_s* | libcud* | libnccl*) ;;
	*) take lib "$path" ;;
	esac
done < <(ldd "$out"/bin/{ctrain,gpu_facts} "$out"/tests/* | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u)
[ $dry = 1 ] || find "$out/bin" "$out/tests" "$out/lib" -type f -exec strip --strip-debug {} +

take gate bench/gpu/*.py bench/peers/torch_train.py
take . scripts/gpu_gate.sh
take configs configs/*.yaml
take configs/bench bench/configs/*.yaml
if [ $dry = 1 ]; then # few images, because the software GPU is slow
	"$build/ctrain" data digits --train 4096 --test 512 --out "$out/data/mnist" >/dev/null
elif [ -d "$data/mnist" ]; then
	take data/mnist "$data"/mnist/*.gz
else
	echo "gpu_bundle: $data/mnist does not exist: digits are generated, and the accuracy on MNIST cannot be checked" >&2
	"$build/ctrain" data digits --out "$out/data/mnist" >/dev/null
fi
if [ -d "$data/imagenet-wds" ]; then
	shards=("$data"/imagenet-wds/imagenet-train-00000[01].*)
	[ $dry = 0 ] || shards=("${shards[@]:0:2}")
	take data/shards "$data/imagenet-wds/classes.txt" "${shards[@]}"
fi
git describe --always --dirty >"$out/VERSION" 2>/dev/null || echo unknown >"$out/VERSION"
python3 -B bench/gpu/reference.py $([ $dry = 0 ] || echo --dry) "$(realpath "$out")"
(cd "$out" && find . -type f ! -name MANIFEST -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >MANIFEST)
du -sk "$out"/* | awk '{ n = split($2, part, "/"); printf "%8.1f MB  %s\n", $1 / 1024, part[n]; sum += $1 } END { printf "%8.1f MB\n", sum / 1024 }'
