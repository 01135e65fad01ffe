/* Runs the cases of cases.h for the communicators of the CPU whose ranks can be forked. test_comm_mpi.c runs them for
 * mpi, and nccl/test_comm_gpu.c for those that work on memory of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static void test_row_32_gloo(void **state)
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

/* A new back end must run the cases, here or in one of the other two tests. */
static void test_row_35_all_back_ends(void **state)
{
	static const char *const tested[] = {"shm", "gloo", "hier", "mpi", "nccl"};
	const char *name;
	bool available;
	char why[256];

	(void)state;
	for (size_t i = 0; ct_comm_backend_at(i, &name, &available, why, sizeof(why)); i++) {
		bool found = strcmp(name, "self") == 0; /* has no other ranks */

		for (size_t k = 0; k < CT_ARRAY_LEN(tested); k++)
			found |= strcmp(name, tested[k]) == 0;
		if (!found)
			fail_msg("no test runs the cases for %s", name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_row_32_gloo),
		cmocka_unit_test(test_hier),
		cmocka_unit_test(test_row_35_all_back_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
