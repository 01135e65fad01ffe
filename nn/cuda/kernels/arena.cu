/* Passes over complete arenas of fp32 elements. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

static __global__ void arena(const struct ct__k_arena_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.n)
		return;
	const float x = a.a[i], y = a.b[i];
	if (a.op == CT__K_ARENA_ADD) {
		a.a[i] = x + y;
	} else if (a.op == CT__K_ARENA_SWAP) {
		a.a[i] = y;
		a.b[i] = x;
	} else if (!*a.stopped) {
		a.a[i] = a.decay * x + a.rest * y;
	}
}

extern "C" cudaError_t ct__k_arena(const struct ct__k_arena_args *a, cudaStream_t s)
{
	return ct__launch(arena, blocks_for(a->n, BLOCK), BLOCK, 0, s, *a);
}

static __global__ void take_loss(const struct ct__k_take_loss_args a)
{
	*a.loss = (float)a.metrics->loss;
	*a.metrics = {};
}

extern "C" cudaError_t ct__k_take_loss(const struct ct__k_take_loss_args *a, cudaStream_t s)
{
	return ct__launch(take_loss, 1, 1, 0, s, *a);
}
