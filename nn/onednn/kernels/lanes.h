/* Vectors of the CT_LANES channels of a block, for kernels on tensors in the layout of block.h (norms, Winograd). On
 * x86, include this header only in files that are compiled for AVX2 and for AVX-512 (nn/CMakeLists.txt).
 * ct__norm_usable returns whether the functions in these files may be called on this processor. */
#ifndef CT_NN_ONEDNN_KERNELS_LANES_H
#define CT_NN_ONEDNN_KERNELS_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "nn/onednn/kernels/block.h"

/* A vector is a register of AVX-512 or AVX2, or two of NEON, which has twice as many as AVX2. */
#ifdef __AVX512F__
#define CT_LANES 16
#define CT_WITH_LANES(name) name##_16
typedef uint16_t ct_bits; /* one bit per lane */
#else
#define CT_LANES 8
#define CT_WITH_LANES(name) name##_8
typedef uint8_t ct_bits;
#endif

#define CT_INLINE static inline __attribute__((always_inline))
/* Unrolls the following loop, which must have a constant number of iterations. */
#ifdef __clang__
#define CT_UNROLL _Pragma("unroll")
#else
#define CT_UNROLL _Pragma("GCC unroll 16")
#endif

typedef float ct_vec __attribute__((vector_size(4 * CT_LANES)));
typedef int32_t ct_ivec __attribute__((vector_size(4 * CT_LANES)));
typedef uint32_t ct_uvec __attribute__((vector_size(4 * CT_LANES)));
typedef uint8_t ct_bvec __attribute__((vector_size(CT_LANES)));
typedef uint16_t ct_hvec __attribute__((vector_size(2 * CT_LANES)));

#ifdef __aarch64__
/* A vector as two registers, for what gcc would otherwise do one lane at a time. */
union ct_halves {
	ct_vec f;
	ct_ivec i;
	float32x4_t f4[2];
	int32x4_t i4[2];
	uint32x4_t u4[2];
};
#endif

CT_INLINE ct_vec ct_vec_every(float x)
{
	return (ct_vec){0} + x;
}

CT_INLINE ct_vec ct_vec_choose(ct_ivec mask, ct_vec yes, ct_vec no)
{
	return (ct_vec)((mask & (ct_ivec)yes) | (~mask & (ct_ivec)no));
}

/* Returns the mask of the lanes in which a <= b: not those in which one is NaN. */
CT_INLINE ct_ivec ct_vec_at_most(ct_vec a, ct_vec b)
{
#ifdef __aarch64__
	const union ct_halves x = {a}, y = {b};

	return (union ct_halves){.u4 = {vcleq_f32(x.f4[0], y.f4[0]), vcleq_f32(x.f4[1], y.f4[1])}}.i;
#else
	return a <= b;
#endif
}

/* Returns the mask of the lanes that are n. */
CT_INLINE ct_ivec ct_vec_equal(ct_ivec v, int n)
{
#ifdef __aarch64__
	const union ct_halves x = {.i = v};
	const int32x4_t y = vdupq_n_s32(n);

	return (union ct_halves){.u4 = {vceqq_s32(x.i4[0], y), vceqq_s32(x.i4[1], y)}}.i;
#else
	return v == n;
#endif
}

/* Loads element i of a tensor of vectors, which are fp32 or bfloat16; bf16 must be a compile-time constant. Intrinsics
 * are used because gcc 12 would otherwise convert one lane at a time. */
CT_INLINE ct_vec ct_vec_load(const void *x, size_t i, bool bf16)
{
	if (!bf16)
		return ((const ct_vec *)x)[i];
#ifdef __AVX512F__
	ct_uvec wide = (ct_uvec)_mm512_cvtepu16_epi32((__m256i)((const ct_hvec *)x)[i]);
#elif defined(__AVX2__)
	ct_uvec wide = (ct_uvec)_mm256_cvtepu16_epi32((__m128i)((const ct_hvec *)x)[i]);
#else
	ct_uvec wide = __builtin_convertvector(((const ct_hvec *)x)[i], ct_uvec);
#endif
	return (ct_vec)(wide << 16);
}

/* Stores element i. Rounds to nearest, ties to even. */
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
	const ct_ivec nan = ~ct_vec_at_most(v, v);
	ct_uvec rounded = ((bits + 0x7fff + even) & ~(ct_uvec)nan) | ((bits | 0x400000) & (ct_uvec)nan);
#ifdef __AVX512F__
	((ct_hvec *)y)[i] = (ct_hvec)_mm512_cvtepi32_epi16((__m512i)(rounded >> 16));
#else
	((ct_hvec *)y)[i] = __builtin_convertvector(rounded >> 16, ct_hvec);
#endif
#endif
}

/* Returns a mask of the first lanes. */
CT_INLINE ct_ivec ct_vec_first(int lanes)
{
	ct_ivec lane;

	CT_UNROLL
	for (int l = 0; l < CT_LANES; l++)
		lane[l] = l;
	return lane < lanes;
}

/* Load and store the first `lanes` lanes, less than CT_LANES, of fp32, bfloat16 or bytes. The other lanes are 0. The
 * intrinsics replace calls of memcpy. */
CT_INLINE ct_vec ct_vec_load_part(const float *x, int lanes)
{
#ifdef __AVX512F__
	return (ct_vec)_mm512_maskz_loadu_ps((__mmask16)((1u << lanes) - 1), x);
#elif defined(__AVX2__)
	return (ct_vec)_mm256_maskload_ps(x, (__m256i)ct_vec_first(lanes));
#else
	ct_vec v = {0};

	memcpy(&v, x, (size_t)lanes * sizeof(*x));
	return v;
#endif
}

CT_INLINE void ct_vec_store_part(float *x, ct_vec v, int lanes)
{
#ifdef __AVX512F__
	_mm512_mask_storeu_ps(x, (__mmask16)((1u << lanes) - 1), (__m512)v);
#elif defined(__AVX2__)
	_mm256_maskstore_ps(x, (__m256i)ct_vec_first(lanes), (__m256)v);
#else
	memcpy(x, &v, (size_t)lanes * sizeof(*x));
#endif
}

CT_INLINE ct_hvec ct_hvec_load_part(const uint16_t *x, int lanes)
{
#ifdef __AVX512F__
	return (ct_hvec)_mm256_maskz_loadu_epi16((__mmask16)((1u << lanes) - 1), x);
#else
	ct_hvec v = {0};

	memcpy(&v, x, (size_t)lanes * sizeof(*x));
	return v;
#endif
}

CT_INLINE void ct_hvec_store_part(uint16_t *x, ct_hvec v, int lanes)
{
#ifdef __AVX512F__
	_mm256_mask_storeu_epi16(x, (__mmask16)((1u << lanes) - 1), (__m256i)v);
#else
	memcpy(x, &v, (size_t)lanes * sizeof(*x));
#endif
}

CT_INLINE ct_bvec ct_bvec_load_part(const uint8_t *x, int lanes)
{
#ifdef __AVX512F__
	return (ct_bvec)_mm_maskz_loadu_epi8((__mmask16)((1u << lanes) - 1), x);
#else
	ct_bvec v = {0};

	for (int l = 0; l < lanes; l++)
		v[l] = x[l];
	return v;
#endif
}

CT_INLINE void ct_bvec_store_part(uint8_t *x, ct_bvec v, int lanes)
{
#ifdef __AVX512F__
	_mm_mask_storeu_epi8(x, (__mmask16)((1u << lanes) - 1), (__m128i)v);
#else
	for (int l = 0; l < lanes; l++)
		x[l] = v[l];
#endif
}

/* Returns the bit of each lane. */
CT_INLINE ct_ivec ct_vec_lane_bits(void)
{
	ct_ivec bits;

	CT_UNROLL
	for (int l = 0; l < CT_LANES; l++)
		bits[l] = 1 << l;
	return bits;
}

/* Returns the mask as one bit per lane. */
CT_INLINE ct_bits ct_vec_bits(ct_ivec mask)
{
#ifdef __AVX512DQ__
	return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__)
	return (ct_bits)_mm256_movemask_ps((__m256)mask);
#elif defined(__aarch64__)
	const union ct_halves set = {.i = mask & ct_vec_lane_bits()};

	return (ct_bits)vaddvq_s32(vorrq_s32(set.i4[0], set.i4[1]));
#else
	ct_bits bits = 0;
	for (int l = 0; l < CT_LANES; l++)
		bits |= (ct_bits)((mask[l] & 1) << l);
	return bits;
#endif
}

/* Keeps the lanes whose bit is set and sets the others to zero. */
CT_INLINE ct_vec ct_vec_keep(ct_bits bits, ct_vec v)
{
#ifdef __AVX512F__
	return (ct_vec)_mm512_maskz_mov_ps(bits, (__m512)v);
#else
	return ct_vec_choose(ct_vec_equal(ct_vec_lane_bits() & bits, 0), (ct_vec){0}, v);
#endif
}

/* Convert between bytes and 32-bit integers that fit into bytes. Without intrinsics, gcc 12 would convert one lane at a
 * time. */
CT_INLINE ct_ivec ct_vec_widen(ct_bvec x)
{
#ifdef __AVX512F__
	return (ct_ivec)_mm512_cvtepu8_epi32((__m128i)x);
#elif defined(__AVX2__)
	return (ct_ivec)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)x));
#elif defined(__aarch64__)
	const uint16x8_t wide = vmovl_u8((uint8x8_t)x);

	return (union ct_halves){.u4 = {vmovl_u16(vget_low_u16(wide)), vmovl_high_u16(wide)}}.i;
#else
	return __builtin_convertvector(x, ct_ivec);
#endif
}

CT_INLINE ct_bvec ct_vec_narrow(ct_ivec x)
{
#ifdef __AVX512F__
	return (ct_bvec)_mm512_cvtepi32_epi8((__m512i)x);
#elif defined(__AVX2__)
	const __m128i half =
		_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));

	return (ct_bvec)_mm_cvtsi128_si64(_mm_packus_epi16(half, half));
#elif defined(__aarch64__)
	const union ct_halves wide = {.i = x};

	return (ct_bvec)vmovn_u16(vmovn_high_u32(vmovn_u32(wide.u4[0]), wide.u4[1]));
#else
	return __builtin_convertvector(x, ct_bvec);
#endif
}

CT_INLINE void ct_vec_add_to(double *sum, ct_vec x)
{
	for (int l = 0; l < CT_LANES; l++)
		sum[l] += (double)x[l];
}

/* Loads one block of an array [C], with zeros after the last channel. */
CT_INLINE ct_vec ct_vec_of_block(const float *x, int channels, int block)
{
	const int left = channels - block * CT_LANES;
	ct_vec v = {0};

	memcpy(&v, x + block * CT_LANES, (size_t)(left < CT_LANES ? left : CT_LANES) * sizeof(float));
	return v;
}

#endif
