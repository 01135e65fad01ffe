/* Frozen parameters and factors of the learning rate on the CUDA engine. */
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/freeze_check.h"

static void open_cuda(const char *engine, ct_device **device, ct_engine **out)
{
	(void)engine;
	open_engine(true, device, out);
}

static void test_engine(void **state)
{
	(void)state;
	freeze_check(open_cuda, "cuda");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_engine)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
