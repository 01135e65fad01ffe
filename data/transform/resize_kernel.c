/* All kernels compute the exact sum of the products of 8-bit pixels and 22-bit weights and round once, so they give the
 * same bytes, and which one runs is not visible in results. Sums fit into 32 bits, because weights sum up to at most
 * slightly more than one. Results may be written beyond the last pixel; rows have room for it (CT_RESIZE_PITCH), and
 * the next iteration overwrites these bytes. The AVX2 kernel computes with two taps at a time, so an odd number of taps
 * falls back to plain C. The best kernel is chosen when a resizer asks for it, by the features of the CPU. */
#include "data/transform/resize_kernel_impl.h"

#include <stddef.h>

#include "base/cpu/features.h"
#include "data/transform/resize_axis_impl.h"

#define HALF (1 << (CT_RESIZE_BITS - 1))

/* The table has `from`, and each weight four times, once per channel. */
static enum ct_status tabulate(struct ct_resize_table *t, const struct ct_resize_axis *a, int width)
{
	int n = (a->n + CT_RESIZE_PIXELS - 1) / CT_RESIZE_PIXELS * CT_RESIZE_PIXELS;
	int32_t *w;

	(void)width;
	CT_TRY(ct_scratch_reserve(&t->mem, (size_t)n * ((size_t)a->taps * 4 + 1) * sizeof(*w)));
	w = (int32_t *)(void *)t->mem.p;
	t->n = n;
	t->taps = a->taps;
	t->k = w;
	for (int i = 0; i < n; i++) {
		const int32_t *k = a->k + (size_t)(i < a->n ? i : a->n - 1) * (size_t)a->taps;

		for (int j = 0; j < a->taps; j++, w += 4)
			w[0] = w[1] = w[2] = w[3] = k[j];
	}
	t->from = w;
	for (int i = 0; i < n; i++)
		w[i] = a->from[i < a->n ? i : a->n - 1];
	return CT_OK;
}

static void row_plain(const struct ct_resize_table *t, const uint8_t *src, uint8_t *dst)
{
	const int32_t *k = t->k;

	for (int i = 0; i < t->n; i++, dst += 3) {
		const uint8_t *p = src + 4 * (size_t)t->from[i];
		int32_t sum[3] = {HALF, HALF, HALF};

		for (int j = 0; j < t->taps; j++, p += 4, k += 4) {
			for (int c = 0; c < 3; c++)
				sum[c] += p[c] * k[c];
		}
		for (int c = 0; c < 3; c++)
			dst[c] = (uint8_t)(sum[c] >> CT_RESIZE_BITS);
	}
}

static void across_plain(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2])
{
	row_plain(t, src[0], dst[0]);
	row_plain(t, src[1], dst[1]);
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

const struct ct_resize_kernel ct__resize_plain = {tabulate, across_plain, down_plain, 1};

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

/* Loads two pixels as 32-bit numbers. */
INLINE AVX2 __m256i load_two(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* Sums the even taps in the low half and the odd taps in the high half. */
INLINE AVX2 __m256i weigh(const uint8_t *p, const int32_t *k, int pairs)
{
	__m256i sum = _mm256_setzero_si256();

	for (int i = 0; i < pairs; i++) {
		__m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(k + 8 * i));

		sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(load_two(p + 8 * i), w));
	}
	return sum;
}

/* Rounds the sums in a and b: pixel a in the low half, b in the high half. */
INLINE AVX2 __m256i round_two(__m256i a, __m256i b)
{
	__m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));

	return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), CT_RESIZE_BITS);
}

/* Computes four pixels per iteration. In most calls, `pairs` is a compile-time constant, so the compiler unrolls the
 * loop over it. */
INLINE AVX2 void across_pairs(const struct ct_resize_table *t, const uint8_t *src, uint8_t *dst, int pairs)
{
	const __m128i rgb = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	const int32_t *from = t->from, *k = t->k;
	size_t step = 8 * (size_t)pairs;

	for (int i = 0; i < t->n; i += 4, k += 4 * step, dst += 12) {
		__m256i a = weigh(src + 4 * (size_t)from[i], k, pairs);
		__m256i b = weigh(src + 4 * (size_t)from[i + 1], k + step, pairs);
		__m256i c = weigh(src + 4 * (size_t)from[i + 2], k + 2 * step, pairs);
		__m256i d = weigh(src + 4 * (size_t)from[i + 3], k + 3 * step, pairs);
		__m256i words = _mm256_packs_epi32(round_two(a, c), round_two(b, d));
		__m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));

		/* The next iteration overwrites the bytes after the 12 result bytes. */
		_mm_storeu_si128((__m128i *)(void *)dst, _mm_shuffle_epi8(bytes, rgb));
	}
}

static AVX2 void row_avx2(const struct ct_resize_table *t, const uint8_t *src, uint8_t *dst)
{
	if (t->taps % 2 != 0)
		row_plain(t, src, dst); /* the source row has only a few pixels */
	else if (t->taps == 2)
		across_pairs(t, src, dst, 1);
	else if (t->taps == 4)
		across_pairs(t, src, dst, 2);
	else if (t->taps == 6)
		across_pairs(t, src, dst, 3);
	else
		across_pairs(t, src, dst, t->taps / 2);
}

static AVX2 void across_avx2(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2])
{
	row_avx2(t, src[0], dst[0]);
	row_avx2(t, src[1], dst[1]);
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

static const struct ct_resize_kernel with_avx2 = {tabulate, across_avx2, down_avx2, 2};

const struct ct_resize_kernel *ct__resize_kernel_get(int skip)
{
	const unsigned avx512 = CT_CPU_AVX512BW | CT_CPU_AVX512VL | CT_CPU_AVX512VBMI | CT_CPU_AVX512VNNI;

	if (skip <= 0 && ct_cpu_has(avx512))
		return &ct__resize_avx512;
	if (skip <= 1 && ct_cpu_has(CT_CPU_AVX2))
		return &with_avx2;
	return &ct__resize_plain;
}
#else
const struct ct_resize_kernel *ct__resize_kernel_get(int skip)
{
	(void)skip;
	return &ct__resize_plain;
}
#endif
