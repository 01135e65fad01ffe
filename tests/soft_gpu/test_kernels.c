/* Mistakes within a kernel are detected. test_values.c checks the results of the same kernels without mistakes. */
#include <math.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"

enum { N_SEEDS = 12 };

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

/* Without the fence, the last block does not see what most others have stored; the host does. */
static void test_fence(void **state)
{
	enum { BLOCKS = 5 };

	(void)state;
	for (int fence = 0; fence < 2; fence++) {
		const int zeros[BLOCKS + 2] = {0};
		int *memory = upload(zeros, sizeof(zeros)), got[BLOCKS + 2];
		const struct last_block_args a = {
			.count = (unsigned *)memory, .partial = memory + 2, .sum = memory + 1, .fence = fence};

		ok(kernel_last_block(&a, BLOCKS, NULL));
		ok(cudaMemcpy(got, memory, sizeof(got), cudaMemcpyDeviceToHost));
		assert_int_equal(got[0], BLOCKS);
		assert_int_equal(got[1] == 15, fence);
		for (int i = 0; i < BLOCKS; i++)
			assert_int_equal(got[2 + i], i + 1);
		ok(cudaFree(memory));
	}
}

static void do_nothing(void (*function)(void), const void *args)
{
	(void)function, (void)args;
}

/* The table of what ptxas reports has a row for "wide" that is only for this test: 80 registers. "other" may be any
 * kernel of the same file. */
static void test_registers(void **state)
{
	struct soft_kernel k = {.name = "wide<T>, grid", .file = "tests/rule.cu", .call = do_nothing};
	const dim3 one = {1, 1, 1};
	const int args = 0;

	(void)state;
	ok(soft_gpu_launch(&k, one, (dim3){80, 10, 1}, 0, NULL, &args, sizeof(args)));
	expect_error(soft_gpu_launch(&k, one, (dim3){801, 1, 1}, 0, NULL, &args, sizeof(args)),
		     cudaErrorLaunchOutOfResources);
	k.name = "other, grid";
	expect_error(soft_gpu_launch(&k, one, (dim3){1024, 1, 1}, 0, NULL, &args, sizeof(args)),
		     cudaErrorLaunchOutOfResources);
	k.file = "tests/unknown.cu";
	ok(soft_gpu_launch(&k, one, (dim3){1024, 1, 1}, 0, NULL, &args, sizeof(args)));
	(void)cudaGetLastError();
	ok(cudaDeviceSynchronize());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers),       cmocka_unit_test(test_fence),

		cmocka_unit_test(test_missing_barrier), cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_out_of_bounds),   cmocka_unit_test(test_fresh_shared),
		cmocka_unit_test(test_order_of_warps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
