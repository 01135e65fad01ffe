/* Collectives in streams of GPUs, posted and recorded: those of NCCL, and those of the CPU's communicators, which are
 * staged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dist/stream_rig.h"

static void test(const char *backend, rank_fn fn)
{
	if (!comm_built(backend))
		return;
	for (int seed = 1; seed <= 3; seed++) {
		for (int size = 2; size <= 3; size++) {
			struct scene s = {.backend = backend, .gpu = true, .timeout_ns = LONG, .variant = seed};

			assert_int_equal(run_ranks(size, NULL, fn, &s, NULL), 0);
		}
	}
}

static void test_sums(void **state)
{
	(void)state;
	test("nccl", sums);
	test("shm", sums);
	test("gloo", sums);
}

static void test_recorded(void **state)
{
	(void)state;
	test("nccl", recorded);
	test("shm", recorded);
	test("gloo", recorded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_recorded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
