/* Which nodes take part in an attempt of a job whose number of nodes may change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trainer/launch/form.h"

enum { NODES = 4 };

struct select_case {
	int min, global;
	bool here[NODES];
	int world, first[NODES + 1]; /* first is not checked if world is 0 */
};

static void check(int *first, const struct select_case *cases, size_t n)
{
	const struct ct_roll all = {.world = first[NODES], .n_nodes = NODES, .first = first};

	for (size_t i = 0; i < n; i++) {
		const struct select_case *c = &cases[i];
		struct ct_config cfg = {.launch.nodes = NODES, .launch.min_nodes = c->min, .batch.global = c->global};
		int got[NODES + 1];
		struct ct_roll out = {.first = got};

		if (ct_form_select(&cfg, &all, c->here, &out) != c->world)
			fail_msg("case %zu: %d ranks", i, out.world);
		for (int k = 0; c->world > 0 && k <= NODES; k++)
			if (got[k] != c->first[k])
				fail_msg("case %zu: node %d begins with rank %d", i, k, got[k]);
	}
}

static void test_equal_nodes(void **state)
{
	static const struct select_case cases[] = {
		{2, 48, {true, true, true, true}, 4, {0, 1, 2, 3, 4}},
		{2, 48, {true, false, true, true}, 3, {0, 1, 1, 2, 3}},
		{2, 48, {true, false, false, true}, 2, {0, 1, 1, 1, 2}},
		{2, 48, {true, false, false, false}, 0, {0}},
		{1, 48, {true, false, false, false}, 1, {0, 1, 1, 1, 1}},
		/* 32 samples cannot be divided among 3 ranks: the last node does not take part. */
		{2, 32, {true, true, false, true}, 2, {0, 1, 2, 2, 2}},
		{3, 32, {true, true, false, true}, 0, {0}},
	};

	(void)state;
	check((int[]){0, 1, 2, 3, 4}, cases, CT_ARRAY_LEN(cases));
}

static void test_unequal_nodes(void **state)
{
	static const struct select_case cases[] = {
		{1, 60, {true, true, true, true}, 10, {0, 4, 6, 9, 10}},
		{1, 60, {true, false, true, true}, 4, {0, 4, 4, 4, 4}}, /* neither 8 nor 7 ranks, but 4 */
		{1, 60, {true, true, false, false}, 6, {0, 4, 6, 6, 6}},
	};

	(void)state;
	check((int[]){0, 4, 6, 9, 10}, cases, CT_ARRAY_LEN(cases));
}

/* Node 3 leads the job, so it takes part although the number of ranks allows only two nodes. */
static void test_leader(void **state)
{
	int first[] = {0, 1, 2, 3, 4}, got[NODES + 1];
	const int expected[] = {0, 1, 1, 1, 2};
	const bool here[] = {true, true, false, true};
	const struct ct_roll all = {.world = 4, .n_nodes = NODES, .first = first};
	struct ct_config cfg = {
		.launch.nodes = NODES, .launch.min_nodes = 2, .launch.node_rank = 3, .batch.global = 32};
	struct ct_roll out = {.first = got};

	(void)state;
	assert_int_equal(ct_form_select(&cfg, &all, here, &out), 2);
	assert_memory_equal(got, expected, sizeof(expected));
}

static void test_index(void **state)
{
	int first[] = {0, 1, 1, 3, 3};
	const struct ct_roll r = {.world = 3, .n_nodes = NODES, .first = first};

	(void)state;
	assert_int_equal(ct_form_count(&r), 2);
	assert_int_equal(ct_form_index(&r, 0), 0);
	assert_int_equal(ct_form_index(&r, 2), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_nodes),
		cmocka_unit_test(test_unequal_nodes),
		cmocka_unit_test(test_leader),
		cmocka_unit_test(test_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
