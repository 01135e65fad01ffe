/* Kernels compute the correct results. This program is linked to the software GPU, which draws the order of blocks,
 * warps and lanes at random for each launch, and, a second time, to the real runtime. It uses nothing but CUDA. */
#include <math.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"

enum { N_TIMES = 12 };

static void test_saxpy(void **state)
{
	static const float want[5] = {1.5f, 3.0f, 4.5f, 6.0f, 7.5f};
	float x[5] = {1, 2, 3, 4, 5}, y[5] = {1, 2, 3, 4, 5};
	uint16_t half_x[2] = {0x3C00, 0x4000}, half_y[2] = {0x3C00, 0x1400}; /* 1, 2; 1, 2^-10 */
	uint16_t bf_x[2] = {0x3F80, 0x4000}, bf_y[2] = {0x3F80, 0x3B80};     /* 1, 2; 1, 2^-8 */
	struct saxpy_args a = {.a = 0.5f, .n = 5};

	(void)state;
	a.x = upload(x, sizeof(x));
	a.y = upload(y, sizeof(y));
	ok(kernel_saxpy(&a, TYPE_F32, NULL));
	ok(cudaMemcpy(y, a.y, sizeof(y), cudaMemcpyDeviceToHost));
	assert_memory_equal(y, want, sizeof(want));
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));

	/* 1.5; 1 + 2^-10 is exact in fp16, 1 + 2^-8 is rounded to even in bf16. */
	a.n = 2;
	a.x = upload(half_x, sizeof(half_x));
	a.y = upload(half_y, sizeof(half_y));
	ok(kernel_saxpy(&a, TYPE_F16, NULL));
	ok(cudaMemcpy(half_y, a.y, sizeof(half_y), cudaMemcpyDeviceToHost));
	assert_int_equal(half_y[0], 0x3E00);
	assert_int_equal(half_y[1], 0x3C01);
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
	a.x = upload(bf_x, sizeof(bf_x));
	a.y = upload(bf_y, sizeof(bf_y));
	ok(kernel_saxpy(&a, TYPE_BF16, NULL));
	ok(cudaMemcpy(bf_y, a.y, sizeof(bf_y), cudaMemcpyDeviceToHost));
	assert_int_equal(bf_y[0], 0x3FC0);
	assert_int_equal(bf_y[1], 0x3F80);
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
}

enum { ROWS = 3, COLUMNS = 300 };

/* The largest error of the softmax over all rows; infinite with a NaN. */
static double softmax_error(void)
{
	float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
	struct row_args a = {.n = COLUMNS};
	double worst = 0;

	for (int i = 0; i < ROWS * COLUMNS; i++)
		x[i] = (float)(i * 37 % 101) / 10.0f;
	a.x = upload(x, sizeof(x));
	a.y = upload(NULL, sizeof(y));
	ok(kernel_softmax(&a, ROWS, NULL));
	ok(cudaMemcpy(y, a.y, sizeof(y), cudaMemcpyDeviceToHost));
	for (int r = 0; r < ROWS; r++) {
		double total = 0;

		for (int i = 0; i < COLUMNS; i++)
			total += exp(x[r * COLUMNS + i]);
		for (int i = 0; i < COLUMNS; i++) {
			double error = fabs(y[r * COLUMNS + i] - exp(x[r * COLUMNS + i]) / total);

			worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
		}
	}
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
	return worst;
}

static void test_softmax(void **state)
{
	(void)state;
	for (int i = 0; i < N_TIMES; i++)
		assert_true(softmax_error() < 1e-6);
}

static void check_histogram(int n_bins, int blocks)
{
	enum { N = 5000 };
	static int x[N];
	static unsigned bins[20000];
	struct histogram_args a = {.n = N, .n_bins = n_bins};

	memset(bins, 0, sizeof(bins));
	for (int i = 0; i < N; i++)
		x[i] = i * 7 % n_bins;
	a.x = upload(x, sizeof(x));
	a.bins = upload(bins, sizeof(bins));
	ok(kernel_histogram(&a, blocks, (size_t)n_bins * sizeof(unsigned), NULL));
	ok(cudaMemcpy(bins, a.bins, sizeof(bins), cudaMemcpyDeviceToHost));
	for (int i = 0; i < N; i++)
		bins[x[i]]--;
	for (int i = 0; i < n_bins; i++)
		assert_int_equal(bins[i], 0);
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.bins));
}

/* Dynamic shared memory and atomics. */
static void test_histogram(void **state)
{
	struct histogram_args none = {0};

	(void)state;
	check_histogram(13, 4);
	check_histogram(20000, 2); /* more than 48 KiB */
	expect_error(kernel_histogram(&none, 1, 228 << 10, NULL), cudaErrorInvalidValue);
	expect_error(kernel_histogram(&none, 0, 0, NULL), cudaErrorInvalidConfiguration);
	expect_error(cudaGetLastError(), cudaErrorInvalidConfiguration);
	expect_error(cudaGetLastError(), cudaSuccess);
}

/* Blocks and grids of two dimensions. */
static void test_transpose(void **state)
{
	enum { R = 37, C = 21 };
	float x[R * C], y[R * C];
	struct transpose_args a = {.rows = R, .columns = C};

	(void)state;
	for (int i = 0; i < R * C; i++)
		x[i] = (float)i;
	a.x = upload(x, sizeof(x));
	a.y = upload(NULL, sizeof(y));
	ok(kernel_transpose(&a, NULL));
	ok(cudaMemcpy(y, a.y, sizeof(y), cudaMemcpyDeviceToHost));
	for (int r = 0; r < R; r++) {
		for (int c = 0; c < C; c++)
			assert_true(y[c * R + r] == x[r * C + c]);
	}
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
}

static void test_warp(void **state)
{
	int out[8][32];
	struct warp_args a;

	(void)state;
	for (int k = 0; k < N_TIMES; k++) {
		a.out = upload(NULL, sizeof(out));
		ok(kernel_warp(&a, NULL));
		ok(cudaMemcpy(out, a.out, sizeof(out), cudaMemcpyDeviceToHost));
		for (int i = 0; i < 32; i++) {
			assert_int_equal(out[0][i], 5);
			assert_int_equal(out[1][i], i / 8 * 8 + (i + 1) % 8);
			assert_int_equal(out[2][i], i ^ 3);
			assert_int_equal(out[3][i], i % 16 + 4 < 16 ? i + 4 : i);
			assert_int_equal(out[4][i], i < 2 ? i : i - 2);
			assert_int_equal((unsigned)out[5][i], 0x49249249u);
			assert_int_equal(out[6][i], i >= 16);
			assert_int_equal(out[7][i], 21 + 1000);
		}
		ok(cudaFree(a.out));
	}
}

/* Results for 0x12345678, 0x12345678 << 28 and 2.5, from CUDA's descriptions of the functions. */
static void test_builtins(void **state)
{
	static const int want[N_BUILTINS] = {
		3, 32, 7, 4, 0, 32, 13, 13, 0x1E6A2C48, (int)0xED1256A9, 0, 0, 0, 0, 0, 0, /* the rest is below */
	};
	const unsigned u = 0x12345678, inverse = ~u;
	const uint64_t l = (uint64_t)u << 28;
	int out[N_BUILTINS], expected[N_BUILTINS], *p = expected + 10;
	struct builtins_args a = {.out = upload(NULL, sizeof(out))};

	(void)state;
	memcpy(expected, want, sizeof(want));
	*p++ = (int)(inverse << 4 | u >> 28);
	*p++ = (int)(inverse << 28 | u >> 4);
	*p++ = (int)((uint64_t)u * u >> 32);
	*p++ = (int)((unsigned __int128)l * l >> 64);
	*p++ = (int)((uint32_t)((int64_t)0x345678 * -(int64_t)(0x345678 - 3)));
	*p++ = (int)((u & 0xFFFFFF) * (u & 0xFFFFFF));
	*p++ = 2;
	*p++ = -4;
	*p++ = INT32_MAX;
	*p++ = 4;
	*p++ = 0;
	*p++ = 0x40200000;
	*p++ = 5;
	*p++ = 29;
	*p++ = 1;
	*p++ = 13;
	*p++ = 5;
	for (int i = 0; i < 13; i++) {
		static const int atomics[] = {7, 5, 7, 6, 9, 4, 7, 15, 13, 6, 6, 2, 0};

		*p++ = atomics[i];
	}
	*p++ = 496;
	*p++ = 7;
	*p++ = 0x7FFFFFFE;
	while (p < expected + N_BUILTINS - 1)
		*p++ = -1;
	*p = 8;
	ok(kernel_builtins(&a, NULL));
	ok(cudaMemcpy(out, a.out, sizeof(out), cudaMemcpyDeviceToHost));
	for (int i = 0; i < N_BUILTINS; i++) {
		if (out[i] != expected[i] && expected[i] != -1)
			fail_msg("value %d is %d (%#x), not %d (%#x)", i, out[i], (unsigned)out[i], expected[i],
				 (unsigned)expected[i]);
	}
	ok(cudaFree(a.out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_saxpy),     cmocka_unit_test(test_softmax), cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_transpose), cmocka_unit_test(test_warp),    cmocka_unit_test(test_builtins),
	};

	skip_without_gpu();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
