/* Folding of a batch norm into the layer before it: one block per output channel. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

template <class T> static __global__ void fold(const struct ct__k_fold_args a)
{
	const int k = (int)blockIdx.x;
	const bool real = k < a.k;
	const float scale = real ? a.gamma[k] / sqrtf(a.var[k] + a.eps) : 0.0f;

	for (size_t i = threadIdx.x; i < a.row; i += BLOCK)
		static_cast<T *>(a.w_out)[k * a.row + i] = from_float<T>(a.w[k * a.row + i] * scale);
	if (threadIdx.x > 0)
		return;
	const float bias = real ? a.beta[k] + ((a.bias ? a.bias[k] : 0.0f) - a.mean[k]) * scale : 0.0f;
	if (a.bias_type == CT_F32)
		static_cast<float *>(a.bias_out)[k] = bias;
	else
		static_cast<T *>(a.bias_out)[k] = from_float<T>(bias);
}

template <class T> static cudaError_t launch(const struct ct__k_fold_args *a, cudaStream_t s)
{
	return ct__launch(fold<T>, (unsigned)a->kp, BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_fold(const struct ct__k_fold_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch, a, s)
}
