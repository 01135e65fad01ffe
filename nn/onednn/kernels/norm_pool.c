/* The first pass of each direction is that of norm_kernels.h: the statistics of x, and the sums of gradients. The
 * latter are those of a norm of the elements of x at the maxima, because only these elements have a gradient.
 *
 * The second pass of the forward pass normalizes, for each window, the elements and keeps the largest. An element in
 * several windows is normalized several times instead of being stored. For the backward pass, the element of x at each
 * maximum and its position are stored; with CUT instead of the position, the ReLU lets no gradient through. The second
 * pass of the backward pass visits each element of x and gathers from the windows that contain it, in a fixed order. It
 * reads an element before it writes there, so dx may be x.
 *
 * A plane is an image, and in the blocked layout an image of one block of channels. The work is divided into rows of
 * planes. A pixel is processed completely, block by block, so that memory is read in order. Types, layouts and the
 * windows of common models are constants of inlined loops, so that they can be unrolled. */
#include "nn/onednn/kernels/norm_pool.h"

#include <math.h>

#include "base/parallel.h"
#include "nn/onednn/kernels/norm_pixels.h"
#include "nn/onednn/kernels/select.h"

#define CUT 255 /* stored instead of a tap if the maximum was not above zero */

struct job {
	const struct ct_norm_pool *p;
	struct ct_norm norm; /* of x */
	const double *sums;  /* of the gradients */
};

/* The norm of x or, if `picked` is true, that of the elements at the maxima. */
static struct ct_norm norm_of(const struct ct_norm_pool *p, bool picked)
{
	const struct ct_norm_pool_shape *s = &p->shape;
	const struct ct_shape plane = picked ? s->out : s->in;

	return (struct ct_norm){.n = s->n,
				.channels = s->channels,
				.plane = plane.h * plane.w,
				.nhwc = s->nhwc,
				.bf16 = s->bf16,
				.relu = true,
				.eps = s->eps,
				.threads = p->threads,
				.x = picked ? p->picked : p->x,
				.gamma = p->gamma,
				.beta = p->beta,
				.mean = p->mean,
				.variance = p->variance,
				.partials = p->partials,
				.dy = p->dy,
				.dgamma = p->dgamma,
				.dbeta = p->dbeta};
}

static double values_per_channel(const struct ct_norm_pool *p)
{
	return (double)p->shape.n * p->shape.in.h * p->shape.in.w;
}

/* The coefficients of a block of channels. */
struct lanes {
	ct_vec mean, slope, shift, base, tilt;
};

/* A part of a plane: the channels of a panel, which in the blocked layout is one block. The flags are constants after
 * inlining, and so is win if this makes the loop faster. Numbers are in elements. */
struct part {
	const struct ct_norm_pool *p;
	const struct panel *k;
	struct lanes only; /* blocked: the coefficients */
	struct ct_window win;
	bool bf16, nhwc;
	size_t in, out; /* first element of the part in x, and in y, picked and taps */
	size_t step;    /* from a pixel to the next one */
	int full, last; /* blocks in which all lanes are channels; channels of the last block */
};

CT_INLINE struct lanes lanes_at(const struct part *t, int b)
{
	const struct panel *k = t->k;

	if (!t->nhwc)
		return t->only;
	return (struct lanes){k->mean[b], k->slope[b], k->shift[b], k->base[b], k->tilt[b]};
}

CT_INLINE ct_ivec load_taps(const struct part *t, size_t at, int lanes)
{
	ct_bvec taps;

	if (lanes < CT_LANES)
		taps = ct_bvec_load_part(t->p->taps + at, lanes);
	else
		memcpy(&taps, t->p->taps + at, sizeof(taps));
	return ct_vec_widen(taps);
}

/* Calls fn(t, ..., b, lanes) for the blocks of the part. Except in the last block, lanes is a constant. */
#define FOR_BLOCKS(t, fn, ...)                                      \
	do {                                                        \
		for (int b_ = 0; b_ < (t)->full; b_++)              \
			fn((t), __VA_ARGS__, b_, CT_LANES);         \
		if ((t)->nhwc && (t)->full < (t)->k->n)             \
			fn((t), __VA_ARGS__, (t)->full, (t)->last); \
	} while (0)

/* ---- The forward pass ---------------------------------------------------------------------------------- */

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
};

/* The largest value so far, the element from which it was computed, and its position. */
struct maximum {
	ct_vec z, x;
	ct_ivec tap;
};

/* Replaces the maximum where z is larger. */
CT_INLINE void keep_larger(ct_vec z, ct_vec x, int tap, struct maximum *m)
{
#ifdef __AVX512F__ /* gcc 12 would need two instructions for each choice */
	const __mmask16 larger = _mm512_cmp_ps_mask((__m512)z, (__m512)m->z, _CMP_NLE_UQ);

	m->z = (ct_vec)_mm512_mask_mov_ps((__m512)m->z, larger, (__m512)z);
	m->x = (ct_vec)_mm512_mask_mov_ps((__m512)m->x, larger, (__m512)x);
	m->tap = (ct_ivec)_mm512_mask_set1_epi32((__m512i)m->tap, larger, tap);
#else
	const ct_ivec larger = ~ct_vec_at_most(z, m->z);

	m->z = ct_vec_choose(larger, z, m->z);
	m->x = ct_vec_choose(larger, x, m->x);
	m->tap = (larger & tap) | (~larger & m->tap);
#endif
}

/* Computes the maximum of the pooling kernel at this corner and stores it at element `out`. Among equal values, the
 * first one is chosen. NaN counts as the largest value. */
CT_INLINE void pool_window(const struct part *t, ptrdiff_t corner, struct window w, size_t out, int b, int lanes)
{
	const struct lanes k = lanes_at(t, b);
	const ptrdiff_t step = (ptrdiff_t)t->step, pitch = t->p->shape.in.w * step;
	struct maximum most = {.z = ct_vec_every(-INFINITY)};

	corner += b * CT_LANES;
	out += (size_t)b * CT_LANES;
	for (int r = w.r0; r < w.r1; r++) {
		for (int s = w.s0; s < w.s1; s++) {
			ct_vec v = load(t->p->x, (size_t)(corner + r * pitch + s * step), lanes, t->bf16);

			keep_larger((v - k.mean) * k.slope + k.shift, v, r * t->win.s + s, &most);
		}
	}
	const ct_ivec cut = ct_vec_at_most(most.z, ct_vec_every(0));
	const ct_bvec taps = ct_vec_narrow((cut & CUT) | (~cut & most.tap));
	store(t->p->y, out, ct_vec_choose(cut, ct_vec_every(0), most.z), lanes, t->bf16);
	store(t->p->picked, out, most.x, lanes, t->bf16);
	if (lanes < CT_LANES)
		ct_bvec_store_part(t->p->taps + out, taps, lanes);
	else
		memcpy(t->p->taps + out, &taps, sizeof(taps));
}

CT_INLINE struct window window_at(const struct ct_norm_pool *p, int oh, int ow)
{
	const struct ct_window *w = &p->shape.win;

	return (struct window){.r0 = first_tap(oh, w->stride_h, w->pad_h),
			       .r1 = end_tap(oh, w->stride_h, w->pad_h, w->r, p->shape.in.h),
			       .s0 = first_tap(ow, w->stride_w, w->pad_w),
			       .s1 = end_tap(ow, w->stride_w, w->pad_w, w->s, p->shape.in.w)};
}

CT_INLINE void pool_row(const struct part *t, int oh)
{
	const struct ct_norm_pool_shape *s = &t->p->shape;
	const struct ct_window win = t->win;
	const struct window whole = {0, win.r, 0, win.s};
	const int h = oh * win.stride_h - win.pad_h;
	const bool rows_inside = h >= 0 && h + win.r <= s->in.h;
	size_t out = t->out + (size_t)oh * (size_t)s->out.w * t->step;

	for (int ow = 0; ow < s->out.w; ow++, out += t->step) {
		const int w = ow * win.stride_w - win.pad_w;
		const ptrdiff_t corner = (ptrdiff_t)t->in + ((ptrdiff_t)h * s->in.w + w) * (ptrdiff_t)t->step;

		if (rows_inside && w >= 0 && w + win.s <= s->in.w)
			FOR_BLOCKS(t, pool_window, corner, whole, out);
		else
			FOR_BLOCKS(t, pool_window, corner, window_at(t->p, oh, ow), out);
	}
}

/* ---- The backward pass --------------------------------------------------------------------------------- */

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

/* Writes the gradient of the elements from `at` on, to which the pooling kernels give d. */
CT_INLINE void write_gradient(const struct part *t, size_t at, ct_vec d, const struct lanes *k, int lanes)
{
	const ct_vec x = load(t->p->x, at, lanes, t->bf16);

	store(t->p->dx, at, d * k->slope + (k->base - (x - k->mean) * k->tilt), lanes, t->bf16);
}

/* A pixel, and the pooling kernels that contain it. */
struct pixel {
	int h, w;
	struct span rows, columns;
};

CT_INLINE void gather(const struct part *t, const struct pixel *x, int b, int lanes)
{
	const struct ct_window *win = &t->win;
	const struct lanes k = lanes_at(t, b);
	const size_t block = (size_t)b * CT_LANES, out_w = (size_t)t->p->shape.out.w;
	ct_vec sum = {0};

	for (int oh = x->rows.first; oh < x->rows.end; oh++) {
		for (int ow = x->columns.first; ow < x->columns.end; ow++) {
			const size_t at = t->out + ((size_t)oh * out_w + (size_t)ow) * t->step + block;
			const int tap = (x->h + win->pad_h - oh * win->stride_h) * win->s + x->w + win->pad_w -
					ow * win->stride_w;

			sum += ct_vec_choose(ct_vec_equal(load_taps(t, at, lanes), tap),
					     load(t->p->dy, at, lanes, t->bf16), ct_vec_every(0));
		}
	}
	const size_t pixel = (size_t)x->h * (size_t)t->p->shape.in.w + (size_t)x->w;
	write_gradient(t, t->in + pixel * t->step + block, sum, &k, lanes);
}

CT_INLINE void gather_row(const struct part *t, int h)
{
	const struct ct_norm_pool_shape *s = &t->p->shape;
	const struct ct_window *win = &t->win;
	struct pixel x = {.h = h, .rows = windows_of(h, win->stride_h, win->pad_h, win->r, s->out.h)};

	for (x.w = 0; x.w < s->in.w; x.w++) {
		x.columns = windows_of(x.w, win->stride_w, win->pad_w, win->s, s->out.w);
		FOR_BLOCKS(t, gather, &x);
	}
}

/* With 2x2 kernels and stride 2, every element is in exactly one kernel, except for a remainder at the right and at the
 * bottom. */
CT_INLINE void give_tile(const struct part *t, size_t in, size_t out, int row, int b, int lanes)
{
	const struct lanes k = lanes_at(t, b);
	const size_t block = (size_t)b * CT_LANES;
	const ct_vec d = load(t->p->dy, out + block, lanes, t->bf16);
	const ct_ivec tap = load_taps(t, out + block, lanes);

	for (int s = 0; s < 2; s++)
		write_gradient(t, in + (size_t)s * t->step + block,
			       ct_vec_choose(ct_vec_equal(tap, 2 * row + s), d, ct_vec_every(0)), &k, lanes);
}

CT_INLINE void give_nothing(const struct part *t, size_t in, int b, int lanes)
{
	const struct lanes k = lanes_at(t, b);

	write_gradient(t, in + (size_t)b * CT_LANES, ct_vec_every(0), &k, lanes);
}

CT_INLINE void give_row(const struct part *t, int h)
{
	const struct ct_norm_pool_shape *s = &t->p->shape;
	const int tiles = h / 2 < s->out.h ? s->out.w : 0;
	size_t in = t->in + (size_t)h * (size_t)s->in.w * t->step;
	size_t out = t->out + (size_t)(h / 2) * (size_t)s->out.w * t->step;

	for (int c = 0; c < tiles; c++, in += 2 * t->step, out += t->step)
		FOR_BLOCKS(t, give_tile, in, out, h % 2);
	for (int c = 2 * tiles; c < s->in.w; c++, in += t->step)
		FOR_BLOCKS(t, give_nothing, in);
}

/* ---- Both directions ----------------------------------------------------------------------------------- */

/* Rows of a plane. */
struct rows {
	int plane, first, end;
	bool backward;
};

/* tiles: win is that of give_tile. */
CT_INLINE void rows_of_part(const struct job *j, const struct rows *r, const struct panel *k, struct ct_window win,
			    bool tiles, bool bf16, bool nhwc)
{
	const struct ct_norm_pool_shape *s = &j->p->shape;
	const size_t step = nhwc ? (size_t)s->channels : CT_LANES, block = nhwc ? (size_t)k->first * CT_LANES : 0;
	const int last = nhwc ? lanes_in(&j->norm, k->first + k->n - 1) : CT_LANES;
	const struct part t = {.p = j->p,
			       .k = k,
			       .only = {k->mean[0], k->slope[0], k->shift[0], k->base[0], k->tilt[0]},
			       .win = win,
			       .bf16 = bf16,
			       .nhwc = nhwc,
			       .in = (size_t)r->plane * (size_t)s->in.h * (size_t)s->in.w * step + block,
			       .out = (size_t)r->plane * (size_t)s->out.h * (size_t)s->out.w * step + block,
			       .step = step,
			       .full = nhwc ? k->n - (last < CT_LANES) : 1,
			       .last = last};

	for (int row = r->first; row < r->end; row++) {
		if (!r->backward)
			pool_row(&t, row);
		else if (tiles)
			give_row(&t, row);
		else
			gather_row(&t, row);
	}
}

/* Special cases for the pooling layers of LeNet and of ResNets. */
static const struct ct_window two = {2, 2, 2, 2, 0, 0, 1, 1}, three = {3, 3, 2, 2, 1, 1, 1, 1};

static bool has_window(const struct ct_norm_pool *p, const struct ct_window *win)
{
	return !memcmp(&p->shape.win, win, sizeof(*win));
}

CT_INLINE void rows_of_type(const struct job *j, const struct rows *r, const struct panel *k, bool bf16, bool nhwc)
{
	if (has_window(j->p, &two))
		rows_of_part(j, r, k, two, true, bf16, nhwc);
	else if (has_window(j->p, &three))
		rows_of_part(j, r, k, three, false, bf16, nhwc);
	else
		rows_of_part(j, r, k, j->p->shape.win, false, bf16, nhwc);
}

static void rows_of_panel(const struct job *j, const struct rows *r, const struct panel *k)
{
	const struct ct_norm_pool_shape *s = &j->p->shape;

	if (s->bf16 && s->nhwc)
		rows_of_type(j, r, k, true, true);
	else if (s->bf16)
		rows_of_type(j, r, k, true, false);
	else if (s->nhwc)
		rows_of_type(j, r, k, false, true);
	else
		rows_of_type(j, r, k, false, false);
}

static void rows_of_plane(const struct job *j, const struct rows *r)
{
	const struct ct_norm_pool_shape *s = &j->p->shape;
	const int blocks = n_blocks(s->channels);
	const int begin = s->nhwc ? 0 : r->plane % blocks, end = s->nhwc ? blocks : begin + 1;
	struct panel k;

	for (int first = begin; first < end; first += PANEL) {
		make_panel(&j->norm, first, end - first, &k);
		if (r->backward)
			add_gradient_coefficients(&j->norm, j->sums, values_per_channel(j->p), &k);
		rows_of_panel(j, r, &k);
	}
}

/* `height` is the number of rows of a plane. Gradients are computed from the last plane to the first, because the
 * backward pass of the preceding convolution starts with the first ones. */
static void rows_range(const struct job *j, int64_t begin, int64_t end, int height, bool backward)
{
	const int first = (int)(begin / height), last = (int)((end - 1) / height);

	for (int i = 0; i <= last - first; i++) {
		const int plane = backward ? last - i : first + i;
		const struct rows r = {.plane = plane,
				       .first = plane == first ? (int)(begin % height) : 0,
				       .end = plane == last ? (int)((end - 1) % height) + 1 : height,
				       .backward = backward};

		rows_of_plane(j, &r);
	}
}

static void forward_range(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;

	rows_range(j, begin, end, j->p->shape.out.h, false);
}

static void backward_range(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;

	rows_range(j, begin, end, j->p->shape.in.h, true);
}

static int64_t n_planes(const struct ct_norm_pool_shape *s)
{
	return (int64_t)s->n * (s->nhwc ? 1 : n_blocks(s->channels));
}

static void norm_pool_forward(struct ct_norm_pool *p)
{
	struct job j = {.p = p, .norm = norm_of(p, false)};
	double *sums = ct__norm_scratch_sums(&j.norm);

	ct__norm_sums(&j.norm, sums);
	ct__norm_moments(&j.norm, sums, values_per_channel(p));
	ct_parallel_for(p->threads, n_planes(&p->shape) * p->shape.out.h, 1, forward_range, &j);
}

static void norm_pool_backward(struct ct_norm_pool *p)
{
	const struct ct_norm picked = norm_of(p, true);
	double *sums = ct__norm_scratch_sums(&picked);
	struct job j = {.p = p, .norm = norm_of(p, false), .sums = sums};

	ct__norm_gradient_sums(&picked, sums);
	ct_parallel_for(p->threads, n_planes(&p->shape) * p->shape.in.h, 1, backward_range, &j);
}

const struct ct_norm_pool_kernels CT_WITH_LANES(ct__norm_pool_kernels) = {norm_pool_forward, norm_pool_backward};
