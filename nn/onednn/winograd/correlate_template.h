/* The forward and backward-data passes, for kernels of TAPS x TAPS elements. */
#ifndef CT_NN_ONEDNN_WINOGRAD_CORRELATE_TEMPLATE_H
#define CT_NN_ONEDNN_WINOGRAD_CORRELATE_TEMPLATE_H

#include "base/parallel.h"
#include "nn/onednn/winograd/transforms_template.h"

/* Number of accumulators in a full block of products. Fewer cannot hide the latency of the multiply-adds, and more do
 * not fit into the 16 registers of AVX2, or the 32 of AVX-512, with the factors. */
#if CT_LANES == 8
#define ACCUMULATORS 12
#else
#define ACCUMULATORS 16
#endif

typedef int32_t ivec __attribute__((vector_size(4 * CT_LANES)));

struct correlation {
	struct image in;
	struct ct__winograd_grid grid;
	struct ct__winograd_scratch sizes;
	int parts; /* ranges of output channels */
	ct_vec *weights, *scratch;
	const ct_vec *bias;
	void *out;
	int blocks, h, w; /* of out */
	bool relu, sum;
	const struct ct_winograd *op;
	enum ct_conv_pass pass;
};

/* Computes `rows` tiles times `cols` blocks of results, which stay in registers until all channels have been added. */
CT_INLINE void product_block(const ct_vec *v, size_t v_step, const ct_vec *u, int blocks, ct_vec *m, size_t m_step,
			     const int rows, const int cols)
{
	ct_vec sum[ACCUMULATORS];

	CT_UNROLL
	for (int i = 0; i < rows * cols; i++)
		sum[i] = (ct_vec){0};
	for (int c = 0; c < blocks; c++, v += v_step) {
		const float *x = (const float *)v;

		for (int l = 0; l < CT_LANES; l++, u += cols) {
			CT_UNROLL
			for (int r = 0; r < rows; r++) {
				CT_UNROLL
				for (int k = 0; k < cols; k++)
					sum[r * cols + k] += x[r * CT_LANES + l] * u[k];
			}
		}
	}
	CT_UNROLL
	for (int r = 0; r < rows; r++) {
		CT_UNROLL
		for (int k = 0; k < cols; k++)
			m[(size_t)k * m_step + (size_t)r] = sum[r * cols + k];
	}
}

CT_INLINE void product_panel(const ct_vec *v, int tiles, const ct_vec *u, int blocks, ct_vec *m, const int cols)
{
	const size_t step = (size_t)tiles;
	int t = 0;

	for (; cols == 1 && t + ACCUMULATORS <= tiles; t += ACCUMULATORS)
		product_block(v + t, step, u, blocks, m + t, step, ACCUMULATORS, 1);
	for (; t + ACCUMULATORS / 2 <= tiles; t += ACCUMULATORS / 2)
		product_block(v + t, step, u, blocks, m + t, step, ACCUMULATORS / 2, cols);
	if ((tiles - t) & 4) {
		product_block(v + t, step, u, blocks, m + t, step, 4, cols);
		t += 4;
	}
	if ((tiles - t) & 2) {
		product_block(v + t, step, u, blocks, m + t, step, 2, cols);
		t += 2;
	}
	if ((tiles - t) & 1)
		product_block(v + t, step, u, blocks, m + t, step, 1, cols);
}

/* m[out][tiles] = v[in][tiles] times u[in*b][out], for one point. */
static void product(const ct_vec *v, int tiles, int in, const ct_vec *u, int out, ct_vec *m)
{
	int k = 0;

	for (; k + 2 <= out; k += 2, u += (size_t)in * CT_LANES * 2, m += 2 * (size_t)tiles)
		product_panel(v, tiles, u, in, m, 2);
	if (k < out)
		product_panel(v, tiles, u, in, m, 1);
}

/* Transforms column j of the points with A^T along H. */
static void result_points(const ct_vec *m, int tiles, int blocks, int j, ct_vec *half)
{
	const size_t step = (size_t)tiles * (size_t)blocks;

	for (size_t i = 0; i < step; i++) {
		ct_vec a[POINTS], y[RESULTS];

		for (int p = 0; p < POINTS; p++)
			a[p] = m[(size_t)p * step + i];
		result_transform(a, y);
		for (int r = 0; r < RESULTS; r++)
			half[(i * RESULTS + (size_t)r) * POINTS + (size_t)j] = y[r];
	}
}

/* Computes one row of results in a row of tiles: A^T along W, bias, ReLU. */
CT_INLINE void result_row(const ct_vec *half, int tiles, const ct_vec *bias, const bool relu, const bool sum,
			  const bool bf16, int w, void *y, size_t row)
{
	for (int t = 0; t < tiles; t++, half += RESULTS * POINTS, row += RESULTS) {
		const int n = w - t * RESULTS;
		ct_vec o[RESULTS];

		result_transform(half, o);
		for (int i = 0; i < RESULTS; i++) {
			o[i] += *bias;
			if (sum && i < n)
				o[i] += ct_vec_load(y, row + (size_t)i, bf16);
			if (relu)
				o[i] = (ct_vec)((ivec)o[i] & ~(o[i] < (ct_vec){0})); /* NaN stays NaN */
		}
		if (n >= RESULTS) {
			for (size_t i = 0; i < RESULTS; i++)
				ct_vec_store(y, row + i, o[i], bf16);
		} else {
			for (int i = 0; i < n; i++)
				ct_vec_store(y, row + (size_t)i, o[i], bf16);
		}
	}
}

static void results(const struct correlation *c, struct ct__winograd_unit u, struct ct_winograd_range part,
		    const ct_vec *half)
{
	const int tiles_w = c->grid.tiles_w, rows = u.r1 - u.r0, blocks = part.end - part.begin;

	for (int i = 0; i < (u.n1 - u.n0) * rows * blocks; i++) {
		const int from_k = i % blocks, k = part.begin + from_k, row = i / blocks, n = u.n0 + row / rows,
			  h = (u.r0 + row % rows) * RESULTS;
		const ct_vec *from =
			half + ((size_t)from_k * (size_t)u.tiles + (size_t)row * (size_t)tiles_w) * RESULTS * POINTS;
		size_t to = (((size_t)n * (size_t)c->blocks + (size_t)k) * (size_t)c->h + (size_t)h) * (size_t)c->w;
		ct_vec bias = c->bias ? c->bias[k] : (ct_vec){0};

		for (int r = 0; r < RESULTS && h + r < c->h; r++, to += (size_t)c->w, from += POINTS) {
			if (c->in.bf16)
				result_row(from, tiles_w, &bias, c->relu, c->sum, true, c->w, c->out, to);
			else if (c->sum)
				result_row(from, tiles_w, &bias, c->relu, true, false, c->w, c->out, to);
			else if (c->relu)
				result_row(from, tiles_w, &bias, true, false, false, c->w, c->out, to);
			else
				result_row(from, tiles_w, &bias, false, false, false, c->w, c->out, to);
		}
	}
}

/* Processes one column of points at a time, so that the results of each step are still in the cache when the next step
 * reads them. */
static void run_unit(const struct correlation *c, struct ct__winograd_unit u, struct ct_winograd_range part,
		     ct_vec *scratch)
{
	const int blocks = part.end - part.begin;
	const size_t in = (size_t)c->in.blocks * (size_t)u.tiles, out = (size_t)blocks * (size_t)u.tiles;
	const size_t weights = c->sizes.weights / (POINTS * POINTS);
	ct_vec *columns = scratch, *v = columns + c->sizes.columns, *m = v + c->sizes.input,
	       *half = m + c->sizes.product;
	const ct_vec *w = c->weights + (size_t)c->in.blocks * CT_LANES * (size_t)part.begin;

	input_columns(&c->in, &c->grid, u, columns);
	for (int j = 0; j < POINTS; j++) {
		input_points(columns, c->in.blocks, &c->grid, u, j, v);
		for (size_t i = 0; i < POINTS; i++, w += weights)
			product(v + i * in, u.tiles, c->in.blocks, w, blocks, m + i * out);
		result_points(m, u.tiles, blocks, j, half);
	}
	results(c, u, part, half);
}

static void run_threads(void *arg, int64_t begin, int64_t end)
{
	const struct correlation *c = arg;
	const int64_t jobs = (int64_t)c->grid.units * c->parts, threads = c->op->threads;

	for (int64_t i = begin * jobs / threads; i < end * jobs / threads; i++)
		run_unit(c, ct__winograd_unit(&c->grid, (int)(i % c->grid.units)),
			 ct__winograd_part(c->parts, (int)(i / c->grid.units), c->blocks),
			 c->scratch + (size_t)begin * c->sizes.per_thread);
}

/* Transforms TAPS x TAPS vectors of weights, which are `step` apart, into POINTS x POINTS vectors, which are `u_step`
 * apart and ordered by columns of points. */
static void transform_weights(const ct_vec *g, size_t step, ct_vec *u, size_t u_step)
{
	ct_vec half[POINTS][TAPS];

	for (int s = 0; s < TAPS; s++) {
		ct_vec column[TAPS], v[POINTS];

		for (int r = 0; r < TAPS; r++)
			column[r] = g[(size_t)(r * TAPS + s) * step];
		weights_transform(column, v);
		for (int i = 0; i < POINTS; i++)
			half[i][s] = v[i];
	}
	for (int i = 0; i < POINTS; i++) {
		ct_vec v[POINTS];

		weights_transform(half[i], v);
		for (int j = 0; j < POINTS; j++)
			u[(size_t)(j * POINTS + i) * u_step] = v[j];
	}
}

/* Transforms block `i` of the weights, which is [b c][b k] for each tap. */
static void forward_block(const struct correlation *c, int i)
{
	const int in = c->in.blocks, k = i / in, first = i % in * CT_LANES;
	const ct_vec *g = (const ct_vec *)c->op->weights + (size_t)i * TAPS * TAPS * CT_LANES;

	for (int l = 0; l < CT_LANES; l++)
		transform_weights(g + l, CT_LANES, panel(c->weights, in * CT_LANES, c->blocks, first + l, k),
				  c->sizes.weights / (POINTS * POINTS));
}

/* Does the same with the weights rotated by 180 degrees and transposed: the lanes are the channels C of the result. */
static void backward_block(const struct correlation *c, int i)
{
	const int in = c->in.blocks, k = i / c->blocks, block = i % c->blocks;
	const float *g = c->op->weights + (size_t)i * TAPS * TAPS * CT_LANES * CT_LANES;
	union {
		ct_vec v[TAPS * TAPS];
		float x[TAPS * TAPS][CT_LANES];
	} turned;

	for (int l = 0; l < CT_LANES; l++) {
		for (int t = 0; t < TAPS * TAPS; t++) {
			for (int m = 0; m < CT_LANES; m++)
				turned.x[TAPS * TAPS - 1 - t][m] = g[(t * CT_LANES + m) * CT_LANES + l];
		}
		transform_weights(turned.v, 1, panel(c->weights, in * CT_LANES, c->blocks, k * CT_LANES + l, block),
				  c->sizes.weights / (POINTS * POINTS));
	}
}

static void transform_blocks(void *arg, int64_t begin, int64_t end)
{
	const struct correlation *c = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		if (c->pass == CT_CONV_FORWARD)
			forward_block(c, i);
		else
			backward_block(c, i);
	}
}

static void correlate(struct correlation *c, const struct ct_winograd *op, enum ct_conv_pass pass)
{
	c->op = op;
	c->pass = pass;
	c->grid = ct__winograd_grid(&op->shape, pass);
	c->sizes = ct__winograd_scratch(&op->shape, pass);
	c->parts = ct__winograd_parts(c->blocks, c->grid.units, op->threads);
	c->weights = op->scratch;
	c->scratch = c->weights + c->sizes.weights;
	ct_parallel_for(op->threads, c->in.blocks * c->blocks, 1, transform_blocks, c);
	ct_parallel_for(op->threads, op->threads, 1, run_threads, c);
}

static void forward(const struct ct_winograd *op)
{
	const struct ct_winograd_shape *s = &op->shape;
	struct correlation c = {
		.in = {op->x, s->bf16, s->c / CT_LANES, s->h, s->w, s->pad_h, s->pad_w, {0, s->c / CT_LANES}},
		.bias = (const ct_vec *)op->bias,
		.out = op->y,
		.blocks = s->k / CT_LANES,
		.h = s->h + 2 * s->pad_h - (TAPS - 1),
		.w = s->w + 2 * s->pad_w - (TAPS - 1),
		.relu = op->relu,
		.sum = op->sum};

	correlate(&c, op, CT_CONV_FORWARD);
}

static void backward_data(const struct ct_winograd *op)
{
	const struct ct_winograd_shape *s = &op->shape;
	const int h = s->h + 2 * s->pad_h - (TAPS - 1), w = s->w + 2 * s->pad_w - (TAPS - 1);
	struct correlation c = {.in = {op->dy,
				       s->bf16,
				       s->k / CT_LANES,
				       h,
				       w,
				       TAPS - 1 - s->pad_h,
				       TAPS - 1 - s->pad_w,
				       {0, s->k / CT_LANES}},
				.out = op->dx,
				.blocks = s->c / CT_LANES,
				.h = s->h,
				.w = s->w};

	correlate(&c, op, CT_CONV_BACKWARD_DATA);
}

#endif
