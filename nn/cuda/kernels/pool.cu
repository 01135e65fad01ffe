/* Pooling over windows, one vector of channels per thread. Backward gathers: each element of dx adds the outputs whose
 * window it is in, in a fixed order, so no atomics are needed. For a max pool, the tap that was chosen is stored in a
 * byte; the first one of equal elements is chosen, and NaN is the largest. Averages do not count the padding. Every
 * window has at least one element of the image (nn/graph/op.c). */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

/* The position that the thread computes, in vectors of channels: of the output forward, of the input backward. */
struct place {
	int n, h, w, vector;
	bool valid;
};

static inline __device__ struct place place_of(const struct ct__k_pool_args &a, int h, int w, int vectors)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x, pixel = i / vectors;
	struct place p;

	p.valid = pixel < (size_t)a.n * h * w;
	p.vector = (int)(i % vectors);
	p.w = (int)(pixel % w);
	p.h = (int)(pixel / w % h);
	p.n = (int)(pixel / w / h);
	return p;
}

static inline __device__ bool tap_inside(const struct ct__k_pool_args &a, int p, int q, int r, int s, int *h, int *w)
{
	*h = p * a.stride_h - a.pad_h + r * a.dilation_h;
	*w = q * a.stride_w - a.pad_w + s * a.dilation_w;
	return *h >= 0 && *h < a.h && *w >= 0 && *w < a.w;
}

static inline __device__ int taps_inside(const struct ct__k_pool_args &a, int p, int q)
{
	int h, w, n = 0;

	for (int t = 0; t < a.r * a.s; t++)
		n += tap_inside(a, p, q, t / a.s, t % a.s, &h, &w);
	return n;
}

template <class T> static __global__ void max_forward(const struct ct__k_pool_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct place o = place_of(a, a.p, a.q, vectors);

	if (!o.valid)
		return;
	float best[V];
	int tap[V];
	bool first = true;
	for (int t = 0; t < a.r * a.s; t++) {
		int h, w;

		if (!tap_inside(a, o.h, o.w, t / a.s, t % a.s, &h, &w))
			continue;
		const ct_vector<T> x = load_vector<T>(a.x, (((size_t)o.n * a.h + h) * a.w + w) * vectors + o.vector);
		for (int j = 0; j < V; j++) {
			const float v = to_float(x.v[j]);

			if (first || v > best[j] || (is_nan(v) && !is_nan(best[j]))) {
				best[j] = v;
				tap[j] = t;
			}
		}
		first = false;
	}
	const size_t at = (((size_t)o.n * a.p + o.h) * a.q + o.w) * vectors + o.vector;
	ct_vector<T> y;
	for (int j = 0; j < V; j++) {
		y.v[j] = from_float<T>(best[j]);
		if (a.tap)
			a.tap[at * V + j] = (uint8_t)tap[j];
	}
	store_vector<T>(a.y, at, y);
}

template <class T> static __global__ void average_forward(const struct ct__k_pool_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct place o = place_of(a, a.p, a.q, vectors);

	if (!o.valid)
		return;
	float sum[V] = {};
	int count = 0;
	for (int t = 0; t < a.r * a.s; t++) {
		int h, w;

		if (!tap_inside(a, o.h, o.w, t / a.s, t % a.s, &h, &w))
			continue;
		const ct_vector<T> x = load_vector<T>(a.x, (((size_t)o.n * a.h + h) * a.w + w) * vectors + o.vector);
		for (int j = 0; j < V; j++)
			sum[j] += to_float(x.v[j]);
		count++;
	}
	ct_vector<T> y;
	for (int j = 0; j < V; j++)
		y.v[j] = from_float<T>(sum[j] / (float)count);
	store_vector<T>(a.y, (((size_t)o.n * a.p + o.h) * a.q + o.w) * vectors + o.vector, y);
}

/* The output position whose tap r reads input position h; -1: none. */
static inline __device__ int output_of(int h, int r, int stride, int pad, int dilation, int n_out)
{
	const int from = h + pad - r * dilation;

	return from >= 0 && from % stride == 0 && from / stride < n_out ? from / stride : -1;
}

template <class T> static __global__ void backward(const struct ct__k_pool_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct place i = place_of(a, a.h, a.w, vectors);

	if (!i.valid)
		return;
	float sum[V] = {};
	for (int t = 0; t < a.r * a.s; t++) {
		const int p = output_of(i.h, t / a.s, a.stride_h, a.pad_h, a.dilation_h, a.p),
			  q = output_of(i.w, t % a.s, a.stride_w, a.pad_w, a.dilation_w, a.q);

		if (p < 0 || q < 0)
			continue;
		const size_t at = (((size_t)i.n * a.p + p) * a.q + q) * vectors + i.vector;
		const ct_vector<T> dy = load_vector<T>(a.dy, at);
		const float part = a.average ? (float)taps_inside(a, p, q) : 1.0f;
		for (int j = 0; j < V; j++) {
			if (a.average || a.tap[at * V + j] == t)
				sum[j] += to_float(dy.v[j]) / part;
		}
	}
	ct_vector<T> dx;
	for (int j = 0; j < V; j++)
		dx.v[j] = from_float<T>(sum[j]);
	store_vector<T>(a.dx, (((size_t)i.n * a.h + i.h) * a.w + i.w) * vectors + i.vector, dx);
}

template <class T> static cudaError_t launch_forward(const struct ct__k_pool_args *a, cudaStream_t s)
{
	const unsigned grid = blocks_for((size_t)a->n * a->p * a->q * (a->cp / ct_vector<T>::size), BLOCK);

	return a->average ? ct__launch(average_forward<T>, grid, BLOCK, 0, s, *a)
			  : ct__launch(max_forward<T>, grid, BLOCK, 0, s, *a);
}

template <class T> static cudaError_t launch_backward(const struct ct__k_pool_args *a, cudaStream_t s)
{
	return ct__launch(backward<T>, blocks_for((size_t)a->n * a->h * a->w * (a->cp / ct_vector<T>::size), BLOCK),
			  BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_pool(const struct ct__k_pool_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_forward, a, s)
}

extern "C" cudaError_t ct__k_pool_backward(const struct ct__k_pool_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_backward, a, s)
}
