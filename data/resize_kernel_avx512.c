/* Weights of 22 bits as three digits of base 256, so that vpdpbusd multiplies them with bytes, four taps at a time: the
 * sums over each digit, shifted and added, are the same integers that the other kernels make.
 *
 * A register holds four pixels of the result: a lane of 128 bits for each channel, a number of 32 bits for each pixel
 * in it, a byte for each tap. A permutation of bytes brings the source into that order, and weights are the same in all
 * lanes. */
#include "data/resize_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/mem.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) AVX512
#define HALF_TOP (1 << (CT_RESIZE_BITS - 1 - 16)) /* one half, counted in the highest digit */
#define DIGITS 48                                 /* bytes of weights: 4 pixels of 4 taps in 3 digits */
#define WINDOW 16                                 /* source pixels in a register */

static int steps_of(int taps)
{
	return (taps + 3) / 4;
}

/* The first n of four. */
static __mmask8 first_of_four(int n)
{
	return (__mmask8)(n < 4 ? (1 << n) - 1 : 15);
}

/* Digits of four weights each of four pixels, the highest digit first: each within -128..127. */
INLINE void store_digits(__m512i k, int8_t *to)
{
	const __m512i round = _mm512_set1_epi32(128);
	__m512i high = _mm512_srai_epi32(_mm512_add_epi32(k, round), 8);

	_mm_store_si128((__m128i *)(void *)(to + 32), _mm512_cvtepi32_epi8(k));
	_mm_store_si128((__m128i *)(void *)(to + 16), _mm512_cvtepi32_epi8(high));
	high = _mm512_srai_epi32(_mm512_add_epi32(high, round), 8);
	_mm_store_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(high));
}

/* Four weights of the pixels i.. from tap t on, zero where there are none. */
INLINE __m512i load_weights(const struct ct_resize_axis *a, int i, int t)
{
	__mmask8 there = first_of_four(a->taps - t);
	__m512i k = _mm512_setzero_si512();

	for (int p = 0; p < 4; p++) {
		int at = i + p < a->n ? i + p : a->n - 1;
		__m128i four = _mm_maskz_loadu_epi32(there, a->k + (size_t)at * (size_t)a->taps + t);

		k = _mm512_mask_broadcast_i32x4(k, (__mmask16)(15 << 4 * p), four);
	}
	return k;
}

/* Where a register begins that holds all source pixels of four pixels of the result; -1 when none can. Nothing behind
 * the row is read. */
static int window_of(const int32_t from[4], int taps, int width)
{
	int lo = from[0] < from[3] ? from[0] : from[3], end = (from[0] < from[3] ? from[3] : from[0]) + taps;

	if (lo > width - WINDOW)
		lo = width - WINDOW;
	return lo >= 0 && end - lo <= WINDOW ? lo : -1;
}

/* Which byte of a window is which tap, for four pixels whose first taps are so many bytes behind its begin. */
INLINE __m512i order_of(__m128i first)
{
	const __m512i tap = _mm512_set1_epi32(0x0c080400);
	const __m512i channel = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
	__m512i begin = _mm512_add_epi32(_mm512_broadcast_i32x4(first), channel);

	return _mm512_add_epi8(_mm512_mullo_epi32(begin, _mm512_set1_epi32(0x01010101)), tap);
}

/* Turns `from` into places of windows and the order of bytes in each. */
AVX512 static bool order_near(int32_t *from, uint8_t *order, int n, int taps, int width)
{
	for (int i = 0; i < n; i += 4) {
		if (window_of(from + i, taps, width) < 0)
			return false;
	}
	for (int i = 0; i < n; i += 4, order += 64) {
		int at = window_of(from + i, taps, width);
		__m128i first = _mm_loadu_si128((const __m128i *)(const void *)(from + i));

		first = _mm_slli_epi32(_mm_sub_epi32(first, _mm_set1_epi32(at)), 2);
		_mm512_store_si512(order, order_of(first));
		from[i / 4] = at;
	}
	return true;
}

AVX512 static enum ct_status tabulate(struct ct_resize_table *t, const struct ct_resize_axis *a, int width)
{
	int n = (a->n + CT_RESIZE_PIXELS - 1) / CT_RESIZE_PIXELS * CT_RESIZE_PIXELS, steps = steps_of(a->taps);
	size_t weights = (size_t)n / 4 * (size_t)steps * DIGITS, order = (size_t)n * 16;
	int32_t *from;
	int8_t *k;

	CT_TRY(ct_scratch_reserve(&t->mem, order + weights + (size_t)n * sizeof(*from)));
	k = (int8_t *)t->mem.p + order;
	from = (int32_t *)(void *)(k + weights);
	for (int i = 0; i < n; i++)
		from[i] = a->from[i < a->n ? i : a->n - 1];
	t->n = n;
	t->taps = a->taps;
	t->near = order_near(from, t->mem.p, n, a->taps, width);
	t->order = t->mem.p;
	t->from = from;
	t->k = k;
	for (int i = 0; i < n; i += 4) {
		for (int s = 0; s < steps; s++, k += DIGITS)
			store_digits(load_weights(a, i, 4 * s), k);
	}
	return CT_OK;
}

INLINE __m512i weights(const int8_t *k)
{
	return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)k));
}

/* Four pixels of each row whose sources are in the window at `src`: sums before the last shift. Indices wrap round in
 * the window: what taps behind the last read has no weight. */
INLINE void sum_near(__m512i sum[2], const uint8_t *const src[2], const uint8_t *order, const int8_t *k, int steps)
{
	__m512i index = _mm512_load_si512(order), window[2], px[WINDOW / 4][2];

	for (int r = 0; r < 2; r++) {
		window[r] = _mm512_loadu_si512(src[r]);
		sum[r] = _mm512_set1_epi32(HALF_TOP);
	}
	for (int s = 0; s < steps; s++) {
		for (int r = 0; r < 2; r++)
			px[s][r] = _mm512_permutexvar_epi8(index, window[r]);
		index = _mm512_add_epi8(index, _mm512_set1_epi8(16));
	}
	for (int d = 0; d < 3; d++) {
		for (int r = 0; r < 2; r++)
			sum[r] = d > 0 ? _mm512_slli_epi32(sum[r], 8) : sum[r];
		for (int s = 0; s < steps; s++) {
			__m512i w = weights(k + DIGITS * s + 16 * d);

			for (int r = 0; r < 2; r++)
				sum[r] = _mm512_dpbusd_epi32(sum[r], px[s][r], w);
		}
	}
}

/* Four source pixels from `src` on as the pixel p of a register, `there` of them. */
INLINE __m512i put_four(__m512i px, const uint8_t *src, __mmask8 there, int p)
{
	return _mm512_mask_broadcast_i32x4(px, (__mmask16)(15 << 4 * p), _mm_maskz_loadu_epi32(there, src));
}

/* The sum of weights, of those of their digits. */
INLINE __m512i whole(__m512i high, __m512i mid, __m512i low)
{
	mid = _mm512_add_epi32(_mm512_slli_epi32(high, 8), mid);
	return _mm512_add_epi32(_mm512_slli_epi32(mid, 8), low);
}

/* The same wherever their sources are. */
INLINE __m512i sum_far(const uint8_t *src, const int32_t *from, const int8_t *k, int taps)
{
	const __m512i index = order_of(_mm_setr_epi32(0, 16, 32, 48));
	__m512i sum[3] = {_mm512_set1_epi32(HALF_TOP), _mm512_setzero_si512(), _mm512_setzero_si512()};

	for (int t = 0; t < taps; t += 4, k += DIGITS) {
		__mmask8 there = first_of_four(taps - t);
		__m512i px = _mm512_setzero_si512();

		for (int p = 0; p < 4; p++)
			px = put_four(px, src + 4 * ((size_t)from[p] + (size_t)t), there, p);
		px = _mm512_permutexvar_epi8(index, px);
		for (int d = 0; d < 3; d++)
			sum[d] = _mm512_dpbusd_epi32(sum[d], px, weights(k + 16 * d));
	}
	return whole(sum[0], sum[1], sum[2]);
}

/* Rounds and packs: lanes keep what they hold. */
INLINE __m512i pack(const __m512i sum[4])
{
	__m512i v[4];

	for (int i = 0; i < 4; i++)
		v[i] = _mm512_srai_epi32(sum[i], CT_RESIZE_BITS);
	return _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
}

/* Sixteen pixels a turn. `steps` is a constant in most calls, so that the loops over it are unrolled; 0: far. */
INLINE void across_steps(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2], int steps)
{
	static const uint8_t rgb[64] = {0,  16, 32, 1,  17, 33, 2,  18, 34, 3,  19, 35, 4,  20, 36, 5,
					21, 37, 6,  22, 38, 7,  23, 39, 8,  24, 40, 9,  25, 41, 10, 26,
					42, 11, 27, 43, 12, 28, 44, 13, 29, 45, 14, 30, 46, 15, 31, 47};
	const __m512i interleave = _mm512_loadu_si512(rgb);
	size_t step = DIGITS * (size_t)(steps > 0 ? steps : steps_of(t->taps));
	const uint8_t *order = t->order;
	const int8_t *k = t->k;

	for (int i = 0; i < t->n; i += 16) {
		__m512i sum[2][4];

		for (int v = 0; v < 4; v++, k += step, order += 64) {
			if (steps > 0) {
				size_t at = 4 * (size_t)t->from[i / 4 + v];
				const uint8_t *const window[2] = {src[0] + at, src[1] + at};
				__m512i both[2];

				sum_near(both, window, order, k, steps);
				sum[0][v] = both[0];
				sum[1][v] = both[1];
			} else {
				for (int r = 0; r < 2; r++)
					sum[r][v] = sum_far(src[r], t->from + i + 4 * v, k, t->taps);
			}
		}
		/* What is behind the 48 bytes is overwritten by the next turn. */
		for (int r = 0; r < 2; r++)
			_mm512_storeu_si512(dst[r] + 3 * i, _mm512_permutexvar_epi8(interleave, pack(sum[r])));
	}
}

AVX512 static void across(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2])
{
	if (!t->near)
		across_steps(t, src, dst, 0);
	else if (t->taps <= 4)
		across_steps(t, src, dst, 1);
	else if (t->taps <= 8)
		across_steps(t, src, dst, 2);
	else
		across_steps(t, src, dst, steps_of(t->taps));
}

/* Weights of four rows, each digit of the four in all numbers of 32 bits. */
INLINE void load_rows(__m512i w[3], const int32_t *k, int taps)
{
	int8_t digits[DIGITS] __attribute__((aligned(16)));

	store_digits(_mm512_broadcast_i32x4(_mm_maskz_loadu_epi32(first_of_four(taps), k)), digits);
	for (int d = 0; d < 3; d++)
		w[d] = weights(digits + 16 * d);
}

/* 64 bytes of up to four rows: px[v] holds the bytes 4v to 4v + 3 of each lane, four rows of each. */
INLINE void interleave_rows(__m512i px[4], const uint8_t *const *rows, int taps, int at)
{
	__m512i row[4], ab[2], cd[2];

	for (int j = 0; j < 4; j++)
		row[j] = _mm512_loadu_si512(rows[j < taps ? j : 0] + at);
	ab[0] = _mm512_unpacklo_epi8(row[0], row[1]);
	ab[1] = _mm512_unpackhi_epi8(row[0], row[1]);
	cd[0] = _mm512_unpacklo_epi8(row[2], row[3]);
	cd[1] = _mm512_unpackhi_epi8(row[2], row[3]);
	for (int v = 0; v < 4; v++) {
		px[v] = v % 2 == 0 ? _mm512_unpacklo_epi16(ab[v / 2], cd[v / 2])
				   : _mm512_unpackhi_epi16(ab[v / 2], cd[v / 2]);
	}
}

/* `steps` of four rows are a constant, and their weights stay in registers. */
INLINE void down_few(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst, int steps)
{
	__m512i w[2][3];

	for (int s = 0; s < steps; s++)
		load_rows(w[s], k + 4 * s, taps - 4 * s);
	for (int i = 0; i < n; i += CT_RESIZE_ROW) {
		__m512i px[2][4], sum[4];

		for (int s = 0; s < steps; s++)
			interleave_rows(px[s], rows + 4 * s, taps - 4 * s, i);
		for (int v = 0; v < 4; v++) {
			sum[v] = _mm512_set1_epi32(HALF_TOP);
			for (int d = 0; d < 3; d++) {
				sum[v] = d > 0 ? _mm512_slli_epi32(sum[v], 8) : sum[v];
				for (int s = 0; s < steps; s++)
					sum[v] = _mm512_dpbusd_epi32(sum[v], px[s][v], w[s][d]);
			}
		}
		_mm512_storeu_si512(dst + i, pack(sum));
	}
}

AVX512 static void down_many(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst)
{
	for (int i = 0; i < n; i += CT_RESIZE_ROW) {
		__m512i sum[3][4];

		for (int v = 0; v < 4; v++) {
			sum[0][v] = _mm512_set1_epi32(HALF_TOP);
			sum[1][v] = sum[2][v] = _mm512_setzero_si512();
		}
		for (int t = 0; t < taps; t += 4) {
			__m512i w[3], px[4];

			load_rows(w, k + t, taps - t);
			interleave_rows(px, rows + t, taps - t, i);
			for (int v = 0; v < 4; v++) {
				for (int d = 0; d < 3; d++)
					sum[d][v] = _mm512_dpbusd_epi32(sum[d][v], px[v], w[d]);
			}
		}
		for (int v = 0; v < 4; v++)
			sum[0][v] = whole(sum[0][v], sum[1][v], sum[2][v]);
		_mm512_storeu_si512(dst + i, pack(sum[0]));
	}
}

AVX512 static void down(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst)
{
	if (taps <= 4)
		down_few(rows, k, taps, n, dst, 1);
	else if (taps <= 8)
		down_few(rows, k, taps, n, dst, 2);
	else
		down_many(rows, k, taps, n, dst);
}

const struct ct_resize_kernel ct_resize_avx512 = {tabulate, across, down, 1};
#endif
