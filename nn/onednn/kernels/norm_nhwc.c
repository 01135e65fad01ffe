/* Batch norm on [N,H,W,C] with any number of channels. Masks are [N,H,W,C/b]. The work is divided into tiles, whose
 * sums are added in their order, so results do not depend on the number of threads. Four pixels at a time are
 * processed, which are contiguous in memory: all channels of a panel in turn, so that memory is read in order, and the
 * coefficients and sums of a channel are loaded from the first-level cache once for four pixels. The sums of a tile are
 * in single precision, those of all tiles in double. Their pass runs from the last tile to the first, because the
 * preceding convolution wrote the last ones last; the other pass runs from the first, or for gradients from the last,
 * as in norm_kernels.c.
 *
 * Types and fused operations are constants of inlined loops. Kernels on fp32 must not execute the bfloat16 instructions
 * of AVX-512 (ct_vec_store).
 */
#include "nn/onednn/kernels/norm_nhwc.h"

#include <math.h>

#include "base/parallel.h"
#include "nn/onednn/kernels/norm_pixels.h"
#include "nn/onednn/kernels/norm_sums.h"
#include "nn/onednn/kernels/select.h"

_Static_assert(CT_NORM_MAX_TILE <= CT_NORM_CHUNK, "sums of a tile are in single precision");

/* The number of partial sums, each of a block of channels, that justifies a separate thread to add them. */
enum { MIN_PARTIALS = 256 };

struct job {
	const struct ct_norm *p;
	double *own;        /* output: sums of this rank */
	const double *sums; /* input: sums of all ranks */
	double count;
};

/* ---- The first pass of the forward pass: sums ---------------------------------------------------------- */

CT_INLINE void add_sums(const struct work *w, size_t pixel, int b, size_t n, int lanes)
{
	ct_vec sum = ct_vec_every(0), squares = sum;

	for (size_t j = 0; j < n; j++) {
		const size_t at = element(w->p, pixel + j, w->k->first + b);
		const ct_vec d = load(w->p->x, at, lanes, w->bf16) - w->middle[b];

		sum += d;
		squares += d * d;
	}
	w->sums->a[b] += sum;
	w->sums->b[b] += squares;
}

/* As in ct_norm_chunk, the deviations from the mean of the first values are summed. */
CT_INLINE void sums_of_tile(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16,
			    struct ct_norm_partial *out)
{
	struct panel_sums s;
	ct_vec middle[PANEL];
	const struct work w = {.p = p, .t = t, .k = k, .bf16 = bf16, .middle = middle, .sums = &s};
	const size_t n = t->n < PIXELS ? t->n : PIXELS;

	for (int b = 0; b < k->n; b++) {
		const int block = k->first + b;

		middle[b] = s.a[b] = s.b[b] = ct_vec_every(0);
		for (size_t i = 0; i < n; i++)
			middle[b] += load(p->x, element(p, t->first + i, block), lanes_in(p, block), bf16);
		middle[b] *= 1.0f / (float)(n > 0 ? n : 1);
	}
	FOR_PIXELS(&w, add_sums);
	for (int b = 0; b < k->n; b++) {
		for (int l = 0; l < CT_LANES; l++) {
			/* x = m + d: sum x = n m + sum d, sum x^2 = sum d^2 + 2m sum d + n m^2 */
			const double m = (double)middle[b][l], d = (double)s.a[b][l], count = (double)t->n;

			out[b].a[l] = count * m + d;
			out[b].b[l] = (double)s.b[b][l] + m * (2 * d + count * m);
		}
	}
}

static void sums_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(p);
	const int blocks = n_blocks(p->channels);

	for (int64_t i = end - 1; i >= begin; i--) {
		const struct tile t = tile_at(p, &tiles, (size_t)i);

		for (int first = 0; first < blocks; first += PANEL) {
			const struct panel k = {.first = first, .n = blocks - first < PANEL ? blocks - first : PANEL};
			struct ct_norm_partial *out = &p->partials[(size_t)i * (size_t)blocks + (size_t)first];

			if (p->bf16)
				sums_of_tile(p, &t, &k, true, out);
			else
				sums_of_tile(p, &t, &k, false, out);
		}
	}
}

static void add_range(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(j->p);

	for (int64_t block = begin; block < end; block++)
		ct_norm_sum_partials(j->p->partials, ct__norm_n_tiles(&tiles), j->p->channels, (int)block, j->own);
}

/* Adds the partial sums in the order of tiles. With many threads, there are more of them than each thread
 * has tiles, so that all threads add them. */
static void add_partials(const struct ct_norm *p, double *sums)
{
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(p);
	struct job j = {.p = p, .own = sums};

	ct_parallel_for(p->threads, n_blocks(p->channels), 1 + MIN_PARTIALS / (int64_t)ct__norm_n_tiles(&tiles),
			add_range, &j);
}

static void for_tiles(const struct ct_norm *p, ct_range_fn fn, void *arg)
{
	const struct ct_norm_tiles t = ct__norm_tiles_of(p);

	ct_parallel_for(p->threads, (int64_t)ct__norm_n_tiles(&t), 1, fn, arg);
}

static void nhwc_sums(const struct ct_norm *p, double *sums)
{
	struct job j = {.p = p};

	for_tiles(p, sums_range, &j);
	add_partials(p, sums);
}

/* ---- The second pass of the forward pass --------------------------------------------------------------- */

CT_INLINE ct_vec norm_of(ct_vec x, const struct panel *k, int b)
{
	return (x - k->mean[b]) * k->slope[b] + k->shift[b];
}

CT_INLINE void apply(const struct work *w, size_t pixel, int b, size_t n, int lanes)
{
	const struct ct_norm *p = w->p;
	const int block = w->k->first + b;

	for (size_t j = 0; j < n; j++) {
		const size_t at = element(p, pixel + j, block);
		ct_vec z = norm_of(load(p->x, at, lanes, w->bf16), w->k, b);

		if (w->residual)
			z += load(p->residual, at, lanes, w->bf16);
		if (w->relu != RELU_NONE) {
			const ct_ivec kept = ~ct_vec_at_most(z, ct_vec_every(0)); /* NaN passes */

			z = ct_vec_choose(kept, z, ct_vec_every(0));
			if (w->residual && p->mask)
				((ct_bits *)p->mask)[(pixel + j) * (size_t)n_blocks(p->channels) + (size_t)block] =
					ct_vec_bits(kept);
		}
		store(p->y, at, z, lanes, w->bf16);
	}
}

CT_INLINE void forward_tile(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16, bool relu,
			    bool residual)
{
	const struct work w = {
		.p = p, .t = t, .k = k, .bf16 = bf16, .residual = residual, .relu = relu ? RELU_AGAIN : RELU_NONE};

	FOR_PIXELS(&w, apply);
}

static void forward_any(const struct ct_norm *p, const struct tile *t, const struct panel *k)
{
	switch (4 * p->bf16 + 2 * p->relu + (p->residual != NULL)) {
	case 0:
		forward_tile(p, t, k, false, false, false);
		break;
	case 1:
		forward_tile(p, t, k, false, false, true);
		break;
	case 2:
		forward_tile(p, t, k, false, true, false);
		break;
	case 3:
		forward_tile(p, t, k, false, true, true);
		break;
	case 4:
		forward_tile(p, t, k, true, false, false);
		break;
	case 5:
		forward_tile(p, t, k, true, false, true);
		break;
	case 6:
		forward_tile(p, t, k, true, true, false);
		break;
	default:
		forward_tile(p, t, k, true, true, true);
	}
}

static void scale_panel(const struct panel *k, float factor, struct panel *out)
{
	*out = *k;
	for (int b = 0; b < k->n; b++) {
		out->slope[b] *= factor;
		out->shift[b] *= factor;
	}
}

static void forward_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(p);
	struct panel k, scaled;

	for (int first = 0; first < n_blocks(p->channels); first += PANEL) {
		make_panel(p, first, n_blocks(p->channels) - first, &k);
		for (int64_t i = begin; i < end; i++) {
			const struct tile t = tile_at(p, &tiles, (size_t)i);

			if (p->factor)
				scale_panel(&k, t.factor, &scaled);
			forward_any(p, &t, p->factor ? &scaled : &k);
		}
	}
}

static void nhwc_apply(const struct ct_norm *p)
{
	struct job j = {.p = p};

	for_tiles(p, forward_range, &j);
}

/* The sums are the same for all layouts. */
static void nhwc_moments(const struct ct_norm *p, const double *sums, double count)
{
	CT_WITH_LANES(ct__norm_kernels).moments(p, sums, count);
}

static void nhwc_forward(const struct ct_norm *p)
{
	double *sums = ct__norm_scratch_sums(p);

	nhwc_sums(p, sums);
	nhwc_moments(p, sums, (double)p->n * p->plane);
	nhwc_apply(p);
}

/* ---- The backward pass --------------------------------------------------------------------------------- */

static enum relu relu_of(const struct ct_norm *p)
{
	return !p->relu ? RELU_NONE : p->residual || p->mask ? RELU_BITS : RELU_AGAIN;
}

/* Returns the gradient d where the ReLU has kept the element of which x is the input of the norm. */
CT_INLINE ct_vec cut(const struct ct_norm *p, const struct panel *k, size_t pixel, int b, ct_vec x, ct_vec d,
		     enum relu relu)
{
	if (relu == RELU_BITS)
		return ct_vec_keep(
			((const ct_bits *)p->mask)[pixel * (size_t)n_blocks(p->channels) + (size_t)(k->first + b)], d);
	return relu == RELU_AGAIN ? ct_vec_choose(ct_vec_at_most(norm_of(x, k, b), ct_vec_every(0)), ct_vec_every(0), d)
				  : d;
}

/* Sums d and d * (x - mean), where d is the gradient after the backward pass of the ReLU. If there are two gradients,
 * their sum is stored for the second pass and read back, so that both passes use the rounded value. */
CT_INLINE void add_gradient_sums(const struct work *w, size_t pixel, int b, size_t n, int lanes)
{
	const struct ct_norm *p = w->p;
	ct_vec sum = ct_vec_every(0), dot = sum;

	for (size_t j = 0; j < n; j++) {
		const size_t at = element(p, pixel + j, w->k->first + b);
		const ct_vec x = load(p->x, at, lanes, w->bf16);
		ct_vec d = load(p->dy, at, lanes, w->bf16);

		if (w->residual)
			d += load(p->dy2, at, lanes, w->bf16);
		d = cut(p, w->k, pixel + j, b, x, d, w->relu);
		if (w->residual) {
			store(p->dresidual, at, d, lanes, w->bf16);
			d = w->bf16 ? load(p->dresidual, at, lanes, true) : d;
		}
		sum += d;
		dot += d * (x - w->k->mean[b]);
	}
	w->sums->a[b] += sum;
	w->sums->b[b] += dot;
}

CT_INLINE void gradient_sums_of_tile(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16,
				     enum relu relu, bool two, struct ct_norm_partial *out)
{
	struct panel_sums s;
	const struct work w = {.p = p, .t = t, .k = k, .bf16 = bf16, .residual = two, .relu = relu, .sums = &s};

	for (int b = 0; b < k->n; b++)
		s.a[b] = s.b[b] = ct_vec_every(0);
	FOR_PIXELS(&w, add_gradient_sums);
	for (int b = 0; b < k->n; b++) {
		for (int l = 0; l < CT_LANES; l++) {
			out[b].a[l] = (double)s.a[b][l] * (double)t->factor;
			out[b].b[l] = (double)s.b[b][l] * (double)t->factor;
		}
	}
}

CT_INLINE void gradient_sums_of_type(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16,
				     bool two, struct ct_norm_partial *out)
{
	switch (relu_of(p)) {
	case RELU_NONE:
		gradient_sums_of_tile(p, t, k, bf16, RELU_NONE, two, out);
		break;
	case RELU_AGAIN:
		gradient_sums_of_tile(p, t, k, bf16, RELU_AGAIN, two, out);
		break;
	case RELU_BITS:
		gradient_sums_of_tile(p, t, k, bf16, RELU_BITS, two, out);
	}
}

static void gradient_sums_any(const struct ct_norm *p, const struct tile *t, const struct panel *k,
			      struct ct_norm_partial *out)
{
	if (p->bf16 && p->dy2)
		gradient_sums_of_type(p, t, k, true, true, out);
	else if (p->bf16)
		gradient_sums_of_type(p, t, k, true, false, out);
	else if (p->dy2)
		gradient_sums_of_type(p, t, k, false, true, out);
	else
		gradient_sums_of_type(p, t, k, false, false, out);
}

static void gradient_sums_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(p);
	const int blocks = n_blocks(p->channels);
	struct panel k;

	for (int first = 0; first < blocks; first += PANEL) {
		make_panel(p, first, n_blocks(p->channels) - first, &k);
		for (int64_t i = begin; i < end; i++) {
			const struct tile t = tile_at(p, &tiles, (size_t)i);

			gradient_sums_any(p, &t, &k, &p->partials[(size_t)i * (size_t)blocks + (size_t)first]);
		}
	}
}

static void nhwc_gradient_sums(const struct ct_norm *p, double *sums)
{
	struct job j = {.p = p};

	for_tiles(p, gradient_sums_range, &j);
	add_partials(p, sums);
	for (int c = 0; c < p->channels; c++) {
		sums[p->channels + c] /= sqrt((double)p->variance[c] + (double)p->eps);
		p->dbeta[c] = (float)sums[c];
		p->dgamma[c] = (float)sums[p->channels + c];
	}
}

/* The sum of two gradients is stored after the backward pass of the ReLU. */
CT_INLINE void apply_gradient(const struct work *w, size_t pixel, int b, size_t n, int lanes)
{
	const struct ct_norm *p = w->p;
	const struct panel *k = w->k;
	const void *dy = p->dy2 ? p->dresidual : p->dy;
	const ct_vec slope = k->slope[b] * w->t->factor;

	for (size_t j = 0; j < n; j++) {
		const size_t at = element(p, pixel + j, k->first + b);
		const ct_vec x = load(p->x, at, lanes, w->bf16);
		const ct_vec d = cut(p, k, pixel + j, b, x, load(dy, at, lanes, w->bf16), w->relu);

		if (w->residual)
			store(p->dresidual, at, d, lanes, w->bf16);
		store(p->dx, at, slope * d + (k->base[b] - (x - k->mean[b]) * k->tilt[b]), lanes, w->bf16);
	}
}

CT_INLINE void backward_tile(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16,
			     enum relu relu, bool residual)
{
	const struct work w = {.p = p, .t = t, .k = k, .bf16 = bf16, .residual = residual, .relu = relu};

	FOR_PIXELS(&w, apply_gradient);
}

CT_INLINE void backward_of_type(const struct ct_norm *p, const struct tile *t, const struct panel *k, bool bf16)
{
	const enum relu relu = p->dy2 ? RELU_NONE : relu_of(p);

	if (relu == RELU_BITS && p->dresidual)
		backward_tile(p, t, k, bf16, RELU_BITS, true);
	else if (relu == RELU_BITS)
		backward_tile(p, t, k, bf16, RELU_BITS, false);
	else if (relu == RELU_AGAIN)
		backward_tile(p, t, k, bf16, RELU_AGAIN, false);
	else
		backward_tile(p, t, k, bf16, RELU_NONE, false);
}

static void backward_range(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const struct ct_norm *p = j->p;
	const struct ct_norm_tiles tiles = ct__norm_tiles_of(p);
	struct panel k;

	for (int first = 0; first < n_blocks(p->channels); first += PANEL) {
		make_panel(p, first, n_blocks(p->channels) - first, &k);
		add_gradient_coefficients(p, j->sums, j->count, &k);
		for (int64_t i = end - 1; i >= begin; i--) {
			const struct tile t = tile_at(p, &tiles, (size_t)i);

			if (p->bf16)
				backward_of_type(p, &t, &k, true);
			else
				backward_of_type(p, &t, &k, false);
		}
	}
}

static void nhwc_gradient_apply(const struct ct_norm *p, const double *sums, double count)
{
	struct job j = {.p = p, .sums = sums, .count = count};

	for_tiles(p, backward_range, &j);
}

static void nhwc_backward(const struct ct_norm *p)
{
	double *sums = ct__norm_scratch_sums(p);

	nhwc_gradient_sums(p, sums);
	nhwc_gradient_apply(p, sums, (double)p->n * p->plane);
}

const struct ct_norm_kernels CT_WITH_LANES(ct__norm_nhwc_kernels) = {
	nhwc_forward, nhwc_backward, nhwc_sums, nhwc_moments, nhwc_apply, nhwc_gradient_sums, nhwc_gradient_apply};
