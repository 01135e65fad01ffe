/* When a run stops because its time is over, with a Slurm job that no Slurm knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "trainer/job/time_limit.h"

static const struct ct_slurm_job no_job, unknown_job = {.id = 1, .name = "1"};

/* The margin after the limits have been read once. */
static int64_t margin_of(const struct ct_slurm_job *job, int64_t seconds, int64_t margin)
{
	struct ct_time_limit l;

	assert_int_equal(ct_time_limit_start(&l, job, ct_deadline_in(seconds * CT_SEC), margin), CT_OK);
	ct_time_limit_stop(&l);
	return l.margin;
}

static void test_margin(void **state)
{
	(void)state;
	assert_in_range(margin_of(&no_job, 1000, -1), 90, 100);
	assert_int_equal(margin_of(&no_job, 100000, -1), 120);
	assert_int_equal(margin_of(&no_job, 1000, 7), 7);
	assert_int_equal(margin_of(&no_job, 1000, 0), 0);
}

/* launch.stop_before=auto is derived from train.max_time if Slurm does not answer. */
static void test_slurm_does_not_answer(void **state)
{
	(void)state;
	assert_in_range(margin_of(&unknown_job, 1000, -1), 90, 100);
}

static void test_signal(void **state)
{
	struct ct_time_limit l;
	sigset_t set;
	int sig;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	assert_int_equal(ct_time_limit_start(&l, &no_job, ct_now_ns(), -1), CT_OK);
	assert_int_equal(sigwait(&set, &sig), 0);
	assert_int_equal(sig, SIGUSR1);
	ct_time_limit_stop(&l);
}

static void test_no_limit(void **state)
{
	struct ct_time_limit l;

	(void)state;
	assert_int_equal(ct_time_limit_start(&l, &no_job, INT64_MAX, -1), CT_OK);
	assert_false(l.thread.running);
	assert_int_equal(ct_time_limit_start(&l, &unknown_job, INT64_MAX, 0), CT_OK);
	assert_false(l.thread.running);
	ct_time_limit_stop(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_margin),
		cmocka_unit_test(test_slurm_does_not_answer),
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_no_limit),
	};

	/* Slurm's programs are not found. */
	if (setenv("PATH", "", 1) != 0 || unsetenv("SLURM_JOB_END_TIME") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
