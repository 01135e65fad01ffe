/* Vectors of the 16 channels of a block, for the norm kernels on [N,C/16,H,W,16] tensors; sums of a plane of one image
 * and block that do not lose to cancellation. Compiled for AVX-512 where the processor is x86 (ct__norm_usable). */
#ifndef CT_NN_ONEDNN_NORM_LANES_H
#define CT_NN_ONEDNN_NORM_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define CT_NORM_LANES 16
/* Vectors that are summed in single precision */
#define CT_NORM_CHUNK 256
#define CT_INLINE static inline __attribute__((always_inline))

typedef float ct_vec __attribute__((vector_size(4 * CT_NORM_LANES)));
typedef int32_t ct_ivec __attribute__((vector_size(4 * CT_NORM_LANES)));
typedef uint32_t ct_uvec __attribute__((vector_size(4 * CT_NORM_LANES)));
typedef uint16_t ct_hvec __attribute__((vector_size(2 * CT_NORM_LANES)));

/* Sums of an image and block of channels */
struct ct_norm_partial {
	double a[CT_NORM_LANES], b[CT_NORM_LANES];
};

CT_INLINE ct_vec ct_vec_every(float x)
{
	return (ct_vec){0} + x;
}

CT_INLINE ct_vec ct_vec_choose(ct_ivec mask, ct_vec yes, ct_vec no)
{
	return (ct_vec)((mask & (ct_ivec)yes) | (~mask & (ct_ivec)no));
}

/* Element i of a tensor of vectors: fp32 or bfloat16 (bf16 is a constant for the compiler). gcc 12 converts lane by lane
 * when left to itself. */
CT_INLINE ct_vec ct_vec_load(const void *x, size_t i, bool bf16)
{
	if (!bf16)
		return ((const ct_vec *)x)[i];
#ifdef __AVX512F__
	ct_uvec wide = (ct_uvec)_mm512_cvtepu16_epi32((__m256i)((const ct_hvec *)x)[i]);
#else
	ct_uvec wide = __builtin_convertvector(((const ct_hvec *)x)[i], ct_uvec);
#endif
	return (ct_vec)(wide << 16);
}

/* Rounds to nearest even. */
CT_INLINE void ct_vec_store(void *y, size_t i, ct_vec v, bool bf16)
{
	if (!bf16) {
		((ct_vec *)y)[i] = v;
		return;
	}
#ifdef __AVX512BF16__
	((ct_hvec *)y)[i] = (ct_hvec)_mm512_cvtneps_pbh((__m512)v);
#else
	const ct_uvec bits = (ct_uvec)v, even = bits >> 16 & 1;
	const ct_ivec nan = v != v;
	ct_uvec rounded = ((bits + 0x7fff + even) & ~(ct_uvec)nan) | ((bits | 0x400000) & (ct_uvec)nan);
#ifdef __AVX512F__
	((ct_hvec *)y)[i] = (ct_hvec)_mm512_cvtepi32_epi16((__m512i)(rounded >> 16));
#else
	((ct_hvec *)y)[i] = __builtin_convertvector(rounded >> 16, ct_hvec);
#endif
#endif
}

/* One bit a lane */
CT_INLINE uint16_t ct_vec_bits(ct_ivec mask)
{
#ifdef __AVX512DQ__
	return _mm512_movepi32_mask((__m512i)mask);
#else
	uint16_t bits = 0;
	for (int l = 0; l < CT_NORM_LANES; l++)
		bits |= (uint16_t)((mask[l] & 1) << l);
	return bits;
#endif
}

/* The lanes whose bit is set, zeros elsewhere */
CT_INLINE ct_vec ct_vec_keep(uint16_t bits, ct_vec v)
{
#ifdef __AVX512F__
	return (ct_vec)_mm512_maskz_mov_ps(bits, (__m512)v);
#else
	for (int l = 0; l < CT_NORM_LANES; l++)
		v[l] = bits >> l & 1 ? v[l] : 0.0f;
	return v;
#endif
}

CT_INLINE void ct_vec_add_to(double *sum, ct_vec x)
{
	for (int l = 0; l < CT_NORM_LANES; l++)
		sum[l] += (double)x[l];
}

/* A block of a per-channel array, zeros past the last channel. */
CT_INLINE ct_vec ct_vec_of_block(const float *x, int channels, int block)
{
	const int left = channels - block * CT_NORM_LANES;
	ct_vec v = {0};

	memcpy(&v, x + block * CT_NORM_LANES, (size_t)(left < CT_NORM_LANES ? left : CT_NORM_LANES) * sizeof(float));
	return v;
}

/* a += sum of x, b += sum of x*x, the squares as deviations from the mean of the first four. Single precision is enough for
 * those: four of n values lie around that mean, so its distance from the mean of all is at most sqrt(n/4) deviations. */
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
	for (int l = 0; l < CT_NORM_LANES; l++) {
		/* x = m + d: sum x = n m + sum d, sum x^2 = sum d^2 + 2m sum d + n m^2 */
		double m = (double)middle[l], d = (double)sum[l];
		out->a[l] += (double)n * m + d;
		out->b[l] += (double)squares[l] + m * (2 * d + (double)n * m);
	}
}

/* Sums of the vectors first..first+n-1. */
CT_INLINE void ct_norm_plane_sums(const void *x, size_t first, size_t n, bool bf16, struct ct_norm_partial *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < n; i += CT_NORM_CHUNK)
		ct_norm_chunk(x, first + i, n - i < CT_NORM_CHUNK ? n - i : CT_NORM_CHUNK, bf16, out);
}

#endif
