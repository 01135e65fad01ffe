/* Runs the cases of cases.h on memory of GPUs: for nccl, and for communicators of the CPU that are staged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dist/cases.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

static void test(const char *name, const char *backend, const int *nodes, bool posted)
{
	const struct subject s = {.name = name, .backend = backend, .nodes = nodes, .gpu = true, .posted = posted};

	if (comm_built(backend))
		run_cases(&s, fork_case);
}

static void test_nccl(void **state)
{
	(void)state;
	setenv("SOFT_NCCL_MISMATCH", "hang", 1); /* as NCCL does */
	test("nccl", "nccl", NULL, false);
	test("nccl, posted", "nccl", NULL, true);
}

static void test_staged(void **state)
{
	(void)state;
	test("shm, staged", "shm", NULL, true);
	test("gloo, staged", "gloo", NULL, true);
	test("hier, staged", "hier", (const int[]){0, 1, 1}, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nccl),
		cmocka_unit_test(test_staged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
