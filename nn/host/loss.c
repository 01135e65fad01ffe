/* The maximum of a row is subtracted before exponentials are taken, so that none overflows. In training, they are
 * stored where the gradient will be, so they are computed once. A row whose loss is not finite counts as wrong. Losses
 * are double and are added in the order of rows, in blocks of BLOCK_ROWS.
 *
 * Compiled with -O3. Each sum over k is divided into sixteen fixed partial sums. The compiler can therefore vectorize
 * these loops without reassociation, and results do not depend on the vector width. For the same reason, the
 * exponential is an inline polynomial. nn/cuda/kernels/loss.cu has the same formulas. */
#include "nn/host/host.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/parallel.h"

#define LANES 16

/* Returns exp(x) for x <= 0 within 2 ulp. Below -87, returns the value at -87; NaN stays NaN. Reduces the range to |r|
 * <= ln(2)/2 and uses the polynomial of Cephes' expf (Moshier). */
static inline float exp_nonpositive(float x)
{
	x = x < -87.0f ? -87.0f : x;
	const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it leaves round(x/ln 2) in the low bits */
	float shifted = x * 1.44269504088896341f + shifter;
	float n = shifted - shifter;
	float r = x - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	float y = 1.9875691500e-4f;
	y = y * r + 1.3981999507e-3f;
	y = y * r + 8.3334519073e-3f;
	y = y * r + 4.1665795894e-2f;
	y = y * r + 1.6666665459e-1f;
	y = y * r + 5.0000001201e-1f;
	y = y * (r * r) + r + 1.0f;
	uint32_t bits;
	memcpy(&bits, &shifted, sizeof(bits));
	bits = (bits << 23) + 0x3f800000u; /* 2^n */
	float scale;
	memcpy(&scale, &bits, sizeof(scale));
	return y * scale;
}

static float row_max(const float *z, int k)
{
	float part[LANES], max = z[0];
	int j = 0;

	for (int l = 0; l < LANES; l++)
		part[l] = z[0];
	for (; j + LANES <= k; j += LANES) {
		for (int l = 0; l < LANES; l++)
			part[l] = z[j + l] > part[l] ? z[j + l] : part[l];
	}
	for (; j < k; j++)
		max = z[j] > max ? z[j] : max;
	for (int l = 0; l < LANES; l++)
		max = part[l] > max ? part[l] : max;
	return max;
}

static float add_lanes(const float *part)
{
	float sum = 0.0f;

	for (int l = 0; l < LANES; l++)
		sum += part[l];
	return sum;
}

/* Sets e[j] = exp(z[j] - max) and returns the sum. */
static float row_exp(const float *z, int k, float max, float *e)
{
	float part[LANES] = {0}, tail = 0.0f;
	int j = 0;

	for (int i = 0; i < k; i++)
		e[i] = exp_nonpositive(z[i] - max);
	for (; j + LANES <= k; j += LANES) {
		for (int l = 0; l < LANES; l++)
			part[l] += e[j + l];
	}
	for (; j < k; j++)
		tail += e[j];
	return k < LANES ? tail : add_lanes(part) + tail;
}

/* The same without storing the exponentials. */
static float row_exp_sum(const float *z, int k, float max)
{
	float sum = 0.0f, e[256];

	for (int j = 0; j < k; j += 256)
		sum += row_exp(z + j, k - j < 256 ? k - j : 256, max, e);
	return sum;
}

/* Returns the number of classes that rank before the label, that is, with a larger logit, or with an equal logit and a
 * smaller index. */
static int rank_of(const float *z, int label, int k)
{
	int before = 0;

	for (int j = 0; j < label; j++)
		before += z[j] >= z[label];
	for (int j = label + 1; j < k; j++)
		before += z[j] > z[label];
	return before;
}

/* Several threads compute the rows of a block. The losses are then added in row order, so that the sum does not depend
 * on the number of threads. */
#define BLOCK_ROWS 1024
/* Smallest piece of work for one thread, in elements of rows: about 20 microseconds. */
#define GRAIN_ELEMS 16384

struct block {
	const struct ct_batch *batch;
	const float *logits; /* of all rows */
	float *dlogits;
	int k, first; /* first: row of the batch where the block starts */
	float smoothing;
	const float *class_weights; /* [k] or NULL */
	float mean_weight;          /* of the classes; 1 without class weights */
	double loss[BLOCK_ROWS];
	bool top1[BLOCK_ROWS], top5[BLOCK_ROWS];
};

/* The target of a row: `weight_a` and `weight_b` for two classes, plus smoothing / k for each class, multiplied by the
 * weight of that class. `all` is the sum: 1 without class weights. */
struct target {
	int a, b; /* equal for a row with one label */
	float weight_a, weight_b, all;
};

static struct target target_of(const struct block *block, int row)
{
	const struct ct_batch *batch = block->batch;
	const float hit = 1.0f - block->smoothing, mix = batch->labels_b ? batch->mix[row] : 1.0f;
	struct target t = {.a = batch->labels[row],
			   .b = batch->labels_b ? batch->labels_b[row] : batch->labels[row],
			   .weight_a = hit * mix,
			   .weight_b = hit * (1.0f - mix),
			   .all = 1.0f};

	if (block->class_weights) {
		t.weight_a *= block->class_weights[t.a];
		t.weight_b *= block->class_weights[t.b];
		t.all = t.weight_a + t.weight_b + block->smoothing * block->mean_weight;
	}
	return t;
}

static double row_loss(const struct block *b, const float *z, const struct target *t, double log_sum)
{
	double loss = (double)t->weight_a * (log_sum - (double)z[t->a]);

	if (t->weight_b > 0)
		loss += (double)t->weight_b * (log_sum - (double)z[t->b]);
	if (b->smoothing > 0) {
		double total = 0;

		for (int j = 0; j < b->k; j++)
			total += b->class_weights ? (double)b->class_weights[j] * (double)z[j] : (double)z[j];
		loss += (double)b->smoothing * ((double)b->mean_weight * log_sum - total / b->k);
	}
	return loss;
}

static double xent_row(struct block *b, int i, const float *z, float *d)
{
	const struct target t = target_of(b, b->first + i);
	const float max = row_max(z, b->k), sum = d ? row_exp(z, b->k, max, d) : row_exp_sum(z, b->k, max);
	const double loss = row_loss(b, z, &t, (double)max + (double)logf(sum));
	const int before = isfinite(loss) ? rank_of(z, t.a, b->k) : INT_MAX;

	b->top1[i] = before < 1;
	b->top5[i] = before < 5;
	if (!d)
		return loss;
	const float inverse = 1.0f / sum * t.all, each = b->smoothing / (float)b->k, *weights = b->class_weights;
	for (int j = 0; j < b->k; j++)
		d[j] = d[j] * inverse - (weights ? each * weights[j] : each);
	d[t.a] -= t.weight_a;
	d[t.b] -= t.weight_b;
	return loss;
}

static void xent_rows(void *arg, int64_t begin, int64_t end)
{
	struct block *b = arg;

	for (int i = (int)begin; i < (int)end; i++) {
		const size_t at = (size_t)(b->first + i) * (size_t)b->k;

		b->loss[i] = xent_row(b, i, b->logits + at, b->dlogits ? b->dlogits + at : NULL);
	}
}

static void mse_rows(void *arg, int64_t begin, int64_t end)
{
	struct block *b = arg;
	const float slope = 2.0f / (float)b->k;

	for (int i = (int)begin; i < (int)end; i++) {
		const size_t at = (size_t)(b->first + i) * (size_t)b->k;
		double sum = 0;

		for (size_t j = at; j < at + (size_t)b->k; j++) {
			const float diff = b->logits[j] - b->batch->targets[j];

			sum += (double)diff * (double)diff;
			if (b->dlogits)
				b->dlogits[j] = slope * diff;
		}
		b->loss[i] = sum / b->k;
		b->top1[i] = b->top5[i] = false;
	}
}

static void add_rows(struct block *b, int threads, ct_range_fn rows, struct ct_metrics *m)
{
	for (b->first = 0; b->first < b->batch->n; b->first += BLOCK_ROWS) {
		const int left = b->batch->n - b->first, n = left < BLOCK_ROWS ? left : BLOCK_ROWS;

		ct_parallel_for(threads, n, GRAIN_ELEMS / b->k, rows, b);
		for (int i = 0; i < n; i++) {
			m->loss += b->loss[i];
			m->top1 += b->top1[i];
			m->top5 += b->top5[i];
		}
	}
	m->count += b->batch->n;
}

static float mean(const float *v, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += (double)v[i];
	return (float)(sum / n);
}

void ct_loss_softmax_xent(int threads, const float *logits, const struct ct_batch *batch, int k, float smoothing,
			  const float *class_weights, float *dlogits, struct ct_metrics *m)
{
	struct block b;

	b.batch = batch;
	b.logits = logits;
	b.dlogits = dlogits;
	b.k = k;
	b.smoothing = smoothing;
	b.class_weights = class_weights;
	b.mean_weight = class_weights ? mean(class_weights, k) : 1.0f;
	add_rows(&b, threads, xent_rows, m);
}

void ct_loss_mse(int threads, const float *y, const struct ct_batch *batch, int k, float *dy, struct ct_metrics *m)
{
	struct block b;

	b.batch = batch;
	b.logits = y;
	b.dlogits = dy;
	b.k = k;
	add_rows(&b, threads, mse_rows, m);
}
