/* Runs the conformance suite for every communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dist/comm/comm.h"
#include "tests/dist/conform.h"
#include "tests/dist/ranks.h"

/* The host of each rank. */
struct world {
	int size, nodes[4];
};
static const struct world several_hosts[] = {{2, {0, 1}}, {3, {0, 0, 1}}, {4, {0, 1, 0, 1}}, {4, {0, 1, 1, 1}}};
static const struct world one_host[] = {{2, {0, 0}}, {3, {0, 0, 0}}, {4, {0, 0, 0, 0}}};

/* A single rank, for which every communicator is replaced by self. */
static void test_one_rank(void **state)
{
	const char *name;
	bool available;
	char why[256];

	(void)state;
	for (size_t i = 0; ct_comm_backend_at(i, &name, &available, why, sizeof(why)); i++) {
		if (available)
			assert_true(run_suite(name, 1, NULL));
	}
}

/* In how many of the worlds the communicator runs. */
static size_t run_worlds(const char *backend, const struct world *worlds, size_t n)
{
	size_t ran = 0;

	for (size_t i = 0; i < n; i++)
		ran += run_suite(backend, worlds[i].size, worlds[i].nodes);
	return ran;
}

/* Every registered communicator, so that a new one is tested without a change here: between hosts if it can, else
 * within one. A communicator supports all of these worlds or none of them. */
static void test_all(void **state)
{
	const char *name;
	bool available;
	char why[256];

	(void)state;
	for (size_t i = 0; ct_comm_backend_at(i, &name, &available, why, sizeof(why)); i++) {
		size_t n;

		if (strcmp(name, "mpi") == 0 || strcmp(name, "nccl") == 0)
			continue; /* need mpirun (test_comm_mpi.c) or GPUs (nccl/test_nccl_comm.c) */
		if (!available) {
			printf("%s is skipped: %s\n", name, why);
			continue;
		}
		n = run_worlds(name, several_hosts, CT_ARRAY_LEN(several_hosts));
		if (n > 0)
			assert_int_equal(n, CT_ARRAY_LEN(several_hosts));
		else
			n = run_worlds(name, one_host, CT_ARRAY_LEN(one_host));
		printf("%s: %zu worlds\n", name, n);
		assert_true(n >= CT_ARRAY_LEN(one_host) || strcmp(name, "self") == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		/* Last, because it loads the MPI libraries: with ThreadSanitizer, ranks that are forked afterwards
		   fail. */
		cmocka_unit_test(test_one_rank),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
