/* Normalization of uint8 images with at most 4 channels. */
#ifndef CT_NN_CUDA_KERNELS_NORMALIZE_CUH
#define CT_NN_CUDA_KERNELS_NORMALIZE_CUH

#include <stdint.h>

#include "nn/cuda/kernels/launch.cuh"

static inline __device__ float normalize(uint8_t u, float mean, float std)
{
	return ((float)u / 255.0f - mean) / std;
}

#endif
