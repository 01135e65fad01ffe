/* Weights of convolutions with groups that are stored without groups. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

template <class T> static __global__ void groups(const struct ct__k_groups_args a)
{
	const unsigned i = blockIdx.x * BLOCK + threadIdx.x, c = i % a.cp, k = i / a.cp / a.plane;

	if (k < (unsigned)a.kp && c / a.c != k / a.k)
		static_cast<T *>(a.w)[i] = from_float<T>(0.0f);
}

template <class T> static cudaError_t launch(const struct ct__k_groups_args *a, cudaStream_t s)
{
	return ct__launch(groups<T>, blocks_for((size_t)a->kp * a->plane * a->cp, BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_groups(const struct ct__k_groups_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch, a, s)
}
