/* The kernels of passes over arenas. */
#include <stdbool.h>

#include "tests/nn/cuda/kernel_check.h"

enum { N = 3057 };

static void check_arena(enum ct__k_arena_op op, bool stopped)
{
	const int32_t stop = stopped;
	float *a = gpu_random(N, 7), *b = gpu_random(N, 8);
	struct ct__k_arena_args k = {.op = op, .n = N, .decay = 0.75f, .rest = 0.25f};

	k.a = gpu_upload(a, N, CT_F32);
	k.b = gpu_upload(b, N, CT_F32);
	k.stopped = gpu_bytes(&stop, sizeof(stop));
	check_cuda(ct__k_arena(&k, NULL));
	for (int i = 0; i < N; i++) {
		const float x = a[i], y = b[i];

		if (op == CT__K_ARENA_ADD)
			a[i] = x + y;
		else if (op == CT__K_ARENA_AVERAGE && !stopped)
			a[i] = 0.75f * x + 0.25f * y;
		else if (op == CT__K_ARENA_SWAP) {
			a[i] = y;
			b[i] = x;
		}
	}
	expect_device("first arena", k.a, a, N, CT_F32, 0);
	expect_device("second arena", k.b, b, N, CT_F32, 0);
	gpu_free(k.stopped);
	gpu_free(k.b);
	gpu_free(k.a);
	test_free(b);
	test_free(a);
}

static void test_arena(void **state)
{
	(void)state;
	check_arena(CT__K_ARENA_ADD, false);
	check_arena(CT__K_ARENA_AVERAGE, false);
	check_arena(CT__K_ARENA_AVERAGE, true);
	check_arena(CT__K_ARENA_SWAP, true);
}

static void test_take_loss(void **state)
{
	struct ct__k_metrics m = {.loss = 2.5, .count = 3, .top1 = 2, .top5 = 3};
	struct ct__k_take_loss_args a;
	float loss;

	(void)state;
	a.metrics = gpu_bytes(&m, sizeof(m));
	a.loss = gpu_upload(NULL, 1, CT_F32);
	check_cuda(ct__k_take_loss(&a, NULL));
	gpu_read(&loss, a.loss, sizeof(loss));
	gpu_read(&m, a.metrics, sizeof(m));
	assert_true(loss == 2.5f);
	assert_true(m.loss == 0 && m.count == 0 && m.top1 == 0 && m.top5 == 0);
	gpu_free(a.loss);
	gpu_free(a.metrics);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_arena), cmocka_unit_test(test_take_loss)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_on_gpu(run);
}
