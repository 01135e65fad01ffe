/* Object files of nvcc can be linked with the stand-in, which provides the functions to which they refer. Their kernels
 * are compiled for a real GPU, so launching one is an error. */
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
