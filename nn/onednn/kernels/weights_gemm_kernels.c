/* Only processors with AVX-512 and its bfloat16 instructions call these functions; those for AMX are called only where
 * the process may use it. */
#include "nn/onednn/kernels/weights_gemm_impl.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "nn/onednn/kernels/lanes.h"

/* Two pixels of 16 channels as 16 pairs. */
CT_INLINE __m512i pair_of(const uint16_t *a, const uint16_t *b)
{
	const __m256i zero = _mm256_setzero_si256();
	const __m256i x = a ? _mm256_loadu_si256((const __m256i *)(const void *)a) : zero;
	const __m256i y = b ? _mm256_loadu_si256((const __m256i *)(const void *)b) : zero;

	return _mm512_or_si512(_mm512_cvtepu16_epi32(x), _mm512_slli_epi32(_mm512_cvtepu16_epi32(y), 16));
}

CT_INLINE const uint16_t *channel_at(const uint16_t *at, int channel)
{
	return at ? at + channel : NULL;
}

/* Transposes a matrix of 16 x 16 pairs. */
CT_INLINE void transpose(__m512i m[16])
{
	__m512i t[16];

	for (int i = 0; i < 16; i += 2) {
		t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
		t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
	}
	for (int i = 0; i < 16; i += 4) {
		m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
		m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
		m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
		m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
	}
	/* m[4 q + i] has column i of each quarter of rows 4 q to 4 q + 3. */
	for (int i = 0; i < 4; i++) {
		const __m512i even_lo = _mm512_shuffle_i32x4(m[i], m[i + 4], 0x88);
		const __m512i odd_lo = _mm512_shuffle_i32x4(m[i], m[i + 4], 0xdd);
		const __m512i even_hi = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0x88);
		const __m512i odd_hi = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0xdd);

		t[i] = _mm512_shuffle_i32x4(even_lo, even_hi, 0x88);
		t[i + 8] = _mm512_shuffle_i32x4(even_lo, even_hi, 0xdd);
		t[i + 4] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0x88);
		t[i + 12] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0xdd);
	}
	memcpy(m, t, sizeof(t));
}

void ct__weights_gemm_pack_x(const uint16_t *const *at, int channels, size_t pitch, uint16_t *to)
{
	for (int c = 0; c < channels; c += GEMM_CHANNELS) {
		__m512i m[16];

		for (int i = 0; i < 16; i++)
			m[i] = pair_of(channel_at(at[2 * i], c), channel_at(at[2 * i + 1], c));
		transpose(m);
		for (int i = 0; i < 16; i++)
			_mm512_storeu_si512(to + (size_t)(c + i) * pitch, m[i]);
	}
}

void ct__weights_gemm_pack_dy(const uint16_t *const *at, int channels, size_t pitch, uint16_t *to)
{
	for (int c = 0; c < channels; c += GEMM_CHANNELS, to += pitch) {
		for (int i = 0; i < 16; i++)
			_mm512_storeu_si512(to + (size_t)i * 2 * GEMM_CHANNELS,
					    pair_of(channel_at(at[2 * i], c), channel_at(at[2 * i + 1], c)));
	}
}

/* 8 rows of A and `cols` blocks of B, of which all sums stay in registers. */
CT_INLINE void eight_rows(const struct ct__gemm_block *b, int row, const int cols)
{
	enum { ROWS = 8 };
	__m512 sum[ROWS][2];

	for (int i = 0; i < ROWS; i++) {
		for (int j = 0; j < cols; j++)
			sum[i][j] = b->add ? _mm512_loadu_ps(b->c + (size_t)(row + i) * b->c_row + j * GEMM_CHANNELS)
					   : _mm512_setzero_ps();
	}
	for (int run = 0; run < b->runs; run++) {
		const uint16_t *x = b->a + (size_t)run * b->a_run + (size_t)row * b->a_row;
		const uint16_t *y = b->b + (size_t)run * b->b_run;

		for (size_t p = 0; p < b->steps * GEMM_PIXELS; p += 2, x += 2, y += 2 * GEMM_CHANNELS) {
			__m512i right[2];

			for (int j = 0; j < cols; j++)
				right[j] = _mm512_loadu_si512(y + (size_t)j * b->b_block);
			CT_UNROLL
			for (int i = 0; i < ROWS; i++) {
				int32_t two;

				memcpy(&two, x + (size_t)i * b->a_row, sizeof(two));
				const __m512i left = _mm512_set1_epi32(two);
				for (int j = 0; j < cols; j++)
					sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)left, (__m512bh)right[j]);
			}
		}
	}
	for (int i = 0; i < ROWS; i++) {
		for (int j = 0; j < cols; j++)
			_mm512_storeu_ps(b->c + (size_t)(row + i) * b->c_row + j * GEMM_CHANNELS, sum[i][j]);
	}
}

void ct__gemm_block_avx512(const struct ct__gemm_block *b)
{
	for (int row = 0; row < b->rows * GEMM_CHANNELS; row += 8) {
		if (b->cols == 2)
			eight_rows(b, row, 2);
		else
			eight_rows(b, row, 1);
	}
}

/* The format of LDTILECFG's operand. */
struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

/* All tiles have 16 rows of 64 bytes. */
static const struct tile_config config = {
	.palette = 1,
	.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
	.rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Tiles 0 to 3: the sums, row by row of blocks; 4 and 5: A; 6 and 7: B. The numbers of tiles are immediate operands, so
 * they must be literals. The compiler does not know what the instructions read: other files must write it. */
CT_INLINE void amx(const struct ct__gemm_block *b, const int rows, const int cols)
{
	const size_t a_row = b->a_row * sizeof(uint16_t), b_row = 2 * GEMM_CHANNELS * sizeof(uint16_t),
		     c_row = b->c_row * sizeof(float), step = GEMM_PIXELS * GEMM_CHANNELS;
	float *const c = b->c, *const below = c + GEMM_CHANNELS * b->c_row;

	if (b->add) {
		_tile_loadd(0, c, c_row);
		if (cols == 2)
			_tile_loadd(1, c + GEMM_CHANNELS, c_row);
		if (rows == 2)
			_tile_loadd(2, below, c_row);
		if (rows == 2 && cols == 2)
			_tile_loadd(3, below + GEMM_CHANNELS, c_row);
	} else {
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
	}
	for (int run = 0; run < b->runs; run++) {
		const uint16_t *x = b->a + (size_t)run * b->a_run, *y = b->b + (size_t)run * b->b_run;

		for (size_t i = 0; i < b->steps; i++, x += GEMM_PIXELS, y += step) {
			_tile_loadd(6, y, b_row);
			_tile_loadd(4, x, a_row);
			_tile_dpbf16ps(0, 4, 6);
			if (cols == 2) {
				_tile_loadd(7, y + b->b_block, b_row);
				_tile_dpbf16ps(1, 4, 7);
			}
			if (rows == 2) {
				_tile_loadd(5, x + GEMM_CHANNELS * b->a_row, a_row);
				_tile_dpbf16ps(2, 5, 6);
			}
			if (rows == 2 && cols == 2)
				_tile_dpbf16ps(3, 5, 7);
		}
	}
	_tile_stored(0, c, c_row);
	if (cols == 2)
		_tile_stored(1, c + GEMM_CHANNELS, c_row);
	if (rows == 2)
		_tile_stored(2, below, c_row);
	if (rows == 2 && cols == 2)
		_tile_stored(3, below + GEMM_CHANNELS, c_row);
}

void ct__gemm_block_amx(const struct ct__gemm_block *b)
{
	_tile_loadconfig(&config);
	if (b->rows == 2 && b->cols == 2)
		amx(b, 2, 2);
	else if (b->rows == 2)
		amx(b, 2, 1);
	else if (b->cols == 2)
		amx(b, 1, 2);
	else
		amx(b, 1, 1);
	_tile_release();
}
#endif
