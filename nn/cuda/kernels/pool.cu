/* Pooling over windows, one vector of channels per thread. Backward gathers: each element of dx adds the outputs whose
 * window it is in, in a fixed order, so no atomics are needed. For a max pool, the tap that was chosen is stored in a
 * byte; the first one of equal elements is chosen, and NaN is the largest. Averages do not count the padding. Every
 * window has at least one element of the image (nn/graph/op.c). */
#include "nn/cuda/kernels/place.cuh"

/* The taps of a vector, as one integer, so that they are loaded and stored at once. */
template <class T> struct tap_vector {
	typedef uint64_t type;
};
template <> struct tap_vector<float> {
	typedef uint32_t type;
};

/* The position that the thread computes: of the output forward, of the input backward. */
struct position {
	int n, h, w, vector;
	bool valid;
};

static inline __device__ struct position position_of_thread(const struct ct__k_pool_args &a, int h, int w, int vectors)
{
	const struct place p = place_of_thread(a.n, h, (unsigned)w * vectors);
	const unsigned at = p.i / vectors;

	return {p.n, p.h, (int)at, (int)(p.i - at * vectors), p.valid};
}

/* The number of taps of output p that are inside the input, in one dimension. */
static inline __device__ int taps_inside(int p, int n_taps, int stride, int pad, int dilation, int n_in)
{
	int n = 0;

	for (int r = 0, h = p * stride - pad; r < n_taps; r++, h += dilation)
		n += h >= 0 && h < n_in;
	return n;
}

/* Calls add(x, t, exists) with the elements of each tap t that is inside the input. COLUMNS of them are loaded
 * together; those that are outside do not exist, and have the elements of the nearest one. */
enum { COLUMNS = 3 };
template <class T, class Add>
static inline __device__ void each_tap(const struct ct__k_pool_args &a, const struct position &o, int vectors,
				       const Add &add)
{
	for (int r = 0, h = o.h * a.stride_h - a.pad_h; r < a.r; r++, h += a.dilation_h) {
		const size_t row = ((size_t)o.n * a.h + h) * a.w;

		if (h < 0 || h >= a.h)
			continue;
		for (int s = 0, w = o.w * a.stride_w - a.pad_w; s < a.s; s += COLUMNS, w += COLUMNS * a.dilation_w) {
			size_t i[COLUMNS];

			ct_vector<T> x[COLUMNS];

#pragma unroll
			for (int m = 0; m < COLUMNS; m++) {
				const int at = w + m * a.dilation_w;

				i[m] = (row + (at < 0 ? 0 : at < a.w ? at : a.w - 1)) * vectors + o.vector;
			}
			load_vectors(x, a.x, i);
#pragma unroll
			for (int m = 0; m < COLUMNS; m++) {
				const int at = w + m * a.dilation_w;

				add(x[m], r * a.s + s + m, s + m < a.s && at >= 0 && at < a.w);
			}
		}
	}
}

template <class T> static __global__ void max_forward(const struct ct__k_pool_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct position o = position_of_thread(a, a.p, a.q, vectors);

	if (!o.valid)
		return;
	float best[V];
	int tap[V];
	bool first = true;
	each_tap<T>(a, o, vectors, [&](const ct_vector<T> &x, int t, bool exists) {
		for (int j = 0; j < V; j++) {
			const float v = to_float(x.v[j]);

			if (exists && (first || v > best[j] || (is_nan(v) && !is_nan(best[j])))) {
				best[j] = v;
				tap[j] = t;
			}
		}
		first = first && !exists;
	});
	const size_t at = (((size_t)o.n * a.p + o.h) * a.q + o.w) * vectors + o.vector;
	ct_vector<T> y;
	typename tap_vector<T>::type taps = 0;
	for (int j = 0; j < V; j++) {
		y.v[j] = from_float<T>(best[j]);
		taps |= (typename tap_vector<T>::type)tap[j] << 8 * j;
	}
	store_vector<T>(a.y, at, y);
	if (a.tap)
		reinterpret_cast<typename tap_vector<T>::type *>(a.tap)[at] = taps;
}

template <class T> static __global__ void average_forward(const struct ct__k_pool_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct position o = position_of_thread(a, a.p, a.q, vectors);

	if (!o.valid)
		return;
	float sum[V] = {};
	int count = 0;
	each_tap<T>(a, o, vectors, [&](const ct_vector<T> &x, int, bool exists) {
		for (int j = 0; j < V; j++)
			sum[j] += exists ? to_float(x.v[j]) : 0.0f; /* adding zeros changes no sum */
		count += exists;
	});
	ct_vector<T> y;
	for (int j = 0; j < V; j++)
		y.v[j] = from_float<T>(sum[j] / (float)count);
	store_vector<T>(a.y, (((size_t)o.n * a.p + o.h) * a.q + o.w) * vectors + o.vector, y);
}

/* The taps of outputs that read an input position, in one dimension: tap first of output `out`, and then each
 * `step`-th tap, whose output is `back` before. */
struct dimension {
	int step, back;
};
struct tap_list {
	int first, out;
};

struct pool_backward_args {
	struct ct__k_pool_args a;
	struct dimension h, w;
};

static inline __device__ struct tap_list taps_of(int h, int n_taps, int stride, int pad, int dilation, int n_out)
{
	struct tap_list t = {0, (int)((unsigned)(h + pad) / stride)};
	int rest = h + pad - t.out * stride;

	while (t.first < n_taps && (rest != 0 || t.out >= n_out)) {
		t.first++;
		for (rest -= dilation; rest < 0; rest += stride)
			t.out--;
	}
	return t;
}

template <class T> static __global__ void max_backward(const struct pool_backward_args b)
{
	constexpr int V = ct_vector<T>::size;

	const struct ct__k_pool_args &a = b.a;
	const int vectors = a.cp / V;
	const struct position i = position_of_thread(a, a.h, a.w, vectors);

	if (!i.valid)
		return;
	const struct tap_list rows = taps_of(i.h, a.r, a.stride_h, a.pad_h, a.dilation_h, a.p),
			      columns = taps_of(i.w, a.s, a.stride_w, a.pad_w, a.dilation_w, a.q);
	typedef typename tap_vector<T>::type tap_type;
	const tap_type *taps = reinterpret_cast<const tap_type *>(a.tap);
	float sum[V] = {};
	for (int r = rows.first, p = rows.out; r < a.r && p >= 0; r += b.h.step, p -= b.h.back) {
		/* Two columns at a time, whose loads are in flight together. */
		for (int s = columns.first, q = columns.out; s < a.s && q >= 0; s += 2 * b.w.step, q -= 2 * b.w.back) {
			const bool two = s + b.w.step < a.s && q >= b.w.back;
			const int tap = r * a.s + s, tap_next = two ? tap + b.w.step : -1;
			const size_t at = (((size_t)i.n * a.p + p) * a.q + q) * vectors + i.vector,
				     next = two ? at - (size_t)b.w.back * vectors : at;

			const ct_vector<T> dy = load_vector<T>(a.dy, at), dy_next = load_vector<T>(a.dy, next);
			const tap_type t = taps[at], t_next = taps[next];

			for (int j = 0; j < V; j++) { /* adding zeros changes no sum */
				sum[j] += (uint8_t)(t >> 8 * j) == tap ? to_float(dy.v[j]) : 0.0f;
				sum[j] += (uint8_t)(t_next >> 8 * j) == tap_next ? to_float(dy_next.v[j]) : 0.0f;
			}
		}
	}
	ct_vector<T> dx;
	for (int j = 0; j < V; j++)
		dx.v[j] = from_float<T>(sum[j]);
	store_vector<T>(a.dx, (((size_t)i.n * a.h + i.h) * a.w + i.w) * vectors + i.vector, dx);
}

template <class T> static __global__ void average_backward(const struct pool_backward_args b)
{
	constexpr int V = ct_vector<T>::size;

	const struct ct__k_pool_args &a = b.a;
	const int vectors = a.cp / V;
	const struct position i = position_of_thread(a, a.h, a.w, vectors);

	if (!i.valid)
		return;
	const struct tap_list rows = taps_of(i.h, a.r, a.stride_h, a.pad_h, a.dilation_h, a.p),
			      columns = taps_of(i.w, a.s, a.stride_w, a.pad_w, a.dilation_w, a.q);
	float sum[V] = {};
	for (int r = rows.first, p = rows.out; r < a.r && p >= 0; r += b.h.step, p -= b.h.back) {
		const int n_rows = taps_inside(p, a.r, a.stride_h, a.pad_h, a.dilation_h, a.h);

		for (int s = columns.first, q = columns.out; s < a.s && q >= 0; s += b.w.step, q -= b.w.back) {
			const float part =
				(float)(n_rows * taps_inside(q, a.s, a.stride_w, a.pad_w, a.dilation_w, a.w));

			const ct_vector<T> dy =
				load_vector<T>(a.dy, (((size_t)i.n * a.p + p) * a.q + q) * vectors + i.vector);

			for (int j = 0; j < V; j++)
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
	const size_t width = (size_t)a->q * (a->cp / ct_vector<T>::size);

	return ct__launch(a->average ? average_forward<T> : max_forward<T>, place_grid(a->n, a->p, width),
			  place_block(width), 0, s, *a);
}

static struct dimension dimension_of(int stride, int dilation)
{
	int divisor = stride, rest = dilation;

	while (rest != 0) {
		const int next = divisor % rest;

		divisor = rest;
		rest = next;
	}
	return {stride / divisor, dilation / divisor};
}

template <class T> static cudaError_t launch_backward(const struct ct__k_pool_args *a, cudaStream_t s)
{
	const struct pool_backward_args b = {*a, dimension_of(a->stride_h, a->dilation_h),
					     dimension_of(a->stride_w, a->dilation_w)};
	const size_t width = (size_t)a->w * (a->cp / ct_vector<T>::size);

	return ct__launch(a->average ? average_backward<T> : max_backward<T>, place_grid(a->n, a->h, width),
			  place_block(width), 0, s, b);
}

extern "C" cudaError_t ct__k_pool(const struct ct__k_pool_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_forward, a, s)
}

extern "C" cudaError_t ct__k_pool_backward(const struct ct__k_pool_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_backward, a, s)
}
