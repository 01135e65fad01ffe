/* Runs the cases of cases.h for the communicators of the CPU whose ranks can be forked. test_comm_mpi.c runs them for
 * mpi, and nccl/test_comm_gpu.c for those that work on memory of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dist/cases.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

static void test(const struct subject *s)
{
	if (comm_built(s->backend))
		run_cases(s, fork_case);
}

static void test_shm(void **state)
{
	(void)state;
	test(&(struct subject){.name = "shm", .backend = "shm"});
}

static void test_gloo(void **state)
{
	(void)state;
	test(&(struct subject){.name = "gloo", .backend = "gloo"});
}

/* Rank 0 is alone on its host, so the others disagree with it between the hosts. */
static void test_hier(void **state)
{
	(void)state;
	test(&(struct subject){.name = "hier", .backend = "hier", .nodes = (const int[]){0, 1, 1}});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_gloo),
		cmocka_unit_test(test_hier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
