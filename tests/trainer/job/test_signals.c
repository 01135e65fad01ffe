/* Stop signals read from a descriptor, in one process and across fork. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/job/signals.h"

static void test_pending_signals_are_read(void **state)
{
	int fd = -1;
	int seen = 0;

	(void)state;
	assert_int_equal(ct_signals_open(false, &fd), CT_OK);
	assert_int_equal(ct_signals_next(fd), 0);
	raise(SIGTERM);
	raise(SIGUSR1);
	for (int sig; (sig = ct_signals_next(fd)) != 0;)
		seen += sig == SIGTERM ? 1 : sig == SIGUSR1 ? 10 : 100;
	assert_int_equal(seen, 11);
	ct_signals_close(fd);
}

/* As a worker: the launcher's signals are blocked when it forks; the new program opens its own descriptor later. */
static int stopped_before_open(int sig)
{
	int fd = -1;

	ct_signals_reset_in_child();
	raise(sig);
	if (ct_signals_open(false, &fd) < 0)
		return 1;
	return ct_signals_next(fd) == sig ? 0 : 2;
}

static int wait_status_of(int (*child)(int), int sig)
{
	int status = 0, fd = -1;
	pid_t pid;

	assert_int_equal(ct_signals_open(true, &fd), CT_OK);
	pid = fork();
	if (pid == 0)
		_exit(child(sig));
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	ct_signals_close(fd);
	return status;
}

static void test_early_stop_waits_for_open(void **state)
{
	static const int stops[] = {SIGINT, SIGTERM, SIGUSR1};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(stops); i++)
		assert_int_equal(wait_status_of(stopped_before_open, stops[i]), 0);
}

static void test_others_are_unblocked_in_child(void **state)
{
	int status;

	(void)state;
	signal(SIGHUP, SIG_DFL); /* nohup ignores it, and so would the child */
	status = wait_status_of(stopped_before_open, SIGHUP);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGHUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pending_signals_are_read),
		cmocka_unit_test(test_early_stop_waits_for_open),
		cmocka_unit_test(test_others_are_unblocked_in_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
