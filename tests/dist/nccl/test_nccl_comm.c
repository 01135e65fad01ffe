/* Runs the conformance suite for the communicator nccl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dist/conform.h"

static void test_ranks(void **state)
{
	(void)state;
	for (int size = 1; size <= 4; size++)
		assert_true(run_suite("nccl", size, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
