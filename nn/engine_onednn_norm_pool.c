#include "nn/engine_onednn_norm_pool.h"

#include <math.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "nn/dnnl_shim.h"

#define LANES CT_NORM_POOL_BLOCK
#define CUT 255 /* no tap: the maximum was not above zero */
#define CHUNK \
	256 /* vectors whose statistics are taken at once: they stay in the first-level cache for the second look */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint8_t bvec __attribute__((vector_size(LANES)));

/* Of a block of channels: y = (x - mean) * slope + shift. Backward: dx = slope * dy + base - (x - mean) * tilt. */
struct lanes {
	vec mean, slope, shift, base, tilt;
};

static int n_blocks(const struct ct_norm_pool_shape *s)
{
	return (s->channels + LANES - 1) / LANES;
}

size_t ct_norm_pool_n_planes(const struct ct_norm_pool_shape *s)
{
	return (size_t)s->n * (size_t)n_blocks(s);
}

size_t ct_norm_pool_out_elems(const struct ct_norm_pool_shape *s)
{
	return ct_norm_pool_n_planes(s) * (size_t)s->out.h * (size_t)s->out.w * LANES;
}

static size_t in_plane(const struct ct_norm_pool *p)
{
	return (size_t)p->shape.in.h * (size_t)p->shape.in.w;
}

static size_t out_plane(const struct ct_norm_pool *p)
{
	return (size_t)p->shape.out.h * (size_t)p->shape.out.w;
}

static double values_per_channel(const struct ct_norm_pool *p)
{
	return (double)p->shape.n * (double)in_plane(p);
}

/* Buffers of the arena start on 64 bytes and planes are whole vectors. */
INLINE vec *vectors(const float *x)
{
	return (vec *)(uintptr_t)x;
}

INLINE vec choose(ivec mask, vec yes, vec no)
{
	return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* gcc 12 converts lane by lane when left to itself. */
#ifdef __AVX512F__
INLINE ivec widen(bvec x)
{
	return (ivec)_mm512_cvtepu8_epi32((__m128i)x);
}

INLINE bvec narrow(ivec x)
{
	return (bvec)_mm512_cvtepi32_epi8((__m512i)x);
}
#else
INLINE ivec widen(bvec x)
{
	return __builtin_convertvector(x, ivec);
}

INLINE bvec narrow(ivec x)
{
	return __builtin_convertvector(x, bvec);
}
#endif

INLINE vec every(float x)
{
	return (vec){0} + x;
}

static void add_lanes(double *sum, vec x)
{
	for (int l = 0; l < LANES; l++)
		sum[l] += (double)x[l];
}

/* a += sum of x, b += sum of x*x, the squares as deviations from the chunk's mean: single precision is enough for those. */
static void chunk_statistics(const vec *x, size_t n, struct ct_norm_pool_partial *out)
{
	vec s[4] = {{0}}, q[4] = {{0}};
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		for (int k = 0; k < 4; k++)
			s[k] += x[i + (size_t)k];
	}
	for (; i < n; i++)
		s[0] += x[i];
	vec sum = (s[0] + s[1]) + (s[2] + s[3]), mean = sum / (float)n;
	for (i = 0; i + 4 <= n; i += 4) {
		for (int k = 0; k < 4; k++) {
			vec d = x[i + (size_t)k] - mean;
			q[k] += d * d;
		}
	}
	for (; i < n; i++)
		q[0] += (x[i] - mean) * (x[i] - mean);
	vec squares = (q[0] + q[1]) + (q[2] + q[3]);
	for (int l = 0; l < LANES; l++) {
		/* sum (x-m)^2 = sum x^2 - 2m sum x + n m^2, whatever m was rounded to */
		double m = (double)mean[l], total = (double)sum[l];
		out->a[l] += total;
		out->b[l] += (double)squares[l] + 2 * m * total - (double)n * m * m;
	}
}

static void plane_statistics(const struct ct_norm_pool *p, int plane)
{
	const size_t n = in_plane(p);
	const vec *x = vectors(p->x) + (size_t)plane * n;
	struct ct_norm_pool_partial *out = &p->partials[plane];

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < n; i += CHUNK)
		chunk_statistics(x + i, n - i < CHUNK ? n - i : CHUNK, out);
}

static void sum_partials(const struct ct_norm_pool *p, int channel, double *a, double *b)
{
	const int blocks = n_blocks(&p->shape), lane = channel % LANES;

	*a = *b = 0;
	for (int i = 0; i < p->shape.n; i++) {
		const struct ct_norm_pool_partial *part = &p->partials[i * blocks + channel / LANES];
		*a += part->a[lane];
		*b += part->b[lane];
	}
}

/* A block of a per-channel array, zeros past the last channel. */
static vec load_lanes(const struct ct_norm_pool *p, const float *x, int block)
{
	const int left = p->shape.channels - block * LANES;
	vec v = {0};

	memcpy(&v, x + block * LANES, (size_t)(left < LANES ? left : LANES) * sizeof(float));
	return v;
}

static vec inverse_deviation(const struct ct_norm_pool *p, int block)
{
	vec v = load_lanes(p, p->variance, block) + p->shape.eps;

	for (int l = 0; l < LANES; l++)
		v[l] = 1.0f / sqrtf(v[l]);
	return v;
}

static struct lanes forward_lanes(const struct ct_norm_pool *p, int block)
{
	return (struct lanes){.mean = load_lanes(p, p->mean, block),
			      .slope = load_lanes(p, p->gamma, block) * inverse_deviation(p, block),
			      .shift = load_lanes(p, p->beta, block)};
}

/* The rows or columns of a window that lie inside the image. */
INLINE int first_tap(int at, int stride, int pad)
{
	return at * stride < pad ? pad - at * stride : 0;
}

INLINE int end_tap(int at, int stride, int pad, int taps, int size)
{
	int left = size - (at * stride - pad);

	return left < taps ? left : taps;
}

struct window {
	int r0, r1, s0, s1; /* taps inside the image */
	int columns;        /* taps of a whole row */
	ptrdiff_t pitch;    /* vectors from row to row of the image */
};

/* The maximum of the window with this corner; of equal values the first, a NaN counts as the largest. */
INLINE void pool_window(const vec *x, ptrdiff_t corner, struct window w, const struct lanes *k, vec *y, vec *picked,
			bvec *taps)
{
	vec best = every(-INFINITY), from = every(0);
	ivec at = {0};

	for (int r = w.r0; r < w.r1; r++) {
		for (int s = w.s0; s < w.s1; s++) {
			vec v = x[corner + r * w.pitch + s];
			vec z = (v - k->mean) * k->slope + k->shift;
			ivec larger = ~(z <= best);
			best = choose(larger, z, best);
			from = choose(larger, v, from);
			at = (larger & (r * w.columns + s)) | (~larger & at);
		}
	}
	ivec cut = best <= every(0);
	*y = choose(cut, every(0), best);
	*picked = from;
	*taps = narrow((cut & CUT) | (~cut & at));
}

INLINE struct window window_at(const struct ct_norm_pool *p, int oh, int ow)
{
	const struct ct_window *w = &p->shape.win;

	return (struct window){.r0 = first_tap(oh, w->stride_h, w->pad_h),
			       .r1 = end_tap(oh, w->stride_h, w->pad_h, w->r, p->shape.in.h),
			       .s0 = first_tap(ow, w->stride_w, w->pad_w),
			       .s1 = end_tap(ow, w->stride_w, w->pad_w, w->s, p->shape.in.w),
			       .columns = w->s,
			       .pitch = p->shape.in.w};
}

INLINE bool two_by_two(const struct ct_window *w)
{
	return w->r == 2 && w->s == 2 && w->stride_h == 2 && w->stride_w == 2 && w->pad_h == 0 && w->pad_w == 0;
}

/* tiles: two by two, a constant for the compiler. */
INLINE void pool_plane(const struct ct_norm_pool *p, const struct lanes *lanes, const vec *x, size_t out, bool tiles)
{
	const struct lanes k = *lanes;
	const struct ct_window w = p->shape.win;
	const int width = p->shape.in.w, out_h = p->shape.out.h, out_w = p->shape.out.w;
	vec *y = vectors(p->y) + out, *picked = vectors(p->picked) + out;
	bvec *taps = (bvec *)p->taps + out;

	for (int oh = 0; oh < out_h; oh++) {
		ptrdiff_t at = (ptrdiff_t)(oh * w.stride_h - w.pad_h) * width - w.pad_w;
		for (int ow = 0; ow < out_w; ow++, at += w.stride_w) {
			if (tiles)
				pool_window(x, at, (struct window){0, 2, 0, 2, 2, width}, &k, y++, picked++, taps++);
			else
				pool_window(x, at, window_at(p, oh, ow), &k, y++, picked++, taps++);
		}
	}
}

static void forward_plane(const struct ct_norm_pool *p, int plane)
{
	const struct lanes k = forward_lanes(p, plane % n_blocks(&p->shape));
	const vec *x = vectors(p->x) + (size_t)plane * in_plane(p);
	const size_t out = (size_t)plane * out_plane(p);

	if (two_by_two(&p->shape.win))
		pool_plane(p, &k, x, out, true);
	else
		pool_plane(p, &k, x, out, false);
}

/* From the last plane to the first: the convolution before wrote the last planes last, so they are in the cache. */
static void statistics_range(void *arg, int begin, int end)
{
	for (int i = end - 1; i >= begin; i--)
		plane_statistics(arg, i);
}

static void forward_range(void *arg, int begin, int end)
{
	for (int i = begin; i < end; i++)
		forward_plane(arg, i);
}

void ct_norm_pool_forward(struct ct_norm_pool *p)
{
	const int planes = (int)ct_norm_pool_n_planes(&p->shape);
	const double count = values_per_channel(p);

	ct_dnnl_parallel(planes, statistics_range, p);
	for (int c = 0; c < p->shape.channels; c++) {
		double sum, squares;
		sum_partials(p, c, &sum, &squares);
		double mean = sum / count, variance = squares / count - mean * mean;
		p->mean[c] = (float)mean;
		p->variance[c] = variance > 0 || isnan(variance) ? (float)variance : 0;
	}
	ct_dnnl_parallel(planes, forward_range, p);
}

/* a += sum of dy, b += sum of dy * (x - mean), over what the ReLU let through. */
static void plane_gradients(const struct ct_norm_pool *p, int plane)
{
	const struct lanes k = forward_lanes(p, plane % n_blocks(&p->shape));
	const size_t n = out_plane(p), start = (size_t)plane * n;
	const vec *dy = vectors(p->dy) + start, *picked = vectors(p->picked) + start;
	const bvec *taps = (const bvec *)p->taps + start;
	struct ct_norm_pool_partial *out = &p->partials[plane];

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < n; i += CHUNK) {
		vec sum = {0}, dot = {0};
		for (size_t j = i; j < n && j < i + CHUNK; j++) {
			ivec cut = widen(taps[j]) == CUT;
			vec d = choose(cut, every(0), dy[j]);
			sum += d;
			dot += d * (picked[j] - k.mean);
		}
		add_lanes(out->a, sum);
		add_lanes(out->b, dot);
	}
}

static struct lanes backward_lanes(const struct ct_norm_pool *p, int block)
{
	struct lanes k = forward_lanes(p, block);
	const float each = 1.0f / (float)values_per_channel(p);

	k.base = -k.slope * load_lanes(p, p->dbeta, block) * each;
	k.tilt = k.slope * inverse_deviation(p, block) * load_lanes(p, p->dgamma, block) * each;
	return k;
}

INLINE vec chosen(vec dy, bvec taps, int tap, const struct lanes *k)
{
	return choose(widen(taps) == tap, dy * k->slope, every(0));
}

/* Windows that tile the image: every element has one, but for a rest at the right and at the bottom. */
static void backward_tiles(const struct ct_norm_pool *p, const struct lanes *k, const vec *x, const vec *dy,
			   const bvec *taps, vec *dx)
{
	const int w = p->shape.in.w, ow = p->shape.out.w;

	for (int h = 0; h < p->shape.in.h; h++) {
		const vec *row = x + (size_t)h * (size_t)w;
		vec *to = dx + (size_t)h * (size_t)w;
		int i = 0;
		if (h / 2 < p->shape.out.h) {
			for (; i < ow; i++) {
				size_t o = (size_t)(h / 2) * (size_t)ow + (size_t)i;
				for (int s = 0; s < 2; s++)
					to[2 * i + s] = k->base - (row[2 * i + s] - k->mean) * k->tilt +
							chosen(dy[o], taps[o], 2 * (h % 2) + s, k);
			}
		}
		for (i *= 2; i < w; i++)
			to[i] = k->base - (row[i] - k->mean) * k->tilt;
	}
}

static void backward_windows(const struct ct_norm_pool *p, const struct lanes *k, const vec *x, const vec *dy,
			     const bvec *taps, vec *dx)
{
	const struct ct_window *win = &p->shape.win;
	size_t o = 0;

	for (size_t i = 0; i < in_plane(p); i++)
		dx[i] = k->base - (x[i] - k->mean) * k->tilt;
	for (int oh = 0; oh < p->shape.out.h; oh++) {
		for (int ow = 0; ow < p->shape.out.w; ow++, o++) {
			const struct window w = window_at(p, oh, ow);
			ptrdiff_t at = (ptrdiff_t)(oh * win->stride_h - win->pad_h) * w.pitch + ow * win->stride_w -
				       win->pad_w;
			for (int r = w.r0; r < w.r1; r++) {
				for (int s = w.s0; s < w.s1; s++)
					dx[at + r * w.pitch + s] += chosen(dy[o], taps[o], r * w.columns + s, k);
			}
		}
	}
}

static void backward_plane(const struct ct_norm_pool *p, int plane)
{
	const struct lanes k = backward_lanes(p, plane % n_blocks(&p->shape));
	const size_t in = (size_t)plane * in_plane(p), out = (size_t)plane * out_plane(p);
	const vec *x = vectors(p->x) + in, *dy = vectors(p->dy) + out;
	const bvec *taps = (const bvec *)p->taps + out;

	if (two_by_two(&p->shape.win))
		backward_tiles(p, &k, x, dy, taps, vectors(p->dx) + in);
	else
		backward_windows(p, &k, x, dy, taps, vectors(p->dx) + in);
}

static void gradients_range(void *arg, int begin, int end)
{
	for (int i = begin; i < end; i++)
		plane_gradients(arg, i);
}

/* The convolution before starts with the first planes. */
static void backward_range(void *arg, int begin, int end)
{
	for (int i = end - 1; i >= begin; i--)
		backward_plane(arg, i);
}

void ct_norm_pool_backward(struct ct_norm_pool *p)
{
	const int planes = (int)ct_norm_pool_n_planes(&p->shape);

	ct_dnnl_parallel(planes, gradients_range, p);
	for (int c = 0; c < p->shape.channels; c++) {
		double sum, dot;
		sum_partials(p, c, &sum, &dot);
		p->dbeta[c] = (float)sum;
		p->dgamma[c] = (float)(dot / sqrt((double)p->variance[c] + (double)p->shape.eps));
	}
	ct_dnnl_parallel(planes, backward_range, p);
}
