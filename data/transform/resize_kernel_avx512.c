/* 22-bit weights are stored as three digits of base 256, because vpdpbusd multiplies bytes, four taps at a time. The
 * sums of the three digits, shifted and added, are the same integers as in the other kernels.
 *
 * In the horizontal direction, a register holds one 128-bit lane per channel. A lane holds taps as bytes: either four
 * taps of each of four result pixels, or sixteen taps of one. Weights are the same in all lanes. A byte permutation
 * brings the source into this order. The first layout is used if a result pixel has up to about 6 source pixels,
 * because the sources of four result pixels then fit in one or two registers. */
#include "data/transform/resize_kernel_impl.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/mem.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) AVX512
#define HALF_TOP (1 << (CT_RESIZE_BITS - 1 - 16)) /* one half, in units of the highest digit */
#define DIGITS 48                                 /* bytes of sixteen weights */
#define NEAR 16                                   /* source pixels in one register */
#define WIDE 32                                   /* source pixels in two registers */

static int divided_up(int n, int by)
{
	return (n + by - 1) / by;
}

/* Return masks of the first n lanes, out of four or sixteen. */
static __mmask8 first_of_4(int n)
{
	return (__mmask8)(n < 4 ? (1 << n) - 1 : 15);
}

static __mmask16 first_of_16(int n)
{
	return (__mmask16)(n < 16 ? (1 << n) - 1 : 65535);
}

/* Stores the digits of sixteen weights, highest digit first, each in -128..127. */
INLINE void store_digits(__m512i k, int8_t *to)
{
	const __m512i round = _mm512_set1_epi32(128);
	__m512i high = _mm512_srai_epi32(_mm512_add_epi32(k, round), 8);

	_mm_store_si128((__m128i *)(void *)(to + 32), _mm512_cvtepi32_epi8(k));
	_mm_store_si128((__m128i *)(void *)(to + 16), _mm512_cvtepi32_epi8(high));
	high = _mm512_srai_epi32(_mm512_add_epi32(high, round), 8);
	_mm_store_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(high));
}

/* Returns the weights of pixel i from tap t on. The last pixel is repeated. */
static const int32_t *weights_of(const struct ct_resize_axis *a, int i, int t)
{
	return a->k + (size_t)(i < a->n ? i : a->n - 1) * (size_t)a->taps + t;
}

/* Stores the weights of four pixels for four taps, then those for the next four taps, and so on. */
AVX512 static void store_fours(const struct ct_resize_axis *a, int n, int8_t *to)
{
	for (int i = 0; i < n; i += 4) {
		for (int t = 0; t < a->taps; t += 4, to += DIGITS) {
			__m512i k = _mm512_setzero_si512();

			for (int p = 0; p < 4; p++) {
				__m128i four = _mm_maskz_loadu_epi32(first_of_4(a->taps - t), weights_of(a, i + p, t));

				k = _mm512_mask_broadcast_i32x4(k, (__mmask16)(15 << 4 * p), four);
			}
			store_digits(k, to);
		}
	}
}

/* Stores the weights of one pixel, sixteen taps at a time. */
AVX512 static void store_sixteens(const struct ct_resize_axis *a, int n, int8_t *to)
{
	for (int i = 0; i < n; i++) {
		for (int t = 0; t < a->taps; t += 16, to += DIGITS)
			store_digits(_mm512_maskz_loadu_epi32(first_of_16(a->taps - t), weights_of(a, i, t)), to);
	}
}

/* Returns the start of an interval of `pixels` source pixels that contains all sources of four result pixels, or -1 if
 * there is none. The interval does not extend past the end of the row. */
static int window_of(const int32_t from[4], int taps, int width, int pixels)
{
	int lo = from[0] < from[3] ? from[0] : from[3], end = (from[0] < from[3] ? from[3] : from[0]) + taps;

	if (lo > width - pixels)
		lo = width - pixels;
	return lo >= 0 && end - lo <= pixels ? lo : -1;
}

static bool windows_do(const int32_t *from, int n, int taps, int width, int pixels)
{
	for (int i = 0; i < n; i += 4) {
		if (window_of(from + i, taps, width, pixels) < 0)
			return false;
	}
	return true;
}

/* Maps the bytes of an interval to taps, for four pixels whose first taps are at these offsets from its start. */
INLINE __m512i order_of(__m128i first)
{
	const __m512i tap = _mm512_set1_epi32(0x0c080400);
	const __m512i channel = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
	__m512i begin = _mm512_add_epi32(_mm512_broadcast_i32x4(first), channel);

	return _mm512_add_epi8(_mm512_mullo_epi32(begin, _mm512_set1_epi32(0x01010101)), tap);
}

/* Converts `from` to the starts of intervals and the byte order in each of them. */
AVX512 static void order_windows(int32_t *from, uint8_t *order, int n, int taps, int width, int pixels)
{
	for (int i = 0; i < n; i += 4, order += 64) {
		int at = window_of(from + i, taps, width, pixels);
		__m128i first = _mm_loadu_si128((const __m128i *)(const void *)(from + i));

		first = _mm_slli_epi32(_mm_sub_epi32(first, _mm_set1_epi32(at)), 2);
		_mm512_store_si512(order, order_of(first));
		from[i / 4] = at;
	}
}

AVX512 static enum ct_status tabulate(struct ct_resize_table *t, const struct ct_resize_axis *a, int width)
{
	int n = divided_up(a->n, CT_RESIZE_PIXELS) * CT_RESIZE_PIXELS;
	size_t weights = (size_t)n * (size_t)divided_up(a->taps, 16) * DIGITS, order = (size_t)n * 16; /* at most */
	int32_t *from;
	int8_t *k;

	CT_TRY(ct_scratch_reserve(&t->mem, order + weights + (size_t)n * sizeof(*from)));
	t->n = n;
	t->taps = a->taps;
	t->order = t->mem.p;
	t->k = k = (int8_t *)t->mem.p + order;
	t->from = from = (int32_t *)(void *)(k + weights);
	for (int i = 0; i < n; i++)
		from[i] = a->from[i < a->n ? i : a->n - 1];
	t->window = windows_do(from, n, a->taps, width, NEAR)   ? NEAR
		    : windows_do(from, n, a->taps, width, WIDE) ? WIDE
								: 0;
	if (t->window > 0) {
		order_windows(from, t->mem.p, n, a->taps, width, t->window);
		store_fours(a, n, k);
	} else {
		store_sixteens(a, n, k);
	}
	return CT_OK;
}

INLINE __m512i weights(const int8_t *k)
{
	return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)k));
}

/* Computes the sums, before the last shift, of four pixels of each row whose sources are in the interval at `src`.
 * Indexes wrap around in the interval; taps after the last one have no weight. */
INLINE void sum_window(__m512i sum[2], const uint8_t *const src[2], const uint8_t *order, const int8_t *k, int window,
		       int steps)
{
	__m512i index = _mm512_load_si512(order), low[2], high[2], px[WIDE / 4][2];

	for (int r = 0; r < 2; r++) {
		low[r] = _mm512_loadu_si512(src[r]);
		high[r] = window == WIDE ? _mm512_loadu_si512(src[r] + 64) : low[r];
		sum[r] = _mm512_set1_epi32(HALF_TOP);
	}
	for (int s = 0; s < steps; s++) {
		for (int r = 0; r < 2; r++)
			px[s][r] = window == WIDE ? _mm512_permutex2var_epi8(low[r], index, high[r])
						  : _mm512_permutexvar_epi8(index, low[r]);
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

/* Combines the sums of the digits into the sum of the weights. */
INLINE __m512i whole(__m512i high, __m512i mid, __m512i low)
{
	mid = _mm512_add_epi32(_mm512_slli_epi32(high, 8), mid);
	return _mm512_add_epi32(_mm512_slli_epi32(mid, 8), low);
}

/* Computes one pixel of each row, sixteen taps at a time. Each lane has four sums, one for every fourth group of four
 * taps. */
INLINE void sum_one(__m512i sum[2], const uint8_t *const src[2], size_t at, const int8_t *k, int taps, int steps)
{
	const __m512i index = order_of(_mm_setr_epi32(0, 16, 32, 48));
	__m512i digit[2][3] = {{_mm512_setzero_si512()}, {_mm512_setzero_si512()}};

	for (int s = 0; s < steps; s++, k += DIGITS) {
		__mmask16 there = s < steps - 1 ? 65535 : first_of_16(taps - 16 * s);

		for (int r = 0; r < 2; r++) {
			__m512i px = _mm512_maskz_loadu_epi32(there, src[r] + 4 * (at + 16 * (size_t)s));

			px = _mm512_permutexvar_epi8(index, px);
			for (int d = 0; d < 3; d++)
				digit[r][d] = _mm512_dpbusd_epi32(digit[r][d], px, weights(k + 16 * d));
		}
	}
	for (int r = 0; r < 2; r++)
		sum[r] = whole(digit[r][0], digit[r][1], digit[r][2]);
}

/* Sums each lane: the four sums of pixel p in sum[p] become element p of the lane. */
INLINE __m512i fold(const __m512i sum[4])
{
	__m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]), _mm512_unpackhi_epi32(sum[0], sum[1]));
	__m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[2], sum[3]), _mm512_unpackhi_epi32(sum[2], sum[3]));

	ab = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
	return _mm512_add_epi32(ab, _mm512_set1_epi32(1 << (CT_RESIZE_BITS - 1)));
}

/* Computes four pixels of each row, whose sources may be anywhere. */
INLINE void sum_far(__m512i sum[2], const uint8_t *const src[2], const int32_t *from, const int8_t *k, int taps,
		    int steps)
{
	__m512i one[2][4];

	for (int p = 0; p < 4; p++, k += DIGITS * steps) {
		__m512i both[2];

		sum_one(both, src, (size_t)from[p], k, taps, steps);
		one[0][p] = both[0];
		one[1][p] = both[1];
	}
	sum[0] = fold(one[0]);
	sum[1] = fold(one[1]);
}

/* Rounds and packs within lanes. */
INLINE __m512i pack(const __m512i sum[4])
{
	__m512i v[4];

	for (int i = 0; i < 4; i++)
		v[i] = _mm512_srai_epi32(sum[i], CT_RESIZE_BITS);
	return _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
}

/* Computes sixteen pixels per iteration. `steps` counts groups of four taps if an interval is used, else groups of
 * sixteen. `window` is always a compile-time constant, and `steps` is one in most calls, so the loops are unrolled. */
INLINE void across_steps(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2],
			 int window, int steps)
{
	static const uint8_t rgb[64] = {0,  16, 32, 1,  17, 33, 2,  18, 34, 3,  19, 35, 4,  20, 36, 5,
					21, 37, 6,  22, 38, 7,  23, 39, 8,  24, 40, 9,  25, 41, 10, 26,
					42, 11, 27, 43, 12, 28, 44, 13, 29, 45, 14, 30, 46, 15, 31, 47};
	const __m512i interleave = _mm512_loadu_si512(rgb);
	size_t k_bytes = DIGITS * (size_t)(window > 0 ? steps : 4 * steps); /* of four pixels */
	const uint8_t *order = t->order;
	const int8_t *k = t->k;

	for (int i = 0; i < t->n; i += 16) {
		__m512i sum[2][4];

		for (int v = 0; v < 4; v++, k += k_bytes, order += 64) {
			__m512i both[2];

			if (window > 0) {
				size_t at = 4 * (size_t)t->from[i / 4 + v];
				const uint8_t *const begin[2] = {src[0] + at, src[1] + at};

				sum_window(both, begin, order, k, window, steps);
			} else {
				sum_far(both, src, t->from + i + 4 * v, k, t->taps, steps);
			}
			sum[0][v] = both[0];
			sum[1][v] = both[1];
		}
		/* The next iteration overwrites the bytes after the 48 result bytes. */
		for (int r = 0; r < 2; r++)
			_mm512_storeu_si512(dst[r] + 3 * i, _mm512_permutexvar_epi8(interleave, pack(sum[r])));
	}
}

AVX512 static void across(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2])
{
	int steps = divided_up(t->taps, t->window > 0 ? 4 : 16);

	if (t->window == NEAR && steps == 1)
		across_steps(t, src, dst, NEAR, 1);
	else if (t->window == NEAR && steps == 2)
		across_steps(t, src, dst, NEAR, 2);
	else if (t->window == NEAR)
		across_steps(t, src, dst, NEAR, steps);
	else if (t->window == WIDE && steps == 2)
		across_steps(t, src, dst, WIDE, 2);
	else if (t->window == WIDE && steps == 3)
		across_steps(t, src, dst, WIDE, 3);
	else if (t->window == WIDE)
		across_steps(t, src, dst, WIDE, steps);
	else if (steps == 2)
		across_steps(t, src, dst, 0, 2);
	else
		across_steps(t, src, dst, 0, steps);
}

/* The weights of four rows. Each 32-bit number has one digit of all four. */
INLINE void load_rows(__m512i w[3], const int32_t *k, int taps)
{
	int8_t digits[DIGITS] __attribute__((aligned(16)));

	store_digits(_mm512_broadcast_i32x4(_mm_maskz_loadu_epi32(first_of_4(taps), k)), digits);
	for (int d = 0; d < 3; d++)
		w[d] = weights(digits + 16 * d);
}

/* Loads 64 bytes of up to four rows: px[v] has the bytes 4v to 4v + 3 of each lane, for the four rows. */
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

/* `steps` (groups of four rows) is a compile-time constant, so that the weights stay in registers. */
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

const struct ct_resize_kernel ct__resize_avx512 = {tabulate, across, down, 1};
#endif
