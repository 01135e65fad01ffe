/* Runs the conformance suite for the communicator nccl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dist/conform.h"

static void run_suite(int size)
{
	struct suite s = {.backend = "nccl"};

	s.digests = shared_zeroed(2 * MAX_RANKS * sizeof(uint64_t));
	s.unsupported = shared_zeroed(MAX_RANKS * sizeof(bool));
	assert_non_null(s.digests);
	assert_non_null(s.unsupported);
	for (s.run = 0; s.run < 2; s.run++) {
		assert_int_equal(run_ranks(size, NULL, conform, &s, NULL), 0);
		assert_false(s.unsupported[0]);
	}
	assert_memory_equal(s.digests, s.digests + MAX_RANKS, (size_t)size * sizeof(uint64_t));
	assert_true(s.digests[0] != 0);
}

static void test_ranks(void **state)
{
	(void)state;
	for (int size = 1; size <= 3; size++)
		run_suite(size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
