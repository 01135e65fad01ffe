/* Objects of nvcc load beside the stand-in, which offers what they refer to. Their kernels are for a GPU: starting one is an error. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"

static void test_no_image(void **state)
{
	struct saxpy_args a = {.a = 1, .n = 1};

	(void)state;
	expect_error(kernel_saxpy(&a, TYPE_BF16, NULL), cudaErrorNoKernelImageForDevice);
	expect_error(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_image)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
