#include "base/clock.h"

#include <limits.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/check.h"

static void test_deadlines(void **state)
{
	int64_t now = ct_now_ns(), at = ct_deadline_in(5 * CT_SEC);

	(void)state;
	assert_true(now > 0);
	assert_true(at >= now + 5 * CT_SEC);
	assert_true(ct_now_ns() >= now);
	assert_true(ct_deadline_in(CT_FOREVER) == CT_FOREVER);
	assert_true(ct_deadline_in(CT_FOREVER - 1) == CT_FOREVER);
	assert_true(ct_deadline_in(-CT_SEC) < ct_now_ns());
}

static void test_poll_milliseconds(void **state)
{
	(void)state;
	assert_int_equal(ct_deadline_poll_ms(CT_FOREVER), -1);
	assert_int_equal(ct_deadline_poll_ms(0), 0);
	assert_int_equal(ct_deadline_poll_ms(INT64_MIN), 0);
	assert_int_equal(ct_deadline_poll_ms(ct_now_ns()), 0);
	assert_int_equal(ct_deadline_poll_ms(CT_FOREVER - 1), INT_MAX);
	/* Rounded up: never 0 while time is left, because the caller would spin. One hour is enough on a slow machine,
	 * too. */
	assert_in_range(ct_deadline_poll_ms(ct_deadline_in(3600 * CT_SEC)), 3000 * 1000, 3600 * 1000);
	for (int i = 0; i < 1000; i++) {
		int64_t at = ct_deadline_in(100 * 1000);
		int ms = ct_deadline_poll_ms(at);

		assert_true(ms == 1 || (ms == 0 && ct_now_ns() >= at));
	}
}

/* Returns true if a child finds that it started between our reading of the clock and its own. */
static bool child_knows_its_start(void)
{
	int64_t before = ct_now_ns();
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		int64_t start = ct_process_start_ns();

		/* The start is rounded down to 10 ms. */
		_exit(start >= before - 20 * CT_MS && start <= ct_now_ns() ? 0 : 1);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_process_start(void **state)
{
	bool known = false;

	(void)state;
	assert_true(ct_process_start_ns() <= ct_now_ns());
	/* Several attempts, because a busy machine may be delayed between the reads of the two clocks. */
	for (int i = 0; i < 50 && !known; i++)
		known = child_knows_its_start();
	assert_true(known);
	/* A real start time is the same on every call; the fallback is not. */
	known = false;
	for (int i = 0; i < 50 && !known; i++) {
		int64_t first = ct_process_start_ns(), at = ct_deadline_in(30 * CT_MS);

		while (ct_now_ns() < at)
			sched_yield();
		known = llabs(ct_process_start_ns() - first) < 5 * CT_MS;
	}
	assert_true(known);
	assert_true(ct_wall_seconds() > 1.6e9);
}

static void test_backoff(void **state)
{
	struct ct_backoff b = {3, 20};
	const int64_t pauses[] = {3, 6, 12, 20, 20};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(pauses); i++)
		assert_int_equal(ct_backoff_ns(&b), pauses[i]);
	b = (struct ct_backoff){INT64_MAX - 1, INT64_MAX}; /* no overflow */
	assert_int_equal(ct_backoff_ns(&b), INT64_MAX - 1);
	assert_int_equal(ct_backoff_ns(&b), INT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_poll_milliseconds),
		cmocka_unit_test(test_process_start),
		cmocka_unit_test(test_backoff),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
