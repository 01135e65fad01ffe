/* Failpoints send their signal at the requested place, call and rank. */
#include "tests/base/check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"

/* Returns how a child ends that passes "here" `passes` times: the signal or 0, plus 100 if it was stopped first. */
static int end_of_child(const char *spec, bool by_environment, int passes)
{
	pid_t child = fork();
	int status, stopped = 0;

	assert_true(child >= 0);
	if (child == 0) {
		if (by_environment)
			setenv("CTRAIN_FAILPOINT", spec, 1);
		else
			ct_failpoint_arm(spec);
		ct_failpoint("elsewhere");
		for (int i = 0; i < passes; i++)
			ct_failpoint("here");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	if (WIFSTOPPED(status)) {
		stopped = 100;
		kill(child, SIGCONT);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	return stopped + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void test_specs(void **state)
{
	static const struct {
		const char *spec;
		int passes, end;
	} cases[] = {
		{"here", 1, SIGKILL},
		{"here", 0, 0},
		{"here:2", 1, 0},
		{"here:2", 2, SIGKILL},
		{"here@3", 1, SIGKILL},
		{"here@2", 1, 0},
		{"here:2@3", 2, SIGKILL},
		{"here=stop", 1, 100},
		{"here:3@3=stop", 5, 100},
		{"there", 1, 0},
		{"her", 1, 0},
		{"here2", 1, 0},
		/* An invalid value sets no failpoint. */
		{"", 1, 0},
		{":1", 1, 0},
		{"here:0", 1, 0},
		{"here:-1", 1, 0},
		{"here:x", 1, 0},
		{"here:", 1, 0},
		{"here@", 1, 0},
		{"here=explode", 1, 0},
		{"here=", 1, 0},
		{"a-name-that-is-longer-than-any-failpoint-ever-will-be-in-this-program", 1, 0},
	};

	(void)state;
	setenv("RANK", "3", 1);
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(end_of_child(cases[i].spec, false, cases[i].passes), cases[i].end);
		assert_int_equal(end_of_child(cases[i].spec, true, cases[i].passes), cases[i].end);
	}
	assert_int_equal(end_of_child(NULL, false, 1), 0);
	/* Without RANK the process is rank 0. If RANK is not a number, no failpoint applies. */
	unsetenv("RANK");
	assert_int_equal(end_of_child("here@0", false, 1), SIGKILL);
	setenv("RANK", "none", 1);
	assert_int_equal(end_of_child("here@0", false, 1), 0);
	unsetenv("RANK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_specs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
