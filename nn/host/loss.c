/* Compiled with -O3: the loops over k are written so that they vectorise without reassociating sums (sixteen fixed
 * partial sums), so results do not depend on the vector width. */
#include "nn/host/host.h"

#include <math.h>
#include <string.h>

#define LANES 16

/* exp(x) for x <= 0 within 2 ulp, below -87 the value at -87; NaN stays NaN. Range reduction to |r| <= ln(2)/2 and the
 * polynomial of Cephes' expf (Moshier). */
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

/* e[j] = exp(z[j] - max); returns their sum. */
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

/* The same without keeping the exponentials. */
static float row_exp_sum(const float *z, int k, float max)
{
	float sum = 0.0f, e[256];

	for (int j = 0; j < k; j += 256)
		sum += row_exp(z + j, k - j < 256 ? k - j : 256, max, e);
	return sum;
}

static void count_hits(const float *z, int label, int k, struct ct_metrics *m)
{
	int before = 0; /* classes that rank before the label: larger, or as large and earlier */

	for (int j = 0; j < label; j++)
		before += z[j] >= z[label];
	for (int j = label + 1; j < k; j++)
		before += z[j] > z[label];
	m->top1 += before < 1;
	m->top5 += before < 5;
}

/* What a row's target is: `hit` shared between two classes, the rest spread over all. */
struct target {
	int a, b; /* the same for a row with one label */
	float weight_a, weight_b, each;
};

static struct target target_of(const struct ct_batch *batch, int row, int k, float smoothing)
{
	const float hit = 1.0f - smoothing, mix = batch->labels_b ? batch->mix[row] : 1.0f;

	return (struct target){.a = batch->labels[row],
			       .b = batch->labels_b ? batch->labels_b[row] : batch->labels[row],
			       .weight_a = hit * mix,
			       .weight_b = hit * (1.0f - mix),
			       .each = smoothing / (float)k};
}

static double row_loss(const float *z, int k, const struct target *t, float smoothing, double log_sum)
{
	double loss = (double)t->weight_a * (log_sum - (double)z[t->a]);

	if (t->weight_b > 0)
		loss += (double)t->weight_b * (log_sum - (double)z[t->b]);
	if (smoothing > 0) {
		double total = 0;
		for (int j = 0; j < k; j++)
			total += (double)z[j];
		loss += (double)smoothing * (log_sum - total / k);
	}
	return loss;
}

void ct_loss_softmax_xent(const float *logits, const struct ct_batch *b, int k, float smoothing, float *dlogits,
			  struct ct_metrics *m)
{
	for (int i = 0; i < b->n; i++) {
		const float *z = logits + (size_t)i * (size_t)k;
		const struct target t = target_of(b, i, k, smoothing);
		float *d = dlogits ? dlogits + (size_t)i * (size_t)k : NULL;
		float max = row_max(z, k);
		float sum = d ? row_exp(z, k, max, d) : row_exp_sum(z, k, max);
		double loss = row_loss(z, k, &t, smoothing, (double)max + (double)logf(sum));
		m->loss += loss;
		if (isfinite(loss))
			count_hits(z, t.a, k, m);
		if (!d)
			continue;
		float inverse = 1.0f / sum;
		for (int j = 0; j < k; j++)
			d[j] = d[j] * inverse - t.each;
		d[t.a] -= t.weight_a;
		d[t.b] -= t.weight_b;
	}
	m->count += b->n;
}

void ct_loss_mse(const float *y, const float *targets, int n, int k, float *dy, struct ct_metrics *m)
{
	const float slope = 2.0f / (float)k;

	for (int i = 0; i < n; i++) {
		size_t row = (size_t)i * (size_t)k;
		double sum = 0;
		for (int j = 0; j < k; j++) {
			float diff = y[row + (size_t)j] - targets[row + (size_t)j];
			sum += (double)diff * (double)diff;
			if (dy)
				dy[row + (size_t)j] = slope * diff;
		}
		m->loss += sum / k;
	}
	m->count += n;
}
