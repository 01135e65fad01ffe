/* Normalization of uint8 images with at most 4 channels. */
#ifndef CT_NN_CUDA_KERNELS_NORMALIZE_CUH
#define CT_NN_CUDA_KERNELS_NORMALIZE_CUH

#include <stdint.h>

#include "nn/cuda/kernels/launch.cuh"

/* Returns v[c]. An index into the arguments of a kernel would copy them to local memory. */
template <class T> static inline __device__ T channel_value(const T (&v)[4], int c)
{
	T x = v[0];

#pragma unroll /* the loop would use an index, too */
	for (int k = 1; k < 4; k++)
		x = c == k ? v[k] : x;
	return x;
}

static inline __device__ float normalize(uint8_t u, float mean, float std)
{
	return ((float)u / 255.0f - mean) / std;
}

#endif
