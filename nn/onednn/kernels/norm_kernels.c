/* The work is divided into planes: one row and one block of channels. Two passes over the batch are needed, for sums
 * and for the result. If there are enough blocks for all threads, a thread does both passes over a block, while it is
 * in the cache; otherwise two loops over all planes follow each other. Both add the sums of planes in the order of
 * rows, so the results are the same. Loops run from the last plane to the first where the last ones are still in the
 * cache.
 *
 * The ReLU's mask is computed again from x, with the same expression as in the forward pass; only with a residual,
 * whose value is not kept, it is stored as bits. Types and fused operations are constants of inlined loops. The file is
 * compiled once for each instruction set (select.h): for AVX2, where kernels on bfloat16 are never called, and for
 * AVX-512 and its bfloat16 instructions. Kernels on fp32 must not execute the latter, because they also run on
 * processors without them; they are the instructions of ct_vec_store. */
#include "nn/onednn/kernels/norm_kernels.h"

#include <math.h>

#include "base/parallel.h"
#include "nn/onednn/kernels/norm_sums.h"
#include "nn/onednn/kernels/select.h"

/* The coefficients of a block of channels in a row: z = (x - mean) * slope + shift. Backward: dx = slope * d + base -
 * (x - mean) * tilt. */
struct lanes {
	ct_vec mean, slope, shift, base, tilt;
};

/* How a kernel finds the elements that the ReLU has kept: by recomputing its input from x, or from the mask. */
enum relu { RELU_NONE, RELU_AGAIN, RELU_BITS };

struct job {
	const struct ct_norm *p;
	double *own;        /* output: sums of this rank */
	const double *sums; /* input: sums of all ranks */
	double count;
};

static int n_blocks(const struct ct_norm *p)
{
	return (p->channels + CT_LANES - 1) / CT_LANES;
}

static int channels_of(const struct ct_norm *p, int block)
{
	const int left = p->channels - block * CT_LANES;

	return left < CT_LANES ? left : CT_LANES;
}

static ct_vec inverse_deviation(const struct ct_norm *p, int block)
{
	return ct_norm_inverse_deviation(p->variance, p->channels, block, p->eps);
}

static struct lanes lanes_of(const struct ct_norm *p, int block)
{
	return (struct lanes){.mean = ct_vec_of_block(p->mean, p->channels, block),
			      .slope = ct_vec_of_block(p->gamma, p->channels, block) * inverse_deviation(p, block),
			      .shift = ct_vec_of_block(p->beta, p->channels, block)};
}

static enum relu relu_of(const struct ct_norm *p)
{
	return !p->relu ? RELU_NONE : p->residual || p->mask ? RELU_BITS : RELU_AGAIN;
}

CT_INLINE ct_vec norm_of(ct_vec x, const struct lanes *k)
{
	return (x - k->mean) * k->slope + k->shift;
}

/* Returns the position of a plane, in vectors. */
CT_INLINE size_t plane_at(const struct ct_norm *p, int row, int block)
{
	return ((size_t)row * (size_t)n_blocks(p) + (size_t)block) * (size_t)p->plane;
}

static void sums_of_plane(const struct ct_norm *p, int row, int block, struct ct_norm_partial *out)
{
	if (p->bf16)
		ct_norm_plane_sums(p->x, plane_at(p, row, block), (size_t)p->plane, true, out);
	else
		ct_norm_plane_sums(p->x, plane_at(p, row, block), (size_t)p->plane, false, out);
}

static void sum_partials(const struct ct_norm *p, int block, double *sums)
{
	ct_norm_sum_partials(p->partials, (size_t)p->n, p->channels, block, sums);
}

static void moments_of_block(const struct ct_norm *p, int block, const double *sums, double count)
{
	for (int c = block * CT_LANES; c < block * CT_LANES + channels_of(p, block); c++) {
		double mean = sums[c] / count, variance = sums[p->channels + c] / count - mean * mean;

		p->mean[c] = (float)mean;
		p->variance[c] = variance > 0 || isnan(variance) ? (float)variance : 0;
	}
}

CT_INLINE void forward_loop(const struct ct_norm *p, struct lanes k, size_t first, bool bf16, bool relu, bool residual)
{
	for (size_t i = first; i < first + (size_t)p->plane; i++) {
		ct_vec z = norm_of(ct_vec_load(p->x, i, bf16), &k);

		if (residual)
			z += ct_vec_load(p->residual, i, bf16);
		if (relu) {
			ct_ivec cut = ct_vec_at_most(z, ct_vec_every(0)); /* NaN passes */

			z = ct_vec_choose(cut, ct_vec_every(0), z);
			if (residual && p->mask)
				((ct_bits *)p->mask)[i] = ct_vec_bits(~cut);
		}
		ct_vec_store(p->y, i, z, bf16);
	}
}

static void forward_plane(const struct ct_norm *p, struct lanes k, int row, int block)
{
	const size_t first = plane_at(p, row, block);

	if (p->factor) {
		k.slope *= p->factor[row];
		k.shift *= p->factor[row];
	}
	switch (4 * p->bf16 + 2 * p->relu + (p->residual != NULL)) {
	case 0:
		forward_loop(p, k, first, false, false, false);
		break;
	case 1:
		forward_loop(p, k, first, false, false, true);
		break;
	case 2:
		forward_loop(p, k, first, false, true, false);
		break;
	case 3:
		forward_loop(p, k, first, false, true, true);
		break;
	case 4:
		forward_loop(p, k, first, true, false, false);
		break;
	case 5:
		forward_loop(p, k, first, true, false, true);
		break;
	case 6:
		forward_loop(p, k, first, true, true, false);
		break;
	default:
		forward_loop(p, k, first, true, true, true);
	}
}

CT_INLINE ct_vec cut(const struct ct_norm *p, const struct lanes *k, ct_vec x, ct_vec d, size_t i, enum relu relu)
{
	if (relu == RELU_BITS)
		return ct_vec_keep(((const ct_bits *)p->mask)[i], d);
	return relu == RELU_AGAIN ? ct_vec_choose(ct_vec_at_most(norm_of(x, k), ct_vec_every(0)), ct_vec_every(0), d)
				  : d;
}

/* Returns the gradient after the backward pass of the ReLU: dy, or 0 where the output of the ReLU was 0. two: dy is the
 * sum of two gradients, which is stored for the second pass and read back, so that both passes use the rounded
 * value. */
CT_INLINE ct_vec let_through(const struct ct_norm *p, const struct lanes *k, ct_vec x, size_t i, bool bf16,
			     enum relu relu, bool two)
{
	ct_vec d = ct_vec_load(p->dy, i, bf16);

	if (!two)
		return cut(p, k, x, d, i, relu);
	d = cut(p, k, x, d + ct_vec_load(p->dy2, i, bf16), i, relu);
	ct_vec_store(p->dresidual, i, d, bf16);
	return bf16 ? ct_vec_load(p->dresidual, i, bf16) : d;
}

CT_INLINE void gradient_loop(const struct ct_norm *p, struct lanes k, size_t first, bool bf16, enum relu relu, bool two,
			     struct ct_norm_partial *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t from = 0; from < (size_t)p->plane; from += CT_NORM_CHUNK) {
		const size_t left = (size_t)p->plane - from, n = left < CT_NORM_CHUNK ? left : CT_NORM_CHUNK;
		ct_vec sum[2] = {{0}}, dot[2] = {{0}};
		size_t i = first + from;

		for (; i + 2 <= first + from + n; i += 2) {
			for (size_t j = 0; j < 2; j++) {
				ct_vec x = ct_vec_load(p->x, i + j, bf16),
				       d = let_through(p, &k, x, i + j, bf16, relu, two);

				sum[j] += d;
				dot[j] += d * (x - k.mean);
			}
		}
		for (; i < first + from + n; i++) {
			ct_vec x = ct_vec_load(p->x, i, bf16), d = let_through(p, &k, x, i, bf16, relu, two);

			sum[0] += d;
			dot[0] += d * (x - k.mean);
		}
		ct_vec_add_to(out->a, sum[0] + sum[1]);
		ct_vec_add_to(out->b, dot[0] + dot[1]);
	}
}

CT_INLINE void gradient_loops(const struct ct_norm *p, struct lanes k, size_t first, bool bf16, bool two,
			      struct ct_norm_partial *out)
{
	switch (relu_of(p)) {
	case RELU_NONE:
		gradient_loop(p, k, first, bf16, RELU_NONE, two, out);
		break;
	case RELU_AGAIN:
		gradient_loop(p, k, first, bf16, RELU_AGAIN, two, out);
		break;
	case RELU_BITS:
		gradient_loop(p, k, first, bf16, RELU_BITS, two, out);
	}
}

static void gradient_plane(const struct ct_norm *p, struct lanes k, int row, int block, struct ct_norm_partial *out)
{
	const size_t first = plane_at(p, row, block);

	if (p->bf16 && p->dy2)
		gradient_loops(p, k, first, true, true, out);
	else if (p->bf16)
		gradient_loops(p, k, first, true, false, out);
	else if (p->dy2)
		gradient_loops(p, k, first, false, true, out);
	else
		gradient_loops(p, k, first, false, false, out);
	for (int l = 0; p->factor && l < CT_LANES; l++) {
		out->a[l] *= (double)p->factor[row];
		out->b[l] *= (double)p->factor[row];
	}
}

/* Divides the sums of dy*(x - mean) by the standard deviation, and computes this rank's gradients. */
static void gradients_of_block(const struct ct_norm *p, int block, double *sums)
{
	for (int c = block * CT_LANES; c < block * CT_LANES + channels_of(p, block); c++) {
		sums[p->channels + c] /= sqrt((double)p->variance[c] + (double)p->eps);
		p->dbeta[c] = (float)sums[c];
		p->dgamma[c] = (float)sums[p->channels + c];
	}
}

static struct lanes backward_lanes(const struct ct_norm *p, int block, const double *sums, double count)
{
	struct lanes k = lanes_of(p, block);
	ct_vec sum = {0}, dot = {0};

	for (int l = 0; l < channels_of(p, block); l++) {
		sum[l] = (float)(sums[block * CT_LANES + l] / count);
		dot[l] = (float)(sums[p->channels + block * CT_LANES + l] / count);
	}
	k.base = -k.slope * sum;
	k.tilt = k.slope * inverse_deviation(p, block) * dot;
	return k;
}

/* The sum of two gradients is stored after the backward pass of the ReLU. */
CT_INLINE void backward_loop(const struct ct_norm *p, struct lanes k, float factor, size_t first, bool bf16,
			     enum relu relu, bool residual)
{
	const ct_vec slope = k.slope * factor;
	const void *dy = p->dy2 ? p->dresidual : p->dy;

	for (size_t i = first; i < first + (size_t)p->plane; i++) {
		ct_vec x = ct_vec_load(p->x, i, bf16), d = cut(p, &k, x, ct_vec_load(dy, i, bf16), i, relu);

		if (residual)
			ct_vec_store(p->dresidual, i, d, bf16);
		ct_vec_store(p->dx, i, slope * d + (k.base - (x - k.mean) * k.tilt), bf16);
	}
}

CT_INLINE void backward_loops(const struct ct_norm *p, const struct lanes *k, float factor, size_t first, bool bf16)
{
	const enum relu relu = p->dy2 ? RELU_NONE : relu_of(p);

	if (relu == RELU_BITS && p->dresidual)
		backward_loop(p, *k, factor, first, bf16, RELU_BITS, true);
	else if (relu == RELU_BITS)
		backward_loop(p, *k, factor, first, bf16, RELU_BITS, false);
	else if (relu == RELU_AGAIN)
		backward_loop(p, *k, factor, first, bf16, RELU_AGAIN, false);
	else
		backward_loop(p, *k, factor, first, bf16, RELU_NONE, false);
}

static void backward_plane(const struct ct_norm *p, const struct lanes *k, int row, int block)
{
	const float factor = p->factor ? p->factor[row] : 1.0f;

	if (p->bf16)
		backward_loops(p, k, factor, plane_at(p, row, block), true);
	else
		backward_loops(p, k, factor, plane_at(p, row, block), false);
}

static void sums_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;

	/* Run from the last plane to the first: the preceding convolution wrote the last planes last, so they are still
	 * in the cache. */
	for (int i = (int)end - 1; i >= (int)begin; i--)
		sums_of_plane(p, i / n_blocks(p), i % n_blocks(p), &p->partials[i]);
}

static void forward_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;

	for (int i = (int)begin; i < (int)end; i++)
		forward_plane(p, lanes_of(p, i % n_blocks(p)), i / n_blocks(p), i % n_blocks(p));
}

static void gradient_range(void *arg, int64_t begin, int64_t end)
{
	const struct ct_norm *p = ((const struct job *)arg)->p;

	for (int i = (int)begin; i < (int)end; i++)
		gradient_plane(p, lanes_of(p, i % n_blocks(p)), i / n_blocks(p), i % n_blocks(p), &p->partials[i]);
}

/* Run from the last plane to the first, because the backward pass of the preceding convolution starts with the first
 * planes. */
static void backward_range(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const int blocks = n_blocks(j->p);

	for (int i = (int)end - 1; i >= (int)begin; i--) {
		const struct lanes k = backward_lanes(j->p, i % blocks, j->sums, j->count);

		backward_plane(j->p, &k, i / blocks, i % blocks);
	}
}

static void norm_sums(const struct ct_norm *p, double *sums)
{
	struct job j = {.p = p};

	ct_parallel_for(p->threads, p->n * n_blocks(p), 1, sums_range, &j);
	for (int b = 0; b < n_blocks(p); b++)
		sum_partials(p, b, sums);
}

static void norm_moments(const struct ct_norm *p, const double *sums, double count)
{
	for (int b = 0; b < n_blocks(p); b++)
		moments_of_block(p, b, sums, count);
}

static void norm_apply(const struct ct_norm *p)
{
	struct job j = {.p = p};

	ct_parallel_for(p->threads, p->n * n_blocks(p), 1, forward_range, &j);
}

static void norm_gradient_sums(const struct ct_norm *p, double *sums)
{
	struct job j = {.p = p};

	ct_parallel_for(p->threads, p->n * n_blocks(p), 1, gradient_range, &j);
	for (int b = 0; b < n_blocks(p); b++) {
		sum_partials(p, b, sums);
		gradients_of_block(p, b, sums);
	}
}

static void norm_gradient_apply(const struct ct_norm *p, const double *sums, double count)
{
	struct job j = {.p = p, .sums = sums, .count = count};

	ct_parallel_for(p->threads, p->n * n_blocks(p), 1, backward_range, &j);
}

/* Runs both passes block by block: the rows of a block are still in the cache when the second pass starts. */
static void forward_blocks(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const struct ct_norm *p = j->p;

	for (int b = (int)begin; b < (int)end; b++) {
		struct ct_norm_partial total = {{0}, {0}}, part;

		for (int row = 0; row < p->n; row++) {
			sums_of_plane(p, row, b, &part);
			ct_norm_add_partial(&total, &part);
		}
		ct_norm_write_sums(&total, p->channels, b, j->own);
		moments_of_block(p, b, j->own, j->count);
		const struct lanes k = lanes_of(p, b);
		for (int row = p->n - 1; row >= 0; row--)
			forward_plane(p, k, row, b);
	}
}

static void backward_blocks(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const struct ct_norm *p = j->p;

	for (int b = (int)begin; b < (int)end; b++) {
		const struct lanes k = lanes_of(p, b);
		struct ct_norm_partial total = {{0}, {0}}, part;

		for (int row = 0; row < p->n; row++) {
			gradient_plane(p, k, row, b, &part);
			ct_norm_add_partial(&total, &part);
		}
		ct_norm_write_sums(&total, p->channels, b, j->own);
		gradients_of_block(p, b, j->own);
		const struct lanes l = backward_lanes(p, b, j->own, j->count);
		for (int row = p->n - 1; row >= 0; row--)
			backward_plane(p, &l, row, b);
	}
}

/* Returns whether there are enough blocks to keep all threads busy. */
static bool by_blocks(const struct ct_norm *p)
{
	const int blocks = n_blocks(p), threads = p->threads > 1 ? p->threads : 1,
		  rounds = (blocks + threads - 1) / threads;

	return blocks * 8 >= rounds * threads * 7;
}

static void norm_forward(const struct ct_norm *p)
{
	struct job j = {.p = p, .own = ct__norm_scratch_sums(p), .count = (double)p->n * p->plane};

	if (by_blocks(p)) {
		ct_parallel_for(p->threads, n_blocks(p), 1, forward_blocks, &j);
		return;
	}
	norm_sums(p, j.own);
	norm_moments(p, j.own, j.count);
	norm_apply(p);
}

static void norm_backward(const struct ct_norm *p)
{
	struct job j = {.p = p, .own = ct__norm_scratch_sums(p), .count = (double)p->n * p->plane};

	if (by_blocks(p)) {
		ct_parallel_for(p->threads, n_blocks(p), 1, backward_blocks, &j);
		return;
	}
	norm_gradient_sums(p, j.own);
	norm_gradient_apply(p, j.own, j.count);
}

const struct ct_norm_kernels CT_WITH_LANES(ct__norm_kernels) = {
	norm_forward, norm_backward, norm_sums, norm_moments, norm_apply, norm_gradient_sums, norm_gradient_apply};
