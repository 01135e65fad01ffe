/* Batch norm over the rows of [rows, cp]. */
#include "nn/cuda/kernels/columns.cuh"

enum { BLOCK = 256 };

template <class T> static __global__ void forward_sums(const struct ct__k_norm_args a)
{
	__shared__ double shared[COLUMN_Y][COLUMN_X][2 * ct_vector<T>::size];

	column_sums<T>(a.rows, a.cp, a.partial, shared, [&](size_t i, int, double *sum, double *squares) {
		const ct_vector<T> x = load_vector<T>(a.x, i);

		for (int j = 0; j < ct_vector<T>::size; j++) {
			const double v = (double)to_float(x.v[j]);

			sum[j] += v;
			squares[j] += v * v;
		}
	});
}

/* The norm of channel c. Forward and backward use the same expression, so that a mask that is computed again is the mask of y. */
static inline __device__ float norm_of(const struct ct__k_norm_args &a, float x, int c)
{
	return (x - a.stat[c]) * (a.gamma[c] * a.stat[a.cp + c]) + a.beta[c];
}

/* The output of the norm and its ReLU, if there is no residual. */
template <class T>
static inline __device__ ct_vector<T> output_of(const struct ct__k_norm_args &a, ct_vector<T> x, int c)
{
	for (int j = 0; j < ct_vector<T>::size; j++)
		x.v[j] = from_float<T>(relu(norm_of(a, to_float(x.v[j]), c + j)));
	return x;
}

template <class T> static __global__ void backward_sums(const struct ct__k_norm_args a)
{
	__shared__ double shared[COLUMN_Y][COLUMN_X][2 * ct_vector<T>::size];

	column_sums<T>(a.rows, a.cp, a.partial, shared, [&](size_t i, int c, double *sum, double *dot) {
		const ct_vector<T> x = load_vector<T>(a.x, i);
		ct_vector<T> d = load_vector<T>(a.dy, i);

		if (a.dy2)
			d = add_vectors(d, load_vector<T>(a.dy2, i));
		if (a.relu)
			d = relu_passes(d, a.y ? load_vector<T>(a.y, i) : output_of<T>(a, x, c));
		if (a.d)
			store_vector<T>(a.d, i, d);
		for (int j = 0; j < ct_vector<T>::size; j++) {
			const float xh = (to_float(x.v[j]) - a.stat[c + j]) * a.stat[a.cp + c + j];

			sum[j] += (double)to_float(d.v[j]);
			dot[j] += (double)to_float(d.v[j]) * (double)xh;
		}
	});
}

/* Writes the sums of logical channels; dgamma and dbeta in backward. */
static __global__ void add_blocks(const struct ct__k_norm_args a)
{
	const int c = (int)(blockIdx.x * BLOCK + threadIdx.x), blocks = column_blocks(a.rows);

	if (c >= a.cp)
		return;
	const double first = add_partial(a.partial, blocks, 0, a.cp, c),
		     second = add_partial(a.partial, blocks, 1, a.cp, c);
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
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.rows * (a.cp / V))
		return;
	const int c = (int)(i % (a.cp / V)) * V;
	ct_vector<T> x = load_vector<T>(a.x, i), r = {};
	if (a.residual)
		r = load_vector<T>(a.residual, i);
	for (int j = 0; j < V; j++) {
		float y = norm_of(a, to_float(x.v[j]), c + j);

		if (a.residual)
			y += to_float(r.v[j]);
		x.v[j] = from_float<T>(a.relu ? relu(y) : y);
	}
	store_vector<T>(a.y, i, x);
}

template <class T> static __global__ void backward_data(const struct ct__k_norm_args a)
{
	constexpr int V = ct_vector<T>::size;
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;

	if (i >= a.rows * (a.cp / V))
		return;
	const int c = (int)(i % (a.cp / V)) * V;
	const double count = *a.count;
	const ct_vector<T> x = load_vector<T>(a.x, i);
	ct_vector<T> d = load_vector<T>(a.dy, i);
	if (a.relu)
		d = relu_passes(d, a.y ? load_vector<T>(a.y, i) : output_of<T>(a, x, c));
	for (int j = 0; j < V; j++) {
		const float inv = a.stat[a.cp + c + j], xh = (to_float(x.v[j]) - a.stat[c + j]) * inv;
		const bool real = c + j < a.c;
		const float sum = real ? (float)(a.sums[c + j] / count) : 0.0f,
			    dot = real ? (float)(a.sums[a.c + c + j] / count) : 0.0f;

		d.v[j] = from_float<T>(a.gamma[c + j] * inv * (to_float(d.v[j]) - sum - xh * dot));
	}
	store_vector<T>(a.dx, i, d);
}

template <class T> static cudaError_t launch_forward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return ct__launch(forward_sums<T>, column_grid(a->rows, a->cp, ct_vector<T>::size), COLUMN_X * COLUMN_Y, 0, s,
			  *a);
}

template <class T> static cudaError_t launch_backward_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return ct__launch(backward_sums<T>, column_grid(a->rows, a->cp, ct_vector<T>::size), COLUMN_X * COLUMN_Y, 0, s,
			  *a);
}

template <class T> static cudaError_t launch_apply(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return ct__launch(apply<T>, blocks_for(a->rows * (a->cp / ct_vector<T>::size), BLOCK), BLOCK, 0, s, *a);
}

template <class T> static cudaError_t launch_backward_data(const struct ct__k_norm_args *a, cudaStream_t s)
{
	return ct__launch(backward_data<T>, blocks_for(a->rows * (a->cp / ct_vector<T>::size), BLOCK), BLOCK, 0, s, *a);
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

extern "C" cudaError_t ct__k_norm_sums(const struct ct__k_norm_args *a, cudaStream_t s)
{
	struct ct__k_norm_args forward = *a;
	cudaError_t e = dispatch_forward_sums(a, s);

	forward.dgamma = NULL;
	return e ? e : for_channels(add_blocks, &forward, s);
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

	return e ? e : for_channels(add_blocks, a, s);
}

extern "C" cudaError_t ct__k_norm_backward_data(const struct ct__k_norm_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_backward_data, a, s)
}
