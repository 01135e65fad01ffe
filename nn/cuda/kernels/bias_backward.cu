/* The backward pass of a bias and its ReLU, in one pass over the gradient: it adds a second gradient, applies the mask,
 * stores the result for the convolutions and sums it over the rows. The sum is that of the values as stored, after
 * rounding. Blocks store partial sums, and a second kernel adds them in a fixed order (columns.cuh), so no atomics are
 * needed. */
#include "nn/cuda/kernels/columns.cuh"

extern "C" int ct__k_sum_blocks(size_t rows, int cp, enum ct_dtype type)
{
	return column_blocks(rows, cp / (type == CT_F32 ? 4 : 8), COLUMN_RUN);
}

/* The arguments, and the number of blocks along the rows. */
struct bias_blocks_args {
	struct ct__k_bias_backward_args a;
	int blocks;
};

template <class T> struct bias_batch {
	typedef struct ct__k_bias_backward_args args;
	static constexpr int size = 2;
	ct_vector<T> d[size];

	__device__ bias_batch(const args &a, const size_t (&i)[size])
	{
		ct_vector<T> second[size];

		load_vectors(d, a.dy, i);
		if (a.dy2) {
			load_vectors(second, a.dy2, i);
			for (int m = 0; m < size; m++)
				d[m] = add_vectors(d[m], second[m]);
		}
		if (a.y) {
			load_vectors(second, a.y, i);
			for (int m = 0; m < size; m++)
				d[m] = relu_passes(d[m], second[m]);
		}
	}
};

template <class T>
static __global__ void __launch_bounds__(COLUMN_THREADS, 4) partial_sums(const struct ct__k_bias_backward_args a)
{
	__shared__ double shared[2 * ct_vector<T>::size][COLUMN_THREADS];
	const int vector = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	column_sums<T, bias_batch<T>>(a, vector, a.partial, shared,
				      [&](const auto &b, int m, size_t i, auto *sum, auto *) {
					      if (a.d)
						      store_vector<T>(a.d, i, b.d[m]);
					      for (int j = 0; j < ct_vector<T>::size; j++)
						      sum[j] += to_float(b.d[m].v[j]);
				      });
}

static __global__ void add_blocks(const struct bias_blocks_args b)
{
	__shared__ double shared[2][PARTIAL_Y][PARTIAL_X];
	const int c = (int)(blockIdx.x * PARTIAL_X + threadIdx.x);
	double sum, unused;

	if (add_partial(b.a.partial, b.blocks, b.a.cp, c, shared, &sum, &unused))
		b.a.db[c] = (float)sum;
}

template <class T> static cudaError_t launch(const struct ct__k_bias_backward_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;
	const struct bias_blocks_args b = {*a, column_blocks(a->rows, vectors, COLUMN_RUN)};
	const cudaError_t e =
		ct__launch(partial_sums<T>, column_grid(a->rows, vectors, COLUMN_RUN), column_block(vectors), 0, s, *a);

	return e ? e
		 : ct__launch(add_blocks, blocks_for((size_t)a->cp, PARTIAL_X), dim3(PARTIAL_X, PARTIAL_Y), 0, s, b);
}

extern "C" cudaError_t ct__k_bias_backward(const struct ct__k_bias_backward_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch, a, s)
}
