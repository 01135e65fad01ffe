/* 16-byte vectors of elements, and conversions between element types. */
#ifndef CT_NN_CUDA_KERNELS_VECTOR_CUH
#define CT_NN_CUDA_KERNELS_VECTOR_CUH

#include "nn/cuda/kernels/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nn/cuda/kernels/kernels.h"

template <class T> struct alignas(16) ct_vector {
	static constexpr int size = 16 / sizeof(T);
	T v[size];
};

static inline __device__ float to_float(float x)
{
	return x;
}
static inline __device__ float to_float(__half x)
{
	return __half2float(x);
}
static inline __device__ float to_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

template <class T> static inline __device__ T from_float(float x);
template <> inline __device__ float from_float<float>(float x)
{
	return x;
}
template <> inline __device__ __half from_float<__half>(float x)
{
	return __float2half_rn(x);
}
template <> inline __device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
	return __float2bfloat16_rn(x);
}

template <class T> static inline __device__ ct_vector<T> load_vector(const void *p, size_t i)
{
	return static_cast<const ct_vector<T> *>(p)[i];
}

template <class T, int N>
static inline __device__ void load_vectors(ct_vector<T> (&x)[N], const void *p, const size_t (&i)[N])
{
#pragma unroll
	for (int m = 0; m < N; m++)
		x[m] = load_vector<T>(p, i[m]);
}

template <class T> static inline __device__ void store_vector(void *p, size_t i, const ct_vector<T> &x)
{
	static_cast<ct_vector<T> *>(p)[i] = x;
}

static inline __device__ bool is_nan(float x)
{
	return x != x;
}
static inline __device__ bool is_finite(double x)
{
	return x - x == 0;
}
static inline __device__ float relu(float x)
{
	return x <= 0 ? 0.0f : x;
} /* keeps NaN */

/* a + b, rounded to T. */
template <class T> static inline __device__ ct_vector<T> add_vectors(ct_vector<T> a, const ct_vector<T> &b)
{
	for (int j = 0; j < ct_vector<T>::size; j++)
		a.v[j] = from_float<T>(to_float(a.v[j]) + to_float(b.v[j]));
	return a;
}

/* d where a ReLU with the output y passes its input, else 0. */
template <class T> static inline __device__ ct_vector<T> relu_passes(ct_vector<T> d, const ct_vector<T> &y)
{
	for (int j = 0; j < ct_vector<T>::size; j++) {
		if (to_float(y.v[j]) <= 0)
			d.v[j] = from_float<T>(0.0f);
	}
	return d;
}

/* Bit j: a ReLU with the output y passes element j. */
template <class T> static inline __device__ uint8_t mask_of(const ct_vector<T> &y)
{
	unsigned mask = 0;

	for (int j = 0; j < ct_vector<T>::size; j++)
		mask |= (unsigned)!(to_float(y.v[j]) <= 0) << j;
	return (uint8_t)mask;
}

/* d where the mask of a ReLU is set, else 0. */
template <class T> static inline __device__ ct_vector<T> mask_passes(ct_vector<T> d, unsigned mask)
{
	for (int j = 0; j < ct_vector<T>::size; j++) {
		if (!(mask >> j & 1))
			d.v[j] = from_float<T>(0.0f);
	}
	return d;
}

static inline unsigned blocks_for(size_t n, unsigned block)
{
	return (unsigned)((n + block - 1) / block);
}

/* Returns launch<T>(a, s), where T is the element type of activations. */
#define CT_FOR_TYPE(type, launch, a, s)             \
	switch (type) {                             \
	case CT_F32:                                \
		return launch<float>(a, s);         \
	case CT_F16:                                \
		return launch<__half>(a, s);        \
	case CT_BF16:                               \
		return launch<__nv_bfloat16>(a, s); \
	default:                                    \
		return cudaErrorInvalidValue;       \
	}

#endif
