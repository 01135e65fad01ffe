/* Dropout and drop path. The mask of an element depends on seed, step, node, row of the global batch and index of the
 * element in the logical layout [C,H,W], so it is the same on every engine and for every split of the batch
 * (nn/host/dropout.c). */
#include "nn/cuda/kernels/vector.cuh"

#include "base/rng.h"
#include "nn/cuda/kernels/philox.cuh"

enum { BLOCK = 256 };

/* One element per thread. */
template <class T> static __global__ void dropout(const struct ct__k_dropout_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x, row_size = (size_t)a.h * a.w * a.cp;

	if (i >= a.n * row_size)
		return;
	const uint64_t step = *a.step, row = a.first + i / row_size;
	const uint32_t pixel = (uint32_t)(i % row_size / a.cp), c = (uint32_t)(i % a.cp);
	const uint32_t element = a.per_row ? 0 : c * (uint32_t)(a.h * a.w) + pixel;
	const struct philox_block key = philox(CT_RNG_DROPOUT, (uint32_t)a.node, (uint32_t)step, (uint32_t)(step >> 32),
					       (uint32_t)a.seed, (uint32_t)(a.seed >> 32)),
				  draw = philox(element / 4, CT_RNG_DROPOUT, (uint32_t)row, (uint32_t)(row >> 32),
						key.word[0], key.word[1]);
	const uint32_t drop_below = (uint32_t)((double)a.p * 4294967296.0);
	const uint32_t w01 = element % 2 ? draw.word[1] : draw.word[0], w23 = element % 2 ? draw.word[3] : draw.word[2];
	const bool keep = (element % 4 < 2 ? w01 : w23) >= drop_below;
	const float x = to_float(static_cast<const T *>(a.x)[i]);

	static_cast<T *>(a.y)[i] = from_float<T>(x * (keep ? 1.0f / (1.0f - a.p) : 0.0f));
}

template <class T> static cudaError_t launch(const struct ct__k_dropout_args *a, cudaStream_t s)
{
	return ct__launch(dropout<T>, blocks_for((size_t)a->n * a->h * a->w * a->cp, BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_dropout(const struct ct__k_dropout_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch, a, s)
}
