/* The forward pass computes statistics and then, for each window, normalizes the elements and keeps the largest. An
 * element in several windows is normalized several times instead of being stored. For the backward pass, the element of
 * x at each maximum and its position are stored; with CUT instead of the position, the ReLU lets no gradient through.
 * Only these elements have a gradient, so the sums are computed from the outputs alone. The second pass visits each
 * element of x and gathers from the windows that contain it, in a fixed order. It reads an element before it writes
 * there, so dx may be x. The windows of common models are compile-time constants, so that their loops can be
 * unrolled. */
#include "nn/onednn/kernels/norm_pool.h"

#include <math.h>

#include "base/parallel.h"
#include "nn/onednn/kernels/norm_sums.h"
#include "nn/onednn/kernels/select.h"

#define CUT 255 /* stored instead of a tap if the maximum was not above zero */

/* The coefficients of a block of channels: y = (x - mean) * slope + shift. Backward: dx = slope * dy + base - (x -
 * mean) * tilt. */
struct lanes {
	ct_vec mean, slope, shift, base, tilt;
};

static int n_blocks(const struct ct_norm_pool_shape *s)
{
	return (s->channels + CT_LANES - 1) / CT_LANES;
}

static size_t n_planes(const struct ct_norm_pool_shape *s)
{
	return (size_t)s->n * (size_t)n_blocks(s);
}

/* In vectors */
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

static void sum_partials(const struct ct_norm_pool *p, int channel, double *a, double *b)
{
	const int blocks = n_blocks(&p->shape), lane = channel % CT_LANES;

	*a = *b = 0;
	for (int i = 0; i < p->shape.n; i++) {
		const struct ct_norm_partial *part = &p->partials[i * blocks + channel / CT_LANES];

		*a += part->a[lane];
		*b += part->b[lane];
	}
}

static ct_vec load_lanes(const struct ct_norm_pool *p, const float *x, int block)
{
	return ct_vec_of_block(x, p->shape.channels, block);
}

static ct_vec inverse_deviation(const struct ct_norm_pool *p, int block)
{
	return ct_norm_inverse_deviation(p->variance, p->shape.channels, block, p->shape.eps);
}

static struct lanes forward_lanes(const struct ct_norm_pool *p, int block)
{
	return (struct lanes){.mean = load_lanes(p, p->mean, block),
			      .slope = load_lanes(p, p->gamma, block) * inverse_deviation(p, block),
			      .shift = load_lanes(p, p->beta, block)};
}

/* Returns the rows or columns of a pooling kernel that are inside the image. */
CT_INLINE int first_tap(int at, int stride, int pad)
{
	return at * stride < pad ? pad - at * stride : 0;
}

CT_INLINE int end_tap(int at, int stride, int pad, int taps, int size)
{
	int left = size - (at * stride - pad);

	return left < taps ? left : taps;
}

struct window {
	int r0, r1, s0, s1; /* taps inside the image */
	int columns;        /* taps in a complete row */
	ptrdiff_t pitch;    /* distance between rows of the image in vectors */
};

/* Computes the maximum of the pooling kernel at this corner and stores it at position `out`. Among equal values, the
 * first one is chosen. NaN counts as the largest value. */
CT_INLINE void pool_window(const struct ct_norm_pool *p, ptrdiff_t corner, struct window w, const struct lanes *k,
			   size_t out, bool bf16)
{
	ct_vec best = ct_vec_every(-INFINITY), from = ct_vec_every(0);
	ct_ivec at = {0};

	for (int r = w.r0; r < w.r1; r++) {
		for (int s = w.s0; s < w.s1; s++) {
			ct_vec v = ct_vec_load(p->x, (size_t)(corner + r * w.pitch + s), bf16);
			ct_vec z = (v - k->mean) * k->slope + k->shift;
			ct_ivec larger = ~(z <= best);

			best = ct_vec_choose(larger, z, best);
			from = ct_vec_choose(larger, v, from);
			at = (larger & (r * w.columns + s)) | (~larger & at);
		}
	}
	ct_ivec cut = best <= ct_vec_every(0);
	ct_vec_store(p->y, out, ct_vec_choose(cut, ct_vec_every(0), best), bf16);
	ct_vec_store(p->picked, out, from, bf16);
	((ct_bvec *)p->taps)[out] = ct_vec_narrow((cut & CUT) | (~cut & at));
}

CT_INLINE struct window window_at(const struct ct_norm_pool *p, int oh, int ow)
{
	const struct ct_window *w = &p->shape.win;

	return (struct window){.r0 = first_tap(oh, w->stride_h, w->pad_h),
			       .r1 = end_tap(oh, w->stride_h, w->pad_h, w->r, p->shape.in.h),
			       .s0 = first_tap(ow, w->stride_w, w->pad_w),
			       .s1 = end_tap(ow, w->stride_w, w->pad_w, w->s, p->shape.in.w),
			       .columns = w->s,
			       .pitch = p->shape.in.w};
}

/* win is the window of the shape. It is a compile-time constant where this makes the loop faster. */
CT_INLINE void pool_plane(const struct ct_norm_pool *p, const struct lanes *lanes, size_t in, size_t out,
			  struct ct_window win, bool bf16)
{
	const struct lanes k = *lanes;
	const struct ct_shape s = p->shape.in;
	const struct window whole = {0, win.r, 0, win.s, win.s, s.w};

	for (int oh = 0; oh < p->shape.out.h; oh++) {
		const int h = oh * win.stride_h - win.pad_h;
		const ptrdiff_t row = (ptrdiff_t)in + (ptrdiff_t)h * s.w;

		for (int ow = 0; ow < p->shape.out.w; ow++, out++) {
			const int w = ow * win.stride_w - win.pad_w;

			if (h >= 0 && w >= 0 && h + win.r <= s.h && w + win.s <= s.w)
				pool_window(p, row + w, whole, &k, out, bf16);
			else
				pool_window(p, row + w, window_at(p, oh, ow), &k, out, bf16);
		}
	}
}

/* Special cases for the pooling layers of LeNet and of ResNets. */
static const struct ct_window two = {2, 2, 2, 2, 0, 0, 1, 1}, three = {3, 3, 2, 2, 1, 1, 1, 1};

static bool has_window(const struct ct_norm_pool *p, const struct ct_window *win)
{
	return !memcmp(&p->shape.win, win, sizeof(*win));
}

CT_INLINE void forward_plane(const struct ct_norm_pool *p, int plane, bool bf16)
{
	const struct lanes k = forward_lanes(p, plane % n_blocks(&p->shape));
	const size_t in = (size_t)plane * in_plane(p), out = (size_t)plane * out_plane(p);

	if (has_window(p, &two))
		pool_plane(p, &k, in, out, two, bf16);
	else if (has_window(p, &three))
		pool_plane(p, &k, in, out, three, bf16);
	else
		pool_plane(p, &k, in, out, p->shape.win, bf16);
}

/* Run from the last plane to the first: the preceding convolution wrote the last planes last, so they are still in the
 * cache. */
static void statistics_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm_pool *p = arg;
	const size_t n = in_plane(p);

	for (int i = (int)end - 1; i >= (int)begin; i--) {
		if (p->shape.bf16)
			ct_norm_plane_sums(p->x, (size_t)i * n, n, true, &p->partials[i]);
		else
			ct_norm_plane_sums(p->x, (size_t)i * n, n, false, &p->partials[i]);
	}
}

static void forward_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm_pool *p = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		if (p->shape.bf16)
			forward_plane(p, i, true);
		else
			forward_plane(p, i, false);
	}
}

static void norm_pool_forward(struct ct_norm_pool *p)
{
	const int planes = (int)n_planes(&p->shape);
	const double count = values_per_channel(p);

	ct_parallel_for(p->threads, planes, 1, statistics_range, p);
	for (int c = 0; c < p->shape.channels; c++) {
		double sum, squares;

		sum_partials(p, c, &sum, &squares);
		double mean = sum / count, variance = squares / count - mean * mean;
		p->mean[c] = (float)mean;
		p->variance[c] = variance > 0 || isnan(variance) ? (float)variance : 0;
	}
	ct_parallel_for(p->threads, planes, 1, forward_range, p);
}

/* a += sum of dy, b += sum of dy * (x - mean), over the elements that the ReLU has kept. */
CT_INLINE void gradient_loop(const struct ct_norm_pool *p, int plane, bool bf16)
{
	const ct_vec mean = load_lanes(p, p->mean, plane % n_blocks(&p->shape));
	const size_t n = out_plane(p), start = (size_t)plane * n;
	const ct_bvec *taps = (const ct_bvec *)p->taps;
	struct ct_norm_partial *out = &p->partials[plane];

	memset(out, 0, sizeof(*out));
	for (size_t i = start; i < start + n; i += CT_NORM_CHUNK) {
		ct_vec sum = {0}, dot = {0};

		for (size_t j = i; j < start + n && j < i + CT_NORM_CHUNK; j++) {
			ct_ivec cut = ct_vec_widen(taps[j]) == CUT;
			ct_vec d = ct_vec_choose(cut, ct_vec_every(0), ct_vec_load(p->dy, j, bf16));

			sum += d;
			dot += d * (ct_vec_load(p->picked, j, bf16) - mean);
		}
		ct_vec_add_to(out->a, sum);
		ct_vec_add_to(out->b, dot);
	}
}

static void gradients_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm_pool *p = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		if (p->shape.bf16)
			gradient_loop(p, i, true);
		else
			gradient_loop(p, i, false);
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

/* Finds the pooling kernels that contain element `at` of a row or column: first to end - 1. */
struct span {
	int first, end;
};

CT_INLINE struct span windows_of(int at, int stride, int pad, int taps, int n)
{
	const int before = at + pad - taps; /* relative to the kernel that ends right before */
	const int first = before < 0 ? 0 : before / stride + 1, last = (at + pad) / stride;

	return (struct span){first, last < n ? last + 1 : n};
}

/* Returns the gradient that an element gets from the pooling kernels that contain it. o is the first vector of the
 * plane's output. */
CT_INLINE ct_vec gathered(const struct ct_norm_pool *p, struct ct_window win, size_t o, int h, int w, struct span rows,
			  struct span columns, bool bf16)
{
	const ct_bvec *taps = (const ct_bvec *)p->taps;
	ct_vec sum = {0};

	for (int oh = rows.first; oh < rows.end; oh++) {
		for (int ow = columns.first; ow < columns.end; ow++) {
			const size_t at = o + (size_t)oh * (size_t)p->shape.out.w + (size_t)ow;
			const int tap = (h + win.pad_h - oh * win.stride_h) * win.s + w + win.pad_w - ow * win.stride_w;

			sum += ct_vec_choose(ct_vec_widen(taps[at]) == tap, ct_vec_load(p->dy, at, bf16),
					     ct_vec_every(0));
		}
	}
	return sum;
}

CT_INLINE ct_vec without_window(const struct ct_norm_pool *p, const struct lanes *k, size_t i, bool bf16)
{
	return k->base - (ct_vec_load(p->x, i, bf16) - k->mean) * k->tilt;
}

/* win is the window of the shape. It is a compile-time constant where this makes the loop faster. */
CT_INLINE void backward_loop(const struct ct_norm_pool *p, int plane, struct ct_window win, bool bf16)
{
	const struct lanes k = backward_lanes(p, plane % n_blocks(&p->shape));
	const size_t o = (size_t)plane * out_plane(p);
	const int out_h = p->shape.out.h, out_w = p->shape.out.w;
	size_t i = (size_t)plane * in_plane(p);

	for (int h = 0; h < p->shape.in.h; h++) {
		const struct span rows = windows_of(h, win.stride_h, win.pad_h, win.r, out_h);

		for (int c = 0; c < p->shape.in.w; c++, i++) {
			const struct span columns = windows_of(c, win.stride_w, win.pad_w, win.s, out_w);
			const ct_vec d = gathered(p, win, o, h, c, rows, columns, bf16);

			ct_vec_store(p->dx, i, d * k.slope + without_window(p, &k, i, bf16), bf16);
		}
	}
}

/* With 2x2 kernels and stride 2, every element is in exactly one kernel, except for a remainder at the right and at the
 * bottom. */
CT_INLINE void backward_tiles(const struct ct_norm_pool *p, int plane, bool bf16)
{
	const struct lanes k = backward_lanes(p, plane % n_blocks(&p->shape));
	const size_t o = (size_t)plane * out_plane(p), out_w = (size_t)p->shape.out.w, w = (size_t)p->shape.in.w;
	const ct_bvec *taps = (const ct_bvec *)p->taps;

	for (int h = 0; h < p->shape.in.h; h++) {
		const size_t i = (size_t)plane * in_plane(p) + (size_t)h * w, at = o + (size_t)(h / 2) * out_w;
		const size_t tiles = h / 2 < p->shape.out.h ? out_w : 0;

		for (size_t c = 0; c < tiles; c++) {
			const ct_vec d = ct_vec_load(p->dy, at + c, bf16) * k.slope;
			const ct_ivec tap = ct_vec_widen(taps[at + c]);

			for (int s = 0; s < 2; s++) {
				const ct_vec given = ct_vec_choose(tap == 2 * (h % 2) + s, d, ct_vec_every(0));
				const size_t to = i + 2 * c + (size_t)s;

				ct_vec_store(p->dx, to, given + without_window(p, &k, to, bf16), bf16);
			}
		}
		for (size_t c = 2 * tiles; c < w; c++)
			ct_vec_store(p->dx, i + c, without_window(p, &k, i + c, bf16), bf16);
	}
}

CT_INLINE void backward_plane(const struct ct_norm_pool *p, int plane, bool bf16)
{
	if (has_window(p, &two))
		backward_tiles(p, plane, bf16);
	else if (has_window(p, &three))
		backward_loop(p, plane, three, bf16);
	else
		backward_loop(p, plane, p->shape.win, bf16);
}

/* Run from the last plane to the first, because the backward pass of the preceding convolution starts with the first
 * planes. */
static void backward_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm_pool *p = arg;

	for (int i = (int)end - 1; i >= (int)begin; i--) {
		if (p->shape.bf16)
			backward_plane(p, i, true);
		else
			backward_plane(p, i, false);
	}
}

static void norm_pool_backward(struct ct_norm_pool *p)
{
	const int planes = (int)n_planes(&p->shape);

	ct_parallel_for(p->threads, planes, 1, gradients_range, p);
	for (int c = 0; c < p->shape.channels; c++) {
		double sum, dot;

		sum_partials(p, c, &sum, &dot);
		p->dbeta[c] = (float)sum;
		p->dgamma[c] = (float)(dot / sqrt((double)p->variance[c] + (double)p->shape.eps));
	}
	ct_parallel_for(p->threads, planes, 1, backward_range, p);
}

const struct ct_norm_pool_kernels CT_WITH_LANES(ct__norm_pool_kernels) = {norm_pool_forward, norm_pool_backward};
