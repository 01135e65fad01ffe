/* Element-wise kernels, one vector of 16 bytes per thread (conversions: one element). They compute in fp32 and round
 * once, at the end. Padded channels are computed like all others: zeros give zeros, and the padding of a bias is zero.
 * Except for conversions, results may be written over operands, because a thread reads its elements before it writes
 * them. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

template <class T> static __global__ void map(const struct ct__k_map_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.n / ct_vector<T>::size)
		return;
	ct_vector<T> x = load_vector<T>(a.a, i), z = {}, c = {};
	if (a.op != CT__K_RELU)
		z = load_vector<T>(a.b, i);
	if (a.c)
		c = load_vector<T>(a.c, i);
	for (int j = 0; j < ct_vector<T>::size; j++) {
		const float u = a.c ? to_float(x.v[j]) + to_float(c.v[j]) : to_float(x.v[j]), v = to_float(z.v[j]);
		float y;

		if (a.op == CT__K_ADD)
			y = u + v;
		else if (a.op == CT__K_RELU)
			y = relu(u);
		else if (a.op == CT__K_ADD_RELU)
			y = relu(u + v);
		else
			y = v <= 0 ? 0.0f : u;
		x.v[j] = from_float<T>(y);
	}
	store_vector<T>(a.y, i, x);
}

template <class T> static cudaError_t launch_map(const struct ct__k_map_args *a, cudaStream_t s)
{
	return ct__launch(map<T>, blocks_for(a->n / ct_vector<T>::size, BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_map(const struct ct__k_map_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_map, a, s)
}

template <class From, class To> static __global__ void convert(const struct ct__k_convert_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.n)
		return;
	const float scale = a.loss_scale ? a.scale * *a.loss_scale : a.scale;
	static_cast<To *>(a.y)[i] = from_float<To>(scale * to_float(static_cast<const From *>(a.x)[i]));
}

template <class From> static cudaError_t launch_convert(const struct ct__k_convert_args *a, cudaStream_t s)
{
	const unsigned grid = blocks_for(a->n, BLOCK);

	switch (a->to) {
	case CT_F32:
		return ct__launch(convert<From, float>, grid, BLOCK, 0, s, *a);
	case CT_F16:
		return ct__launch(convert<From, __half>, grid, BLOCK, 0, s, *a);
	case CT_BF16:
		return ct__launch(convert<From, __nv_bfloat16>, grid, BLOCK, 0, s, *a);
	default:
		return cudaErrorInvalidValue;
	}
}

extern "C" cudaError_t ct__k_convert(const struct ct__k_convert_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->from, launch_convert, a, s)
}

template <class T> static __global__ void bias(const struct ct__k_bias_args a)
{
	const int vectors = a.cp / ct_vector<T>::size;
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.rows * vectors)
		return;
	const float *b = a.bias + i % vectors * ct_vector<T>::size;
	ct_vector<T> x = load_vector<T>(a.x, i);
	for (int j = 0; j < ct_vector<T>::size; j++) {
		const float y = to_float(x.v[j]) + b[j];

		x.v[j] = from_float<T>(a.relu ? relu(y) : y);
	}
	store_vector<T>(a.y, i, x);
}

template <class T> static cudaError_t launch_bias(const struct ct__k_bias_args *a, cudaStream_t s)
{
	return ct__launch(bias<T>, blocks_for(a->rows * (a->cp / ct_vector<T>::size), BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_bias(const struct ct__k_bias_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_bias, a, s)
}
