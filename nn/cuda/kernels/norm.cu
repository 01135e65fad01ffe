/* Batch norm over the rows of [rows, cp]. Sums over rows are computed in two kernels, as columns.cuh describes: blocks
 * store partial sums, and add_blocks adds them in a fixed order. The sums are double and in the order of
 * nn/host/batch_norm.c, because they may be all-reduced between the kernels. The variance is the mean of squares minus
 * the square of the mean, for which sums in double are precise enough. `finalize` and `running` set the statistics of
 * padded channels to zero, so that their results are zero.
 *
 * y is not read in the backward pass. With a residual, the forward pass stores the mask of the ReLU, one byte per
 * vector of 16 bytes: a sixteenth of a pass to write it and another to read it. Without one, the mask is computed again
 * from x. It must be the mask of the stored y, so both passes use the same expression and round to the type of y before
 * they compare with zero. add_blocks serves both directions; only backward has dgamma. */
#include "nn/cuda/kernels/columns.cuh"

/* The arguments, and the number of blocks along the rows. */
struct norm_blocks_args {
	struct ct__k_norm_args a;
	int blocks;
};

/* The arguments, and the number of rows of a block. The last block may have fewer. */
struct norm_rows_args {
	struct ct__k_norm_args a;
	unsigned rows_of_block;
};

/* Rows that a thread loads before it uses the first one, if one value is read or several. More would be too many
 * registers. */
enum { ROWS_OF_ONE = 4, ROWS_OF_TWO = 2 };

static inline __device__ int vector_of_thread()
{
	return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

template <class T> struct forward_batch {
	typedef struct ct__k_norm_args args;
	static constexpr int size = ROWS_OF_ONE;
	ct_vector<T> x[size];

	__device__ forward_batch(const args &a, const size_t (&i)[size])
	{
		load_vectors(x, a.x, i);
	}
};

template <class T>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3) forward_sums(const struct ct__k_norm_args a)
{
	__shared__ double shared[2 * ct_vector<T>::size][COLUMN_THREADS];

	column_sums<T, forward_batch<T>>(a, vector_of_thread(), a.partial, shared,
					 [&](const auto &b, int m, size_t, auto *sum, auto *squares) {
						 for (int j = 0; j < ct_vector<T>::size; j++) {
							 const typename ct_sum<T>::type v = to_float(b.x[m].v[j]);

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

/* d: dy + dy2. FROM_X: the mask of the ReLU is computed again from x, and not loaded. */
template <class T, bool FROM_X> struct backward_batch {
	typedef struct ct__k_norm_args args;
	static constexpr int size = ROWS_OF_TWO;
	ct_vector<T> x[size], d[size];
	uint8_t mask[size];

	__device__ backward_batch(const args &a, const size_t (&i)[size])
	{
		load_vectors(x, a.x, i);
		load_vectors(d, a.dy, i);
		for (int m = 0; !FROM_X && a.relu && m < size; m++)
			mask[m] = a.mask[i[m]];
		if (a.dy2) {
			ct_vector<T> second[size];

			load_vectors(second, a.dy2, i);
			for (int m = 0; m < size; m++)
				d[m] = add_vectors(d[m], second[m]);
		}
	}
};

template <class T, bool FROM_X>
static __global__ void __launch_bounds__(COLUMN_THREADS, sizeof(T) == 4 ? 3 : 2)
	backward_sums(const struct ct__k_norm_args a)
{
	constexpr int V = ct_vector<T>::size;
	__shared__ double shared[2 * V][COLUMN_THREADS];
	const int vector = vector_of_thread(), c = vector < a.cp / V ? vector * V : 0;

	const norm_values<V> n = load_norm<V>(a, c);

	column_sums<T, backward_batch<T, FROM_X>>(
		a, vector, a.partial, shared, [&](const auto &b, int m, size_t i, auto *sum, auto *dot) {
			ct_vector<T> d = b.d[m];

			if (FROM_X)
				d = relu_passes(d, output_of<T>(n, b.x[m]));
			else if (a.relu)
				d = mask_passes(d, b.mask[m]);
			if (a.d)
				store_vector<T>(a.d, i, d);
			for (int j = 0; j < V; j++) {
				const typename ct_sum<T>::type dj = to_float(d.v[j]);

				sum[j] += dj; /* add_blocks multiplies the other sum by 1/sqrt(var + eps) */
				dot[j] += dj * (to_float(b.x[m].v[j]) - n.mean[j]);
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
		*a.inverse = 1 / count;
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

/* Walks the rows of the block backwards. Calls pass(i, n) for each N rows of the thread, and for those that are left
 * over: it loads the vectors i[0] to i[N - 1], so that the loads are in flight together, and stores the first n. The
 * first block has the last rows, because the blocks of column_sums that ran last have read them, and they may still be
 * in the L2 cache. */
template <int N, class Pass>
static inline __device__ void rows_from_end(const struct norm_rows_args &b, int vectors, int vector, const Pass &pass)
{
	const unsigned stride = blockDim.y, step = stride * vectors;
	const size_t up_to = b.a.rows - (size_t)blockIdx.y * b.rows_of_block; /* the end of the block */
	const unsigned end = up_to < b.rows_of_block ? (unsigned)up_to : b.rows_of_block;
	unsigned row = threadIdx.y; /* counted from the end */
	size_t at = (up_to - 1 - row) * vectors + vector, i[N];

#pragma unroll 1
	for (; row + (N - 1) * stride < end; row += N * stride) {
#pragma unroll
		for (int m = 0; m < N; m++, at -= step)
			i[m] = at;
		pass(i, N);
	}
	if (row >= end)
		return;
	int n = 0;
#pragma unroll
	for (int m = 0; m < N; m++) {
		const bool exists = row + m * stride < end;

		i[m] = exists ? at - m * step : at;
		n += exists;
	}
	pass(i, n);
}

template <class T, bool RESIDUAL>
static __global__ void __launch_bounds__(COLUMN_THREADS, 4) apply(const struct norm_rows_args b)
{
	constexpr int V = ct_vector<T>::size, N = RESIDUAL ? ROWS_OF_TWO : ROWS_OF_ONE;

	const struct ct__k_norm_args &a = b.a;
	const int vectors = a.cp / V, vector = vector_of_thread();

	if (vector >= vectors)
		return;
	const norm_values<V> n = load_norm<V>(a, vector * V);
	rows_from_end<N>(b, vectors, vector, [&](const size_t (&i)[N], int exist) {
		ct_vector<T> x[N], r[N];

		load_vectors(x, a.x, i);
		if (RESIDUAL)
			load_vectors(r, a.residual, i);
#pragma unroll
		for (int m = 0; m < N; m++) {
			for (int j = 0; j < V; j++) {
				float y = norm_of(n, to_float(x[m].v[j]), j);

				if (RESIDUAL)
					y += to_float(r[m].v[j]);
				x[m].v[j] = from_float<T>(a.relu ? relu(y) : y);
			}
			if (m < exist)
				store_vector<T>(a.y, i[m], x[m]);
			if (RESIDUAL && a.mask && m < exist)
				a.mask[i[m]] = mask_of(x[m]);
		}
	});
}

/* dx = scale * (d - mean of d - xh * mean of d * xh) */
template <class T, bool RELU>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3) backward_data(const struct norm_rows_args b)
{
	constexpr int V = ct_vector<T>::size, N = ROWS_OF_TWO;

	const struct ct__k_norm_args &a = b.a;
	const int vectors = a.cp / V, vector = vector_of_thread();
	const double inverse = a.fixed ? 0 : *a.inverse;
	float sum[V], slope[V];

	if (vector >= vectors)
		return;
	const norm_values<V> n = load_norm<V>(a, vector * V);
	for (int j = 0; j < V; j++) {
		const int c = vector * V + j;
		const bool real = c < a.c && !a.fixed;

		sum[j] = real ? (float)(a.sums[c] * inverse) : 0.0f;
		slope[j] = real ? a.stat[a.cp + c] * (float)(a.sums[a.c + c] * inverse) : 0.0f;
	}
	rows_from_end<N>(b, vectors, vector, [&](const size_t (&i)[N], int exist) {
		ct_vector<T> x[N], d[N];

		load_vectors(x, a.x, i);
		load_vectors(d, a.dy, i);
#pragma unroll
		for (int m = 0; m < N; m++) {
			if (RELU)
				d[m] = relu_passes(d[m], output_of<T>(n, x[m]));
			for (int j = 0; j < V; j++) {
				const float from_mean = to_float(x[m].v[j]) - n.mean[j];

				d[m].v[j] = from_float<T>(n.scale[j] *
							  (to_float(d[m].v[j]) - sum[j] - from_mean * slope[j]));
			}
			if (m < exist)
				store_vector<T>(a.dx, i[m], d[m]);
		}
	});
}

template <class T> static cudaError_t launch_forward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(forward_sums<T>, column_grid(a->rows, vectors, COLUMN_RUN), column_block(vectors), 0, s, *a);
}

template <class T> static cudaError_t launch_backward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;

	return ct__launch(a->relu && !a->mask ? backward_sums<T, true> : backward_sums<T, false>,
			  column_grid(a->rows, vectors, COLUMN_RUN), column_block(vectors), 0, s, *a);
}

/* `run`: the rows that a thread loads together. */
template <class T>
static cudaError_t launch_rows(void (*kernel)(struct norm_rows_args), const struct ct__k_norm_args *a, int run,
			       cudaStream_t s)
{
	const int vectors = a->cp / ct_vector<T>::size;
	dim3 grid = column_grid(a->rows, vectors, run);
	const struct norm_rows_args b = {*a, blocks_for(a->rows, grid.y)};

	grid.y = blocks_for(a->rows, b.rows_of_block);
	return ct__launch(kernel, grid, column_block(vectors), 0, s, b);
}

template <class T> static cudaError_t launch_apply(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return a->residual ? launch_rows<T>(apply<T, true>, a, ROWS_OF_TWO, s)
			   : launch_rows<T>(apply<T, false>, a, ROWS_OF_ONE, s);
}

template <class T> static cudaError_t launch_backward_data(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return launch_rows<T>(a->relu ? backward_data<T, true> : backward_data<T, false>, a, ROWS_OF_TWO, s);
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
