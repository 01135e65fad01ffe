/* The backward-weights pass, for kernels of TAPS x TAPS elements. */
#ifndef CT_NN_ONEDNN_WINOGRAD_SUMS_TEMPLATE_H
#define CT_NN_ONEDNN_WINOGRAD_SUMS_TEMPLATE_H

#include "base/parallel.h"
#include "nn/onednn/winograd/transforms_template.h"

/* Units are divided into groups, each with its own sums. The number of groups and the order of additions depend only on
 * the shape. */
struct sums {
	const struct ct_winograd *op;
	struct image x, dy;
	struct ct__winograd_grid grid;
	struct ct__winograd_scratch sizes;
	int parts;       /* ranges of K */
	ct_vec *weights; /* [groups][POINTS * POINTS][panels of K][C][2] */
	ct_vec *bias;    /* [groups][K/b] */
	ct_vec *scratch;
};

/* Transforms a row with A along W. Also adds the elements of the row to *sum. */
CT_INLINE void gradient_row(const void *y, size_t row, const bool bf16, int w, int tiles, ct_vec *to, ct_vec *sum)
{
	for (int t = 0; t < tiles; t++, to += POINTS) {
		const int left = t * RESULTS;
		ct_vec q[RESULTS], v[POINTS];

		for (int j = 0; j < RESULTS; j++)
			q[j] = left + j < w ? ct_vec_load(y, row + (size_t)(left + j), bf16) : (ct_vec){0};
		*sum += (q[0] + q[1]) + (q[2] + q[3]);
		gradient_transform(q, v);
		for (int j = 0; j < POINTS; j++)
			to[j] = v[j];
	}
}

static void gradient_columns(const struct image *im, const struct ct__winograd_grid *g, struct ct__winograd_unit u,
			     ct_vec *columns, ct_vec *bias)
{
	const size_t pitch = row_pitch(g);
	const int blocks = im->range.end - im->range.begin;

	for (int j = 0; j < (u.n1 - u.n0) * blocks; j++) {
		const int k = im->range.begin + j % blocks, i = (u.n0 + j / blocks) * im->blocks + k;
		ct_vec sum = {0};

		for (int h = u.r0 * RESULTS; h < u.r1 * RESULTS; h++, columns += pitch) {
			const size_t row = ((size_t)i * (size_t)im->h + (size_t)h) * (size_t)im->w;

			if (h < im->h && im->bf16)
				gradient_row(im->at, row, true, im->w, g->tiles_w, columns, &sum);
			else if (h < im->h)
				gradient_row(im->at, row, false, im->w, g->tiles_w, columns, &sum);
			else
				memset(columns, 0, pitch * sizeof(ct_vec));
		}
		bias[k] += sum;
	}
}

/* Transforms column j of the points with A along H. */
static void gradient_points(const ct_vec *columns, int blocks, const struct ct__winograd_grid *g,
			    struct ct__winograd_unit u, int j, ct_vec *v)
{
	const size_t pitch = row_pitch(g), step = (size_t)blocks * (size_t)u.tiles;
	const int rows = u.r1 - u.r0;

	for (int i = 0; i < (u.n1 - u.n0) * blocks; i++) {
		const ct_vec *from = columns + (size_t)i * (size_t)(rows * RESULTS) * pitch + j;
		ct_vec *to = v + i % blocks * u.tiles + i / blocks * rows * g->tiles_w;

		for (int r = 0; r < rows; r++, from += RESULTS * pitch) {
			for (int t = 0; t < g->tiles_w; t++, to++) {
				ct_vec q[RESULTS], o[POINTS];

				for (int p = 0; p < RESULTS; p++)
					q[p] = from[(size_t)p * pitch + (size_t)t * POINTS];
				gradient_transform(q, o);
				for (int p = 0; p < POINTS; p++)
					to[(size_t)p * step] = o[p];
			}
		}
	}
}

/* Multiplies `rows` channels of x by `cols` blocks of dy. The sums stay in registers over all tiles. If `first` is set,
 * u does not contain any sums yet. */
CT_INLINE void outer_block(const float *x, const ct_vec *q, size_t q_step, int tiles, bool first, ct_vec *u,
			   const int rows, const int cols)
{
	ct_vec sum[CT_LANES];

	if (first) {
		CT_UNROLL
		for (int i = 0; i < rows * cols; i++)
			sum[i] = (ct_vec){0};
	} else {
		CT_UNROLL
		for (int i = 0; i < rows * cols; i++)
			sum[i] = u[i];
	}
	for (int t = 0; t < tiles; t++, q++, x += CT_LANES) {
		CT_UNROLL
		for (int r = 0; r < rows; r++) {
			CT_UNROLL
			for (int k = 0; k < cols; k++)
				sum[r * cols + k] += x[r] * q[(size_t)k * q_step];
		}
	}
	CT_UNROLL
	for (int i = 0; i < rows * cols; i++)
		u[i] = sum[i];
}

/* u[in*b][out] += v[in][tiles]^T times q[out][tiles], for one point. */
static void outer_product(const ct_vec *v, int tiles, int in, const ct_vec *q, int out, bool first, ct_vec *u)
{
	const size_t step = (size_t)tiles;
	int k = 0;

	for (; k + 2 <= out; k += 2, q += 2 * step) {
		for (size_t c = 0; c < (size_t)in; c++, u += 2 * CT_LANES) {
			const float *x = (const float *)(v + c * step);

			outer_block(x, q, step, tiles, first, u, CT_LANES / 2, 2);
			outer_block(x + CT_LANES / 2, q, step, tiles, first, u + CT_LANES, CT_LANES / 2, 2);
		}
	}
	for (size_t c = 0; k < out && c < (size_t)in; c++, u += CT_LANES)
		outer_block((const float *)(v + c * step), q, step, tiles, first, u, CT_LANES, 1);
}

static void add_unit(const struct sums *s, struct ct__winograd_unit u, const struct image *dy, bool first,
		     ct_vec *weights, ct_vec *bias, ct_vec *scratch)
{
	const int blocks = dy->range.end - dy->range.begin;
	const size_t in = (size_t)s->x.blocks * (size_t)u.tiles, out = (size_t)blocks * (size_t)u.tiles;
	ct_vec *columns = scratch, *gradient = columns + s->sizes.columns, *v = gradient + s->sizes.gradient_columns;
	ct_vec *q = v + s->sizes.input;

	input_columns(&s->x, &s->grid, u, columns);
	gradient_columns(dy, &s->grid, u, gradient, bias);
	for (int j = 0; j < POINTS; j++) {
		input_points(columns, s->x.blocks, &s->grid, u, j, v);
		gradient_points(gradient, blocks, &s->grid, u, j, q);
		for (size_t i = 0; i < POINTS; i++, weights += s->sizes.weights / (POINTS * POINTS))
			outer_product(v + i * in, u.tiles, s->x.blocks, q + i * out, blocks, first, weights);
	}
}

static void add_group(const struct sums *s, int group, struct ct_winograd_range part, ct_vec *scratch)
{
	struct image dy = s->dy;
	const int64_t units = s->grid.units, groups = s->sizes.groups;
	ct_vec *weights =
		s->weights + (size_t)group * s->sizes.weights + (size_t)s->x.blocks * CT_LANES * (size_t)part.begin;
	ct_vec *bias = s->bias + (size_t)group * (size_t)s->dy.blocks;

	dy.range = part;
	memset(bias + part.begin, 0, (size_t)(part.end - part.begin) * sizeof(ct_vec));
	for (int64_t first = group * units / groups, i = first; i < (group + 1) * units / groups; i++)
		add_unit(s, ct__winograd_unit(&s->grid, (int)i), &dy, i == first, weights, bias, scratch);
}

static void add_threads(void *arg, int64_t begin, int64_t end)
{
	const struct sums *s = arg;
	const int64_t jobs = (int64_t)s->sizes.groups * s->parts, threads = s->op->threads;

	for (int64_t i = begin * jobs / threads; i < end * jobs / threads; i++)
		add_group(s, (int)(i % s->sizes.groups),
			  ct__winograd_part(s->parts, (int)(i / s->sizes.groups), s->dy.blocks),
			  s->scratch + (size_t)begin * s->sizes.per_thread);
}

/* Adds the sums of all groups, for the points begin to end - 1, to those of the first group. */
static void sum_groups(void *arg, int64_t begin, int64_t end)
{
	const struct sums *s = arg;
	const size_t point = s->sizes.weights / (POINTS * POINTS);

	for (size_t i = (size_t)begin * point; i < (size_t)end * point; i++) {
		ct_vec sum = s->weights[i];

		for (int g = 1; g < s->sizes.groups; g++)
			sum += s->weights[(size_t)g * s->sizes.weights + i];
		s->weights[i] = sum;
	}
}

/* Transforms the sums of one channel of x and one block of dy back to weight gradients. */
static void finish_channel(const struct sums *s, int c, int k)
{
	const size_t point = s->sizes.weights / (POINTS * POINTS);
	const ct_vec *u = panel(s->weights, s->x.blocks * CT_LANES, s->dy.blocks, c, k);
	ct_vec *dw =
		(ct_vec *)s->op->dw + (size_t)(k * s->x.blocks + c / CT_LANES) * TAPS * TAPS * CT_LANES + c % CT_LANES;
	ct_vec half[TAPS][POINTS];

	for (size_t i = 0; i < POINTS; i++) {
		ct_vec row[POINTS], g[TAPS];

		for (size_t j = 0; j < POINTS; j++)
			row[j] = u[(j * POINTS + i) * point];
		weights_adjoint(row, g);
		for (int t = 0; t < TAPS; t++)
			half[t][i] = g[t];
	}
	for (int t = 0; t < TAPS; t++) {
		ct_vec g[TAPS];

		weights_adjoint(half[t], g);
		for (int r = 0; r < TAPS; r++)
			dw[(size_t)(r * TAPS + t) * CT_LANES] = g[r];
	}
}

static void finish_bias(const struct sums *s, int k)
{
	ct_vec sum = s->bias[k];

	for (int g = 1; g < s->sizes.groups; g++)
		sum += s->bias[g * s->dy.blocks + k];
	((ct_vec *)s->op->db)[k] = sum;
}

static void finish_blocks(void *arg, int64_t begin, int64_t end)
{
	const struct sums *s = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		const int k = i / s->x.blocks, c = i % s->x.blocks;

		for (int l = 0; l < CT_LANES; l++)
			finish_channel(s, c * CT_LANES + l, k);
		if (c == 0 && s->op->db)
			finish_bias(s, k);
	}
}

static void backward_weights(const struct ct_winograd *op)
{
	const struct ct_winograd_shape *d = &op->shape;
	const int h = d->h + 2 * d->pad_h - (TAPS - 1), w = d->w + 2 * d->pad_w - (TAPS - 1);
	struct sums s = {.op = op,
			 .x = {op->x, d->bf16, d->c / CT_LANES, d->h, d->w, d->pad_h, d->pad_w, {0, d->c / CT_LANES}},
			 .dy = {op->dy, d->bf16, d->k / CT_LANES, h, w, 0, 0, {0, d->k / CT_LANES}},
			 .grid = ct__winograd_grid(d, CT_CONV_BACKWARD_WEIGHTS),
			 .sizes = ct__winograd_scratch(d, CT_CONV_BACKWARD_WEIGHTS),
			 .weights = op->scratch};

	s.parts = ct__winograd_parts(s.dy.blocks, s.sizes.groups, op->threads);
	s.bias = s.weights + (size_t)s.sizes.groups * s.sizes.weights;
	s.scratch = s.bias + (size_t)s.sizes.groups * (size_t)s.dy.blocks;
	ct_parallel_for(op->threads, op->threads, 1, add_threads, &s);
	ct_parallel_for(op->threads, POINTS * POINTS, 1, sum_groups, &s);
	ct_parallel_for(op->threads, s.x.blocks * s.dy.blocks, 1, finish_blocks, &s);
}

#endif
