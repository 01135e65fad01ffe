#include "data/resize_kernel.h"

#include <stddef.h>

#include "data/resize_axis.h"

#define HALF (1 << (CT_RESIZE_BITS - 1))

static void across_plain(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int taps, uint8_t *dst)
{
	for (int i = 0; i < n; i++, k += 4 * taps, dst += 4) {
		const uint8_t *p = src + 4 * (size_t)from[i];
		int32_t sum[4] = {HALF, HALF, HALF, HALF};

		for (int t = 0; t < taps; t++) {
			for (int c = 0; c < 4; c++)
				sum[c] += p[4 * t + c] * k[4 * t];
		}
		for (int c = 0; c < 4; c++)
			dst[c] = (uint8_t)(sum[c] >> CT_RESIZE_BITS);
	}
}

static void down_plain(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst)
{
	for (int i = 0; i < n; i += CT_RESIZE_ROW) {
		int32_t sum[CT_RESIZE_ROW];

		for (int x = 0; x < CT_RESIZE_ROW; x++)
			sum[x] = HALF;
		for (int t = 0; t < taps; t++) {
			for (int x = 0; x < CT_RESIZE_ROW; x++)
				sum[x] += rows[t][i + x] * k[t];
		}
		for (int x = 0; x < CT_RESIZE_ROW; x++)
			dst[i + x] = (uint8_t)(sum[x] >> CT_RESIZE_BITS);
	}
}

const struct ct_resize_kernel ct_resize_plain = {across_plain, down_plain, 1};

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

/* Two pixels as numbers of 32 bits. */
INLINE AVX2 __m256i load_two(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* Sum over the even taps in the low half, over the odd ones in the high half. */
INLINE AVX2 __m256i weigh(const uint8_t *p, const int32_t *k, int pairs)
{
	__m256i sum = _mm256_setzero_si256();

	for (int i = 0; i < pairs; i++) {
		__m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(k + 8 * i));

		sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(load_two(p + 8 * i), w));
	}
	return sum;
}

/* Rounds what is summed up in a and b: pixel a in the low half, b in the high one. */
INLINE AVX2 __m256i round_two(__m256i a, __m256i b)
{
	__m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));

	return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), CT_RESIZE_BITS);
}

/* Four pixels a turn. `pairs` is a constant in most calls, so that the loop over it is unrolled. */
INLINE AVX2 void across_pairs(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int pairs, uint8_t *dst)
{
	size_t step = 8 * (size_t)pairs;

	for (int i = 0; i < n; i += 4, k += 4 * step) {
		__m256i a = weigh(src + 4 * (size_t)from[i], k, pairs);
		__m256i b = weigh(src + 4 * (size_t)from[i + 1], k + step, pairs);
		__m256i c = weigh(src + 4 * (size_t)from[i + 2], k + 2 * step, pairs);
		__m256i d = weigh(src + 4 * (size_t)from[i + 3], k + 3 * step, pairs);
		__m256i words = _mm256_packs_epi32(round_two(a, c), round_two(b, d));
		__m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));

		_mm_storeu_si128((__m128i *)(void *)(dst + 4 * (size_t)i), bytes);
	}
}

static AVX2 void across_avx2(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int taps, uint8_t *dst)
{
	if (taps % 2 != 0)
		across_plain(src, from, k, n, taps, dst); /* sources of a few pixels */
	else if (taps == 2)
		across_pairs(src, from, k, n, 1, dst);
	else if (taps == 4)
		across_pairs(src, from, k, n, 2, dst);
	else if (taps == 6)
		across_pairs(src, from, k, n, 3, dst);
	else
		across_pairs(src, from, k, n, taps / 2, dst);
}

static AVX2 void down_avx2(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst)
{
	const __m256i half = _mm256_set1_epi32(HALF), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

	for (int i = 0; i < n; i += 32) {
		__m256i a = half, b = half, c = half, d = half;

		for (int t = 0; t < taps; t++) {
			const uint8_t *p = rows[t] + i;
			__m256i w = _mm256_set1_epi32(k[t]);

			a = _mm256_add_epi32(a, _mm256_mullo_epi32(load_two(p), w));
			b = _mm256_add_epi32(b, _mm256_mullo_epi32(load_two(p + 8), w));
			c = _mm256_add_epi32(c, _mm256_mullo_epi32(load_two(p + 16), w));
			d = _mm256_add_epi32(d, _mm256_mullo_epi32(load_two(p + 24), w));
		}
		a = _mm256_packs_epi32(_mm256_srai_epi32(a, CT_RESIZE_BITS), _mm256_srai_epi32(b, CT_RESIZE_BITS));
		c = _mm256_packs_epi32(_mm256_srai_epi32(c, CT_RESIZE_BITS), _mm256_srai_epi32(d, CT_RESIZE_BITS));
		a = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, c), order);
		_mm256_storeu_si256((__m256i *)(void *)(dst + i), a);
	}
}

static const struct ct_resize_kernel with_avx2 = {across_avx2, down_avx2, 2};

#define AVX512 __attribute__((target("avx512f")))

/* Four pixels as numbers of 32 bits. */
INLINE AVX512 __m512i load_four(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Sums over every fourth tap. */
INLINE AVX512 __m512i weigh_four(const uint8_t *p, const int32_t *k, int fours)
{
	__m512i sum = _mm512_mullo_epi32(load_four(p), _mm512_loadu_si512(k));

	for (int i = 1; i < fours; i++) {
		__m512i w = _mm512_loadu_si512(k + 16 * i);

		sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(load_four(p + 16 * i), w));
	}
	return sum;
}

/* What is summed up in a and b: a's first and second half in the low half, b's in the high one. */
INLINE AVX512 __m512i fold(__m512i a, __m512i b)
{
	return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

INLINE AVX512 __m128i round_four(__m512i sum)
{
	sum = _mm512_add_epi32(sum, _mm512_set1_epi32(HALF));
	return _mm512_cvtepi32_epi8(_mm512_srai_epi32(sum, CT_RESIZE_BITS));
}

INLINE AVX512 void across_fours(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int fours,
				uint8_t *dst)
{
	size_t step = 16 * (size_t)fours;

	for (int i = 0; i < n; i += 4, k += 4 * step) {
		__m512i a = weigh_four(src + 4 * (size_t)from[i], k, fours);
		__m512i b = weigh_four(src + 4 * (size_t)from[i + 1], k + step, fours);
		__m512i c = weigh_four(src + 4 * (size_t)from[i + 2], k + 2 * step, fours);
		__m512i d = weigh_four(src + 4 * (size_t)from[i + 3], k + 3 * step, fours);
		__m512i ab = fold(a, b), cd = fold(c, d);
		__m512i sum = _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));

		_mm_storeu_si128((__m128i *)(void *)(dst + 4 * (size_t)i), round_four(sum));
	}
}

static AVX512 void across_avx512(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int taps,
				 uint8_t *dst)
{
	if (taps % 4 != 0)
		across_plain(src, from, k, n, taps, dst);
	else if (taps == 4)
		across_fours(src, from, k, n, 1, dst);
	else if (taps == 8)
		across_fours(src, from, k, n, 2, dst);
	else
		across_fours(src, from, k, n, taps / 4, dst);
}

static AVX512 void down_avx512(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst)
{
	for (int i = 0; i < n; i += CT_RESIZE_ROW) {
		__m512i sum[4] = {{0}};

		for (int t = 0; t < taps; t++) {
			__m512i w = _mm512_set1_epi32(k[t]);

			for (int v = 0; v < 4; v++)
				sum[v] = _mm512_add_epi32(sum[v],
							  _mm512_mullo_epi32(load_four(rows[t] + i + 16 * v), w));
		}
		for (int v = 0; v < 4; v++)
			_mm_storeu_si128((__m128i *)(void *)(dst + i + 16 * v), round_four(sum[v]));
	}
}

static const struct ct_resize_kernel with_avx512 = {across_avx512, down_avx512, 4};

const struct ct_resize_kernel *ct_resize_kernel_get(int skip)
{
	if (skip <= 0 && __builtin_cpu_supports("avx512f"))
		return &with_avx512;
	if (skip <= 1 && __builtin_cpu_supports("avx2"))
		return &with_avx2;
	return &ct_resize_plain;
}
#else
const struct ct_resize_kernel *ct_resize_kernel_get(int skip)
{
	(void)skip;
	return &ct_resize_plain;
}
#endif
