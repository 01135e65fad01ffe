/* Batch norm over the rows of [rows, cp]. Sums over rows are computed in two kernels, as columns.cuh describes: blocks
 * store partial sums, and add_blocks adds them in a fixed order. The sums are double and in the order of
 * nn/host/batch_norm.c, because they may be all-reduced between the kernels. The variance is the mean of squares minus
 * the square of the mean, for which sums in double are precise enough. `finalize` and `running` set the statistics of
 * padded channels to zero, so that their results are zero.
 *
 * Without a residual, y is not read in the backward pass: the mask of the ReLU is computed again from x. It must be the
 * mask of the stored y, so both passes use the same expression and round to the type of y before they compare with
 * zero. add_blocks serves both directions; only backward has dgamma. */
#include "nn/cuda/kernels/columns.cuh"

/* The arguments, and the number of blocks along the rows. */
struct norm_blocks_args {
	struct ct__k_norm_args a;
	int blocks;
};

static inline __device__ int vector_of_thread()
{
	return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

template <class T>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3) forward_sums(const struct ct__k_norm_args a)
{
	__shared__ double shared[2 * ct_vector<T>::size][COLUMN_THREADS];

	column_sums<T>(a.rows, a.cp, vector_of_thread(), a.partial, shared, [&](size_t i, auto *sum, auto *squares) {
		const ct_vector<T> x = load_vector<T>(a.x, i);

		for (int j = 0; j < ct_vector<T>::size; j++) {
			const typename ct_sum<T>::type v = to_float(x.v[j]);

			sum[j] += v;
			squares[j] += v * v;
		}
	});
}

/* What the norm of a channel needs. Forward and backward use the same expression, so that a mask that is computed again
 * is the mask of y. */
template <int V> struct norm_values {
	float mean[V], scale[V], beta[V];
};

template <int V> static inline __device__ norm_values<V> load_norm(const struct ct__k_norm_args &a, int c)
{
	norm_values<V> n;

	for (int j = 0; j < V; j++) {
		n.mean[j] = a.stat[c + j];
		n.scale[j] = a.gamma[c + j] * a.stat[a.cp + c + j];
		n.beta[j] = a.beta[c + j];
	}
	return n;
}

template <int V> static inline __device__ float norm_of(const norm_values<V> &n, float x, int j)
{
	return (x - n.mean[j]) * n.scale[j] + n.beta[j];
}

/* The output of the norm and its ReLU, if there is no residual. */
template <class T>
static inline __device__ ct_vector<T> output_of(const norm_values<ct_vector<T>::size> &n, ct_vector<T> x)
{
	for (int j = 0; j < ct_vector<T>::size; j++)
		x.v[j] = from_float<T>(relu(norm_of(n, to_float(x.v[j]), j)));
	return x;
}

template <class T> static __global__ void backward_sums(const struct ct__k_norm_args a)
{
	constexpr int V = ct_vector<T>::size;
	__shared__ double shared[2 * V][COLUMN_THREADS];
	const int vector = vector_of_thread(), c = vector < a.cp / V ? vector * V : 0;

	const norm_values<V> n = load_norm<V>(a, c);

	column_sums<T>(a.rows, a.cp, vector, a.partial, shared, [&](size_t i, auto *sum, auto *dot) {
		const ct_vector<T> x = load_vector<T>(a.x, i);
		ct_vector<T> d = load_vector<T>(a.dy, i);

		if (a.dy2)
			d = add_vectors(d, load_vector<T>(a.dy2, i));
		if (a.relu)
			d = relu_passes(d, a.y ? load_vector<T>(a.y, i) : output_of<T>(n, x));
		if (a.d)
			store_vector<T>(a.d, i, d);
		for (int j = 0; j < V; j++) {
			const typename ct_sum<T>::type dj = to_float(d.v[j]);

			sum[j] += dj;
			dot[j] += dj * (to_float(x.v[j]) - n.mean[j]); /* add_blocks multiplies by 1/sqrt(var + eps) */
		}
	});
}

/* Writes the sums of logical channels; dgamma and dbeta in backward. */
static __global__ void add_blocks(const struct norm_blocks_args b)
{
	__shared__ double shared[2][PARTIAL_Y][PARTIAL_X];

	const struct ct__k_norm_args &a = b.a;
	const int c = (int)(blockIdx.x * PARTIAL_X + threadIdx.x);
	double first, second;

	if (!add_partial(a.partial, b.blocks, a.cp, c, shared, &first, &second))
		return;
	if (a.dgamma)
		second *= (double)a.stat[a.cp + c];
	if (c < a.c) {
		a.sums[c] = first;
		a.sums[a.c + c] = second;
	}
	if (a.dgamma) {
		a.dbeta[c] = (float)first;
		a.dgamma[c] = (float)second;
	} else if (c == 0) {
		a.sums[2 * a.c] = (double)a.rows;
	}
}

enum { BLOCK = 256 };

static __global__ void finalize(const struct ct__k_norm_args a)
{
	const int c = (int)(blockIdx.x * BLOCK + threadIdx.x);

	if (c >= a.cp)
		return;
	const double count = a.sums[2 * a.c], m = (double)a.momentum;
	if (c == 0)
		*a.count = count;
	if (c >= a.c) {
		a.stat[c] = 0;
		a.stat[a.cp + c] = 0;
		return;
	}
	const double mean = a.sums[c] / count, raw = a.sums[a.c + c] / count - mean * mean, var = raw < 0 ? 0 : raw;
	a.running_mean[c] = (float)((1 - m) * (double)a.running_mean[c] + m * mean);
	a.running_var[c] = (float)((1 - m) * (double)a.running_var[c] + m * var * count / (count - 1));
	a.stat[c] = (float)mean;
	a.stat[a.cp + c] = (float)(1 / sqrt(var + (double)a.eps));
}

static __global__ void running(const struct ct__k_norm_args a)
{
	const int c = (int)(blockIdx.x * BLOCK + threadIdx.x);

	if (c >= a.cp)
		return;
	a.stat[c] = c < a.c ? a.running_mean[c] : 0.0f;
	a.stat[a.cp + c] = c < a.c ? (float)(1 / sqrt((double)a.running_var[c] + (double)a.eps)) : 0.0f;
}

template <class T> static __global__ void apply(const struct ct__k_norm_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V, vector = vector_of_thread();
	const size_t stride = (size_t)gridDim.y * blockDim.y;

	if (vector >= vectors)
		return;
	const norm_values<V> n = load_norm<V>(a, vector * V);
#pragma unroll 2
	for (size_t row = (size_t)blockIdx.y * blockDim.y + threadIdx.y; row < a.rows; row += stride) {
		const size_t i = row * vectors + vector;

		ct_vector<T> x = load_vector<T>(a.x, i), r = {};

		if (a.residual)
			r = load_vector<T>(a.residual, i);
		for (int j = 0; j < V; j++) {
			float y = norm_of(n, to_float(x.v[j]), j);

			if (a.residual)
				y += to_float(r.v[j]);
			x.v[j] = from_float<T>(a.relu ? relu(y) : y);
		}
		store_vector<T>(a.y, i, x);
	}
}

/* dx = scale * (d - mean of d - xh * mean of d * xh) */
template <class T> static __global__ void backward_data(const struct ct__k_norm_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V, vector = vector_of_thread();
	const size_t stride = (size_t)gridDim.y * blockDim.y;
	const double count = a.fixed ? 1 : *a.count;
	float sum[V], slope[V];

	if (vector >= vectors)
		return;
	const norm_values<V> n = load_norm<V>(a, vector * V);
	for (int j = 0; j < V; j++) {
		const int c = vector * V + j;
		const bool real = c < a.c && !a.fixed;

		sum[j] = real ? (float)(a.sums[c] / count) : 0.0f;
		slope[j] = real ? a.stat[a.cp + c] * (float)(a.sums[a.c + c] / count) : 0.0f;
	}
#pragma unroll 2
	for (size_t row = (size_t)blockIdx.y * blockDim.y + threadIdx.y; row < a.rows; row += stride) {
		const size_t i = row * vectors + vector;

		const ct_vector<T> x = load_vector<T>(a.x, i);
		ct_vector<T> d = load_vector<T>(a.dy, i);

		if (a.relu)
			d = relu_passes(d, a.y ? load_vector<T>(a.y, i) : output_of<T>(n, x));
		for (int j = 0; j < V; j++) {
			const float from_mean = to_float(x.v[j]) - n.mean[j];

			d.v[j] = from_float<T>(n.scale[j] * (to_float(d.v[j]) - sum[j] - from_mean * slope[j]));
		}
		store_vector<T>(a.dx, i, d);
	}
}

template <class T> static cudaError_t launch_forward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(forward_sums<T>, column_grid(a->rows, vectors, COLUMN_RUN), column_block(vectors), 0, s, *a);
}

template <class T> static cudaError_t launch_backward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(backward_sums<T>, column_grid(a->rows, vectors, COLUMN_RUN), column_block(vectors), 0, s, *a);
}

template <class T> static cudaError_t launch_apply(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(apply<T>, column_grid(a->rows, vectors, 2), column_block(vectors), 0, s, *a);
}

template <class T> static cudaError_t launch_backward_data(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(backward_data<T>, column_grid(a->rows, vectors, 2), column_block(vectors), 0, s, *a);
}

static cudaError_t dispatch_forward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_forward_sums, a, s)
}

static cudaError_t dispatch_backward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_backward_sums, a, s)
}

static cudaError_t for_channels(void (*kernel)(struct ct__k_norm_args), const struct ct__k_norm_args *a, cudaStream_t s)
{
	return ct__launch(kernel, blocks_for((size_t)a->cp, BLOCK), BLOCK, 0, s, *a);
}

static cudaError_t launch_add_blocks(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const struct norm_blocks_args b = {*a, ct__k_sum_blocks(a->rows, a->cp, a->type)};

	return ct__launch(add_blocks, blocks_for((size_t)a->cp, PARTIAL_X), dim3(PARTIAL_X, PARTIAL_Y), 0, s, b);
}

extern "C" cudaError_t ct__k_norm_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	struct ct__k_norm_args forward = *a;
	cudaError_t e = dispatch_forward_sums(a, s);

	forward.dgamma = NULL;
	return e ? e : launch_add_blocks(&forward, s);
}

extern "C" cudaError_t ct__k_norm_finalize(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return for_channels(finalize, a, s);
}

extern "C" cudaError_t ct__k_norm_running(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return for_channels(running, a, s);
}

extern "C" cudaError_t ct__k_norm_apply(const struct ct__k_norm_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_apply, a, s)
}

extern "C" cudaError_t ct__k_norm_backward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	cudaError_t e = dispatch_backward_sums(a, s);

	return e ? e : launch_add_blocks(a, s);
}

extern "C" cudaError_t ct__k_norm_backward_data(const struct ct__k_norm_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_backward_data, a, s)
}
