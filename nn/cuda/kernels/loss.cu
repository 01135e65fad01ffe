/* Loss heads: one warp per row, then one block adds the rows in order. The formulas are those of nn/host/loss.c. The
 * sums of a row are added in a tree over the warp, in a fixed order. A row whose loss is not finite counts as wrong.
 * The losses of rows are stored, because adding them with atomics would make the sum depend on the order in which
 * blocks run. The gradient is fp32 in every precision, and zero in padded classes and in rows after the valid ones. */
#include "nn/cuda/kernels/vector.cuh"

enum { WARP = 32, ROWS = 4, ADD_BLOCK = 256, HIT_1 = 1, HIT_5 = 2 };

/* Reductions over a warp; every lane gets the result. */
static inline __device__ float warp_max(float x)
{
	for (int d = WARP / 2; d > 0; d /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
	return x;
}

static inline __device__ float warp_sum(float x)
{
	for (int d = WARP / 2; d > 0; d /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, d);
	return x;
}

static inline __device__ double warp_sum(double x)
{
	for (int d = WARP / 2; d > 0; d /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, d);
	return x;
}

static inline __device__ int warp_sum(int x)
{
	for (int d = WARP / 2; d > 0; d /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, d);
	return x;
}

template <class T> static inline __device__ float at(const void *p, size_t i)
{
	return to_float(static_cast<const T *>(p)[i]);
}

static inline __device__ float class_weight(const struct ct__k_loss_args &a, int k)
{
	return a.class_weights ? a.class_weights[k] : 1.0f;
}

/* Softmax cross-entropy of one row; lane 0 stores the loss and the hits. */
template <class T> static inline __device__ void xent_row(const struct ct__k_loss_args &a, int row, int lane)
{
	const size_t z = (size_t)row * a.kp;
	const int label = a.labels[row], label_b = a.labels_b ? a.labels_b[row] : label;
	const float hit = 1.0f - a.smoothing, mix = a.labels_b ? a.mix[row] : 1.0f;
	const float weight_a = hit * mix * class_weight(a, label),
		    weight_b = hit * (1.0f - mix) * class_weight(a, label_b);
	const float each = a.smoothing / (float)a.k;
	const float own = at<T>(a.logits, z + label);
	float max = at<T>(a.logits, z), sum = 0;
	double total = 0, weights = 0; /* over the classes: logits times class weights, and class weights */
	int before = 0;

	for (int j = lane; j < a.k; j += WARP)
		max = fmaxf(max, at<T>(a.logits, z + j));
	max = warp_max(max);
	for (int j = lane; j < a.k; j += WARP) {
		const float v = at<T>(a.logits, z + j);

		sum += expf(v - max);
		total += (double)class_weight(a, j) * (double)v;
		weights += (double)class_weight(a, j);
		before += j < label ? v >= own : j > label && v > own;
	}
	sum = warp_sum(sum);
	total = warp_sum(total);
	weights = warp_sum(weights);
	before = warp_sum(before);
	const float mean = (float)(weights / a.k),
		    all = a.class_weights ? weight_a + weight_b + a.smoothing * mean : 1.0f;
	const double log_sum = (double)max + (double)logf(sum);
	double loss = (double)weight_a * (log_sum - (double)own);
	if (weight_b > 0)
		loss += (double)weight_b * (log_sum - (double)at<T>(a.logits, z + label_b));
	if (a.smoothing > 0)
		loss += (double)a.smoothing * ((double)mean * log_sum - total / a.k);
	if (lane == 0) {
		a.row_loss[row] = loss;
		a.row_hits[row] = !is_finite(loss) ? 0 : before < 1 ? HIT_1 | HIT_5 : before < 5 ? HIT_5 : 0;
	}
	for (int j = lane; a.dlogits && j < a.kp; j += WARP) {
		float d = 0;

		if (j < a.k)
			d = expf(at<T>(a.logits, z + j) - max) / sum * all - each * class_weight(a, j);
		if (j == label)
			d -= weight_a;
		if (j == label_b)
			d -= weight_b;
		a.dlogits[z + j] = d;
	}
}

template <class T> static inline __device__ void mse_row(const struct ct__k_loss_args &a, int row, int lane)
{
	const size_t z = (size_t)row * a.kp, t = (size_t)row * a.k;
	const float slope = 2.0f / (float)a.k;
	double sum = 0;

	for (int j = lane; j < a.kp; j += WARP) {
		const float diff = j < a.k ? at<T>(a.logits, z + j) - a.targets[t + j] : 0.0f;

		sum += (double)diff * (double)diff;
		if (a.dlogits)
			a.dlogits[z + j] = slope * diff;
	}
	sum = warp_sum(sum);
	if (lane == 0) {
		a.row_loss[row] = sum / a.k;
		a.row_hits[row] = 0;
	}
}

template <class T> static __global__ void rows(const struct ct__k_loss_args a)
{
	const int row = (int)(blockIdx.x * ROWS + threadIdx.x / WARP), lane = (int)(threadIdx.x % WARP);

	if (row >= a.n)
		return;
	if (row >= a.n_valid) {
		for (int j = lane; a.dlogits && j < a.kp; j += WARP)
			a.dlogits[(size_t)row * a.kp + j] = 0;
	} else if (a.mse) {
		mse_row<T>(a, row, lane);
	} else {
		xent_row<T>(a, row, lane);
	}
}

/* Each thread adds a range of consecutive rows; the ranges are added in order. */
static __global__ void add_rows(const struct ct__k_loss_args a)
{
	__shared__ double loss[ADD_BLOCK];
	__shared__ int top1[ADD_BLOCK], top5[ADD_BLOCK];
	const int t = (int)threadIdx.x, begin = (int)((int64_t)a.n_valid * t / ADD_BLOCK),
		  end = (int)((int64_t)a.n_valid * (t + 1) / ADD_BLOCK);
	double sum = 0;
	int n1 = 0, n5 = 0;

	for (int row = begin; row < end; row++) {
		sum += a.row_loss[row];
		n1 += a.row_hits[row] & HIT_1 ? 1 : 0;
		n5 += a.row_hits[row] & HIT_5 ? 1 : 0;
	}
	loss[t] = sum;
	top1[t] = n1;
	top5[t] = n5;
	__syncthreads();
	if (t > 0)
		return;
	for (int i = 1; i < ADD_BLOCK; i++) {
		sum += loss[i];
		n1 += top1[i];
		n5 += top5[i];
	}
	a.metrics->loss += sum;
	a.metrics->count += a.n_valid;
	a.metrics->top1 += n1;
	a.metrics->top5 += n5;
}

template <class T> static cudaError_t launch_rows(const struct ct__k_loss_args *a, cudaStream_t s)
{
	return ct__launch(rows<T>, blocks_for((size_t)a->n, ROWS), ROWS * WARP, 0, s, *a);
}

static cudaError_t for_rows(const struct ct__k_loss_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_rows, a, s)
}

extern "C" cudaError_t ct__k_loss(const struct ct__k_loss_args *a, cudaStream_t s)
{
	const cudaError_t e = for_rows(a, s);

	return e ? e : ct__launch(add_rows, 1, ADD_BLOCK, 0, s, *a);
}
