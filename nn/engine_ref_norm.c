#include "nn/engine_ref.h"

#include <math.h>

static const float *plane_of(const struct ct_node *node, const float *x, int i, int c)
{
	return x + ((size_t)i * (size_t)node->shape.c + (size_t)c) * (size_t)node->shape.h * (size_t)node->shape.w;
}

/* Mean and biased variance of channel c over rows and positions, in two passes. */
static void batch_statistics(const struct ct_node *node, int n, const float *x, int c, double *mean, double *var)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;
	const double count = (double)plane * n;
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++) {
		const float *p = plane_of(node, x, i, c);
		for (size_t o = 0; o < plane; o++)
			sum += (double)p[o];
	}
	*mean = sum / count;
	for (int i = 0; i < n; i++) {
		const float *p = plane_of(node, x, i, c);
		for (size_t o = 0; o < plane; o++)
			squares += ((double)p[o] - *mean) * ((double)p[o] - *mean);
	}
	*var = squares / count;
}

void ct_ref_batch_norm_forward(const struct ct_node *node, int n, bool train, const float *x, const float *gamma,
			       const float *beta, float *running_mean, float *running_var, float *y, double *stat)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;
	const double count = (double)plane * n, m = (double)node->momentum;

	for (int c = 0; c < node->shape.c; c++) {
		double mean = (double)running_mean[c], var = (double)running_var[c];
		if (train) {
			batch_statistics(node, n, x, c, &mean, &var);
			running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * mean);
			running_var[c] = (float)((1 - m) * (double)running_var[c] + m * var * count / (count - 1));
		}
		stat[2 * c] = mean;
		stat[2 * c + 1] = 1 / sqrt(var + (double)node->eps);
		double scale = (double)gamma[c] * stat[2 * c + 1];
		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c);
			float *out = y + (p - x);
			for (size_t o = 0; o < plane; o++)
				out[o] = (float)(((double)p[o] - mean) * scale + (double)beta[c]);
		}
	}
}

/* With xh = (x - mean) * inv and m rows*positions: dx = gamma * inv * (dy - sum(dy)/m - xh * sum(dy * xh)/m). */
void ct_ref_batch_norm_backward(const struct ct_node *node, int n, const float *x, const float *gamma, const float *dy,
				const double *stat, float *dx, float *dgamma, float *dbeta)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;
	const double count = (double)plane * n;

	for (int c = 0; c < node->shape.c; c++) {
		double mean = stat[2 * c], inv = stat[2 * c + 1], sum = 0, dot = 0;
		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c), *d = plane_of(node, dy, i, c);
			for (size_t o = 0; o < plane; o++) {
				sum += (double)d[o];
				dot += (double)d[o] * ((double)p[o] - mean) * inv;
			}
		}
		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c), *d = plane_of(node, dy, i, c);
			float *out = dx + (p - x);
			for (size_t o = 0; o < plane; o++) {
				double xh = ((double)p[o] - mean) * inv;
				out[o] += (float)((double)gamma[c] * inv *
						  ((double)d[o] - sum / count - xh * dot / count));
			}
		}
		dgamma[c] = (float)dot;
		dbeta[c] = (float)sum;
	}
}
