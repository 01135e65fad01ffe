#include "nn/cuda/kernels/columns.cuh"

enum { BLOCK = 256 };

extern "C" int ct__k_sum_blocks(size_t rows)
{
	return column_blocks(rows);
}

template <class T> static __global__ void partial_sums(const struct ct__k_bias_backward_args a)
{
	__shared__ double shared[COLUMN_Y][COLUMN_X][2 * ct_vector<T>::size];

	column_sums<T>(a.rows, a.cp, a.partial, shared, [&](size_t i, int, double *sum, double *) {
		ct_vector<T> d = load_vector<T>(a.dy, i);

		if (a.dy2)
			d = add_vectors(d, load_vector<T>(a.dy2, i));
		if (a.y)
			d = relu_passes(d, load_vector<T>(a.y, i));
		if (a.d)
			store_vector<T>(a.d, i, d);
		for (int j = 0; j < ct_vector<T>::size; j++)
			sum[j] += (double)to_float(d.v[j]);
	});
}

static __global__ void add_blocks(const struct ct__k_bias_backward_args a)
{
	const int c = (int)(blockIdx.x * BLOCK + threadIdx.x);

	if (c < a.cp)
		a.db[c] = (float)add_partial(a.partial, column_blocks(a.rows), 0, a.cp, c);
}

template <class T> static cudaError_t launch(const struct ct__k_bias_backward_args *a, cudaStream_t s)
{
	const cudaError_t e = ct__launch(partial_sums<T>, column_grid(a->rows, a->cp, ct_vector<T>::size),
					 COLUMN_X * COLUMN_Y, 0, s, *a);

	return e ? e : ct__launch(add_blocks, blocks_for((size_t)a->cp, BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_bias_backward(const struct ct__k_bias_backward_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch, a, s)
}
