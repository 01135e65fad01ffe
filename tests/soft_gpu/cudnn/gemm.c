/* The matrix product. This file is compiled with -O3 and without sanitizers, because the tests spend most of their time
 * in it. It accesses only memory of the interpreter.
 *
 * Blocks of k are packed into panels of four rows of a and eight columns of b. A tile of c is loaded, the products are
 * added to it in the order of k, and it is stored. The order of summation therefore does not depend on the blocks. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

enum { ROWS = 4, COLUMNS = 8, BLOCK_K = 256 };
typedef float four __attribute__((vector_size(16)));

static four load(const float *p)
{
	four v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void tile(int64_t k, const float *a, const float *b, float c[ROWS][COLUMNS])
{
	four sum[ROWS][2];

	for (int i = 0; i < ROWS; i++) {
		sum[i][0] = load(c[i]);
		sum[i][1] = load(c[i] + 4);
	}
	for (int64_t p = 0; p < k; p++) {
		four b0 = load(b + p * COLUMNS), b1 = load(b + p * COLUMNS + 4);

		for (int i = 0; i < ROWS; i++) {
			float x = a[p * ROWS + i];

			sum[i][0] += x * b0;
			sum[i][1] += x * b1;
		}
	}
	for (int i = 0; i < ROWS; i++) {
		memcpy(c[i], &sum[i][0], sizeof(four));
		memcpy(c[i] + 4, &sum[i][1], sizeof(four));
	}
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void pack_b(int64_t k, int64_t n, const float *b, int64_t b_row, float *to)
{
	for (int64_t j = 0; j < n; j += COLUMNS) {
		int64_t width = smaller(COLUMNS, n - j);

		for (int64_t p = 0; p < k; p++) {
			memcpy(to, b + p * b_row + j, sizeof(float) * (size_t)width);
			memset(to + width, 0, sizeof(float) * (size_t)(COLUMNS - width));
			to += COLUMNS;
		}
	}
}

static void pack_a(int64_t k, int64_t m, const float *a, int64_t a_row, int64_t a_column, float *to)
{
	memset(to, 0, sizeof(float) * (size_t)(k * ROWS));
	for (int64_t i = 0; i < m; i++) {
		for (int64_t p = 0; p < k; p++)
			to[p * ROWS + i] = a[i * a_row + p * a_column];
	}
}

/* Four rows of c. */
static void stripe(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c, int64_t c_row)
{
	float part[ROWS][COLUMNS];

	for (int64_t j = 0; j < n; j += COLUMNS) {
		size_t bytes = sizeof(float) * (size_t)smaller(COLUMNS, n - j);

		memset(part, 0, sizeof(part));
		for (int64_t i = 0; i < m; i++)
			memcpy(part[i], c + i * c_row + j, bytes);
		tile(k, a, b + j * k, part);
		for (int64_t i = 0; i < m; i++)
			memcpy(c + i * c_row + j, part[i], bytes);
	}
}

void soft__gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const float *b,
		int64_t b_row, float *c, int64_t c_row)
{
	const int64_t block = smaller(k, BLOCK_K), padded = (n + COLUMNS - 1) / COLUMNS * COLUMNS;
	float *packed_b = malloc(sizeof(float) * (size_t)(block * padded + 1)),
	      *packed_a = malloc(sizeof(float) * (size_t)(block * ROWS + 1));

	if (!packed_a || !packed_b)
		soft_gpu_fail("cudnn: out of memory");
	for (int64_t p = 0; p < k; p += BLOCK_K) {
		int64_t size = smaller(BLOCK_K, k - p);

		pack_b(size, n, b + p * b_row, b_row, packed_b);
		for (int64_t i = 0; i < m; i += ROWS) {
			int64_t height = smaller(ROWS, m - i);

			pack_a(size, height, a + i * a_row + p * a_column, a_row, a_column, packed_a);
			stripe(height, n, size, packed_a, packed_b, c + i * c_row, c_row);
		}
	}
	free(packed_a);
	free(packed_b);
}
