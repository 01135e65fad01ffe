/* Sums over a plane (one image, one block of channels) for the norm kernels. Short chunks are summed in single
 * precision, which is accurate enough, and the sums of chunks are added in double. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_SUMS_H
#define CT_NN_ONEDNN_KERNELS_NORM_SUMS_H

#include <math.h>

#include "nn/onednn/kernels/lanes.h"

/* Number of vectors in a chunk, which is summed in single precision. */
#define CT_NORM_CHUNK 256

/* The sums of one image and one block of channels. */
struct ct_norm_partial {
	double a[CT_LANES], b[CT_LANES];
};

/* a += sum of x, b += sum of x*x. Instead of x, the deviations of x from the mean of the first four values are summed.
 * Single precision is sufficient for these deviations, because the mean of four out of n values is at most sqrt(n/4)
 * standard deviations away from the mean of all n values. */
CT_INLINE void ct_norm_chunk(const void *x, size_t first, size_t n, bool bf16, struct ct_norm_partial *out)
{
	ct_vec s[4] = {{0}}, q[4] = {{0}}, middle = ct_vec_load(x, first, bf16);
	size_t i = 0;

	if (n >= 4)
		middle = ((middle + ct_vec_load(x, first + 1, bf16)) +
			  (ct_vec_load(x, first + 2, bf16) + ct_vec_load(x, first + 3, bf16))) *
			 0.25f;
	for (; i + 4 <= n; i += 4) {
		for (size_t k = 0; k < 4; k++) {
			ct_vec d = ct_vec_load(x, first + i + k, bf16) - middle;

			s[k] += d;
			q[k] += d * d;
		}
	}
	for (; i < n; i++) {
		ct_vec d = ct_vec_load(x, first + i, bf16) - middle;

		s[0] += d;
		q[0] += d * d;
	}
	const ct_vec sum = (s[0] + s[1]) + (s[2] + s[3]), squares = (q[0] + q[1]) + (q[2] + q[3]);
	for (int l = 0; l < CT_LANES; l++) {
		/* x = m + d: sum x = n m + sum d, sum x^2 = sum d^2 + 2m sum d + n m^2 */
		double m = (double)middle[l], d = (double)sum[l];

		out->a[l] += (double)n * m + d;
		out->b[l] += (double)squares[l] + m * (2 * d + (double)n * m);
	}
}

/* Computes the sums of the vectors first..first+n-1. */
CT_INLINE void ct_norm_plane_sums(const void *x, size_t first, size_t n, bool bf16, struct ct_norm_partial *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < n; i += CT_NORM_CHUNK)
		ct_norm_chunk(x, first + i, n - i < CT_NORM_CHUNK ? n - i : CT_NORM_CHUNK, bf16, out);
}

CT_INLINE void ct_norm_add_partial(struct ct_norm_partial *total, const struct ct_norm_partial *part)
{
	for (int l = 0; l < CT_LANES; l++) {
		total->a[l] += part->a[l];
		total->b[l] += part->b[l];
	}
}

/* Writes the sums of a block of channels to sums [2*C]. */
CT_INLINE void ct_norm_write_sums(const struct ct_norm_partial *total, int channels, int block, double *sums)
{
	const int left = channels - block * CT_LANES;
	const size_t bytes = (size_t)(left < CT_LANES ? left : CT_LANES) * sizeof(double);

	memcpy(sums + block * CT_LANES, total->a, bytes);
	memcpy(sums + channels + block * CT_LANES, total->b, bytes);
}

/* Adds partials [n][blocks] of a block of channels, always in this order, and writes the result to sums [2*C]. */
CT_INLINE void ct_norm_sum_partials(const struct ct_norm_partial *partials, size_t n, int channels, int block,
				    double *sums)
{
	const size_t blocks = ((size_t)channels + CT_LANES - 1) / CT_LANES;
	struct ct_norm_partial total = {{0}, {0}};

	for (size_t i = 0; i < n; i++)
		ct_norm_add_partial(&total, &partials[i * blocks + (size_t)block]);
	ct_norm_write_sums(&total, channels, block, sums);
}

/* Returns 1 / sqrt(variance + eps) for a block of the channels of variance [C]. */
CT_INLINE ct_vec ct_norm_inverse_deviation(const float *variance, int channels, int block, float eps)
{
	ct_vec v = ct_vec_of_block(variance, channels, block) + eps;

	for (int l = 0; l < CT_LANES; l++)
		v[l] = 1.0f / sqrtf(v[l]);
	return v;
}

#endif
