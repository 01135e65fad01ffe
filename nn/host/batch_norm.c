/* Batch norm as plain loops over [N,C,H,W]. stat has mean and variance of each channel, interleaved, then the number of
 * values, then the sums. ct_batch_norm_all_statistics and ct_batch_norm_running put 1/sqrt(var + eps) in place of the
 * variance, so one of them must run before the passes over data. The statistics of one rank are computed in two passes,
 * the second one over deviations from the mean. Deviations cannot be summed over ranks, so for synchronized norms they
 * are converted to sums and back. The same memory then has the two sums of the backward pass. dgamma and dbeta are
 * taken from them before they are summed over ranks, and dx is computed afterwards. */
#include "nn/host/host.h"

#include <math.h>

static const float *plane_of(const struct ct_node *node, const float *x, int i, int c)
{
	return x + ((size_t)i * (size_t)node->shape.c + (size_t)c) * (size_t)node->shape.h * (size_t)node->shape.w;
}

/* Computes mean and biased variance of channel c over rows and positions, in two passes. */
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

/* Computes the sums that are added over ranks: sums[c] is the sum of the values of channel c, sums[C + c] that of their
 * squares; the last element is the number of values. The order is that of nn/onednn/kernels/norm_kernels.h, because
 * another rank may compute the same norm with that kernel. In double precision, sums of squares of fp32 values are
 * precise enough for the variance. */
static void statistics_to_sums(const struct ct_node *node, double *stat)
{
	const int c_count = node->shape.c;
	const double own = stat[2 * c_count];
	double *sums = ct_batch_norm_sums(node, stat);

	for (int c = 0; c < c_count; c++) {
		sums[c] = stat[2 * c] * own;
		sums[c_count + c] = (stat[2 * c + 1] + stat[2 * c] * stat[2 * c]) * own;
	}
	sums[2 * c_count] = own;
}

static enum ct_status sums_to_statistics(const struct ct_node *node, double *stat)
{
	const int c_count = node->shape.c;
	const double *sums = ct_batch_norm_sums(node, stat), count = stat[2 * c_count] = sums[2 * c_count];

	CT_TRY(ct_norm_check_count(node, count));
	for (int c = 0; c < c_count; c++) {
		double mean = sums[c] / count, var = sums[c_count + c] / count - mean * mean;

		stat[2 * c] = mean;
		stat[2 * c + 1] = var < 0 ? 0 : var;
	}
	return CT_OK;
}

double *ct_batch_norm_sums(const struct ct_node *node, double *stat)
{
	return stat + 2 * node->shape.c + 1;
}

void ct_batch_norm_own_statistics(const struct ct_node *node, int n, bool sync, const float *x, double *stat)
{
	const int c_count = node->shape.c;

	for (int c = 0; c < c_count; c++)
		batch_statistics(node, n, x, c, &stat[2 * c], &stat[2 * c + 1]);
	stat[2 * c_count] = (double)n * node->shape.h * node->shape.w;
	if (sync)
		statistics_to_sums(node, stat);
}

enum ct_status ct_batch_norm_all_statistics(const struct ct_node *node, bool sync, float *running_mean,
					    float *running_var, double *stat)
{
	const int c_count = node->shape.c;
	const double m = (double)node->momentum;

	if (sync)
		CT_TRY(sums_to_statistics(node, stat));
	const double count = stat[2 * c_count];
	for (int c = 0; c < c_count; c++) {
		double mean = stat[2 * c], var = stat[2 * c + 1];

		running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * mean);
		running_var[c] = (float)((1 - m) * (double)running_var[c] + m * var * count / (count - 1));
		stat[2 * c + 1] = 1 / sqrt(var + (double)node->eps);
	}
	return CT_OK;
}

void ct_batch_norm_running(const struct ct_node *node, const float *running_mean, const float *running_var,
			   double *stat)
{
	for (int c = 0; c < node->shape.c; c++) {
		stat[2 * c] = (double)running_mean[c];
		stat[2 * c + 1] = 1 / sqrt((double)running_var[c] + (double)node->eps);
	}
}

void ct_batch_norm_forward(const struct ct_node *node, int n, const float *x, const float *gamma, const float *beta,
			   const double *stat, float *y)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;

	for (int c = 0; c < node->shape.c; c++) {
		double mean = stat[2 * c], scale = (double)gamma[c] * stat[2 * c + 1];

		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c);
			float *out = y + (p - x);

			for (size_t o = 0; o < plane; o++)
				out[o] = (float)(((double)p[o] - mean) * scale + (double)beta[c]);
		}
	}
}

/* sums[c]: the sum of dy over channel c; sums[C + c]: the sum of dy * xh. */
static void gradient_sums(const struct ct_node *node, int n, const float *x, const float *dy, const double *stat,
			  double *sums)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;

	for (int c = 0; c < node->shape.c; c++) {
		double mean = stat[2 * c], inv = stat[2 * c + 1], sum = 0, dot = 0;

		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c), *d = plane_of(node, dy, i, c);

			for (size_t o = 0; o < plane; o++) {
				sum += (double)d[o];
				dot += (double)d[o] * ((double)p[o] - mean) * inv;
			}
		}
		sums[c] = sum;
		sums[node->shape.c + c] = dot;
	}
}

void ct_batch_norm_backward_sums(const struct ct_node *node, int n, const float *x, const float *dy, double *stat,
				 float *dgamma, float *dbeta)
{
	const int c_count = node->shape.c;
	double *sums = ct_batch_norm_sums(node, stat);

	gradient_sums(node, n, x, dy, stat, sums);
	for (int c = 0; dgamma && c < c_count; c++) {
		dbeta[c] = (float)sums[c];
		dgamma[c] = (float)sums[c_count + c];
	}
}

void ct_batch_norm_backward_data(const struct ct_node *node, int n, const float *x, const float *gamma, const float *dy,
				 double *stat, float *dx)
{
	const size_t plane = (size_t)node->shape.h * (size_t)node->shape.w;
	const int c_count = node->shape.c;
	const double count = node->fixed_stats ? 1 : stat[2 * c_count], *sums = ct_batch_norm_sums(node, stat);

	for (int c = 0; c < c_count; c++) {
		double mean = stat[2 * c], inv = stat[2 * c + 1];
		/* Fixed statistics do not depend on x. */
		double sum = node->fixed_stats ? 0 : sums[c], dot = node->fixed_stats ? 0 : sums[c_count + c];

		for (int i = 0; i < n; i++) {
			const float *p = plane_of(node, x, i, c), *d = plane_of(node, dy, i, c);
			float *out = dx + (p - x);

			for (size_t o = 0; o < plane; o++) {
				double xh = ((double)p[o] - mean) * inv;

				out[o] += (float)((double)gamma[c] * inv *
						  ((double)d[o] - sum / count - xh * dot / count));
			}
		}
	}
}
