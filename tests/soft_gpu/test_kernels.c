/* Kernels on the software GPU give the right results in every order, and mistakes within a block are found. */
#include <math.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"

enum { N_SEEDS = 12 };

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
static double softmax_error(bool without_barrier)
{
	float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
	struct row_args a = {.n = COLUMNS, .without_barrier = without_barrier};
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
	for (int seed = 0; seed < N_SEEDS; seed++) {
		soft_gpu_set_seed((uint64_t)seed);
		assert_true(softmax_error(false) < 1e-6);
	}
}

/* Planted bug: a barrier is missing. */
static void test_missing_barrier(void **state)
{
	int found = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		soft_gpu_set_seed((uint64_t)seed);
		found += softmax_error(true) > 1e-3;
	}
	assert_true(found >= N_SEEDS / 2);
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
	for (int seed = 0; seed < N_SEEDS; seed++) {
		soft_gpu_set_seed((uint64_t)seed);
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

static void launch_misuse(struct misuse_args *a, int *out)
{
	a->out = upload(NULL, 64 * sizeof(int));
	ok(kernel_misuse(a, NULL));
	ok(cudaMemcpy(out, a->out, 64 * sizeof(int), cudaMemcpyDeviceToHost));
	ok(cudaFree(a->out));
}

static bool is_expected(const int *out)
{
	for (int i = 0; i < 64; i++) {
		if (out[i] != i + 2 * (63 - i))
			return false;
	}
	return true;
}

static void run_misuse(void *arg)
{
	int out[64];

	launch_misuse(arg, out);
	if (!is_expected(out))
		_exit(3);
}

static void expect_misuse(enum misuse what, int index, const char *message)
{
	struct misuse_args a = {.what = what, .index = index};
	struct child c = run_child(run_misuse, &a);

	if (!message) {
		expect_success(&c);
		return;
	}
	expect_message(&c, message);
	if (strncmp(message, "kernel", 6) != 0 && !WITH_ASAN)
		expect_message(&c, "kernel misuse");
}

/* Planted bugs within a block; each message names the kernel. */
static void test_misuse(void **state)
{
	(void)state;
	expect_misuse(MISUSE_NONE, 0, NULL);
	expect_misuse(MISUSE_DIVERGENT_BARRIER, 0, "thread 0 waits at ");
	expect_misuse(MISUSE_DIVERGENT_BARRIER, 0, "but thread 32 at ");
	expect_misuse(MISUSE_EARLY_END, 0, "32 threads have ended");
	expect_misuse(MISUSE_ABSENT_LANE, 0, "kernel misuse");
	expect_misuse(MISUSE_OTHER_MASK, 0, "is not in its own mask 0000ffff");
	expect_misuse(MISUSE_SHARED_OVERFLOW, 64, WITH_ASAN ? "use-after-poison" : "dynamic shared memory");
#if WITH_ASAN && !defined(__clang__)
	expect_misuse(MISUSE_STATIC_OVERFLOW, 64, "global-buffer-overflow");
#endif
}

/* What a block finds in shared memory is NaN, also after another kernel. */
static void test_fresh_shared(void **state)
{
	struct misuse_args none = {.what = MISUSE_NONE}, unset = {.what = MISUSE_UNSET};
	int out[64];

	(void)state;
	launch_misuse(&none, out);
	launch_misuse(&unset, out);
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], -1);
}

/* Planted bug: it needs another order of warps than the usual one. */
static void test_order_of_warps(void **state)
{
	struct misuse_args a = {.what = MISUSE_NO_BARRIER};
	int found = 0, out[64];

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		soft_gpu_set_seed((uint64_t)seed);
		launch_misuse(&a, out);
		found += !is_expected(out);
	}
	assert_true(found > 0 && found < N_SEEDS);
}

/* Planted bug: an index that is too large by one. */
static void run_one_too_many(void *arg)
{
	float x[100] = {0};
	struct saxpy_args a = {.a = 1, .n = 101};

	(void)arg;
	a.x = upload(x, sizeof(x));
	a.y = upload(x, sizeof(x));
	ok(kernel_saxpy(&a, TYPE_F32, NULL));
	ok(cudaDeviceSynchronize());
}

static void test_out_of_bounds(void **state)
{
	struct child c = run_child(run_one_too_many, NULL);

	(void)state;
	expect_message(&c, WITH_ASAN ? "use-after-poison" : "kernel saxpy<float> ");
	expect_message(&c, WITH_ASAN ? "kernels.cu" : "wrote after the end of an allocation of 400 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_saxpy),           cmocka_unit_test(test_softmax),
		cmocka_unit_test(test_missing_barrier), cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_transpose),       cmocka_unit_test(test_warp),
		cmocka_unit_test(test_misuse),          cmocka_unit_test(test_out_of_bounds),
		cmocka_unit_test(test_fresh_shared),    cmocka_unit_test(test_order_of_warps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
