/* When a job is started again after a failure, and after which pause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "trainer/launch/restart.h"

static enum ct_restart_choice after(struct ct_restarts *r, enum ct_status st, int rank, int64_t step)
{
	const struct ct_attempt_end end = {.status = st, .rank = rank, .step = step};

	return ct_restarts_next(r, &end);
}

static void test_budget(void **state)
{
	struct ct_restarts r = {.budget = 2}, none = {0};

	(void)state;
	assert_int_equal(after(&r, CT_PEER_LOST, 0, 10), CT_RESTART_AGAIN);
	assert_int_equal(r.used, 1);
	assert_int_equal(after(&r, CT_PEER_LOST, 0, 20), CT_RESTART_AGAIN);
	assert_int_equal(after(&r, CT_PEER_LOST, 0, 30), CT_RESTART_USED);
	assert_int_equal(r.used, 2);
	assert_int_equal(after(&none, CT_PEER_LOST, 0, 10), CT_RESTART_USED);
}

static void test_errors_that_would_occur_again(void **state)
{
	static const enum ct_status again[] = {CT_DEVICE,  CT_NOMEM,     CT_COMM, CT_PEER_LOST,
					       CT_TIMEOUT, CT_CANCELLED, CT_IO,   CT_BUG};
	static const enum ct_status useless[] = {CT_USAGE,     CT_CONFIG,  CT_UNSUPPORTED, CT_MISMATCH,   CT_DATA,
						 CT_NOT_FOUND, CT_NUMERIC, CT_NO_DEVICE,   CT_INTERRUPTED};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(again); i++) {
		struct ct_restarts r = {.budget = 1};

		assert_int_equal(after(&r, again[i], 0, 1), CT_RESTART_AGAIN);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(useless); i++) {
		struct ct_restarts r = {.budget = 1};

		assert_int_equal(after(&r, useless[i], 0, 1), CT_RESTART_USELESS);
	}
}

static void test_crash_loop(void **state)
{
	struct ct_restarts r = {.budget = 100};

	(void)state;
	assert_int_equal(after(&r, CT_BUG, 3, 7), CT_RESTART_AGAIN);
	assert_int_equal(after(&r, CT_BUG, 3, 7), CT_RESTART_LOOP);
	assert_int_equal(r.n_same, 2);
	assert_int_equal(r.last.rank, 3);
	/* Another step or another rank in between is no loop. */
	r = (struct ct_restarts){.budget = 100};
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(&r, CT_BUG, 3, 7 + i % 2), CT_RESTART_AGAIN);
	r = (struct ct_restarts){.budget = 100};
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(&r, CT_BUG, i % 2, 7), CT_RESTART_AGAIN);
}

static void test_crash_loop_at_the_start(void **state)
{
	struct ct_restarts r = {.budget = 100};

	(void)state;
	assert_int_equal(after(&r, CT_COMM, 1, 0), CT_RESTART_AGAIN);
	assert_int_equal(after(&r, CT_COMM, 1, 0), CT_RESTART_AGAIN);
	assert_int_equal(after(&r, CT_COMM, 1, 0), CT_RESTART_LOOP);
}

/* If it is not known which rank failed and when, failures cannot be compared. */
static void test_unknown_place(void **state)
{
	struct ct_restarts r = {.budget = 100};

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(&r, CT_TIMEOUT, -1, -1), CT_RESTART_AGAIN);
}

static void test_pause(void **state)
{
	static const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60};
	struct ct_restarts r = {.budget = 100};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(seconds); i++) {
		assert_int_equal(after(&r, CT_IO, (int)i % 2, 5), CT_RESTART_AGAIN);
		assert_int_equal(r.delay_ns, seconds[i] * CT_SEC);
	}
	/* A later step is progress. */
	assert_int_equal(after(&r, CT_IO, 0, 6), CT_RESTART_AGAIN);
	assert_int_equal(r.delay_ns, CT_SEC);
	assert_int_equal(after(&r, CT_IO, 0, 4), CT_RESTART_AGAIN);
	assert_int_equal(r.delay_ns, 2 * CT_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),        cmocka_unit_test(test_errors_that_would_occur_again),
		cmocka_unit_test(test_crash_loop),    cmocka_unit_test(test_crash_loop_at_the_start),
		cmocka_unit_test(test_unknown_place), cmocka_unit_test(test_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
