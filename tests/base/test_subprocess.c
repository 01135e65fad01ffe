/* Programs that succeed, fail, are missing, or do not end. */
#include "base/process/subprocess.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/check.h"

#define SHELL(script) ((const char *const[]){"sh", "-c", script, NULL})

static int64_t soon(void)
{
	return ct_deadline_in(60 * CT_SEC);
}

static void test_output(void **state)
{
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(ct_subprocess_run(SHELL("echo one; echo error >&2; cat; echo two"), soon(), &out), CT_OK);
	assert_string_equal(ct_str_text(&out), "one\ntwo\n");
	ct_str_clear(&out);
	/* More than a pipe can hold, on both outputs. */
	assert_int_equal(ct_subprocess_run(SHELL("head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2"),
					   soon(), &out),
			 CT_OK);
	assert_int_equal(out.len, 300000);
	ct_str_release(&out);
}

static void test_failures(void **state)
{
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(ct_subprocess_run((const char *const[]){"ctrain-no-such-program", NULL}, soon(), &out),
			 CT_NOT_FOUND);
	assert_non_null(strstr(ct_error_message(), "ctrain-no-such-program"));
	assert_int_equal(
		ct_subprocess_run(SHELL("echo some; echo first >&2; echo the reason >&2; exit 3"), soon(), &out),
		CT_IO);
	assert_non_null(strstr(ct_error_message(), "sh failed with exit code 3: the reason"));
	assert_string_equal(ct_str_text(&out), "some\n");
	assert_int_equal(ct_subprocess_run(SHELL("kill -9 $$"), soon(), &out), CT_IO);
	assert_non_null(strstr(ct_error_message(), "signal 9"));
	ct_str_release(&out);
}

static void test_deadline(void **state)
{
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(
		ct_subprocess_run((const char *const[]){"sleep", "1000", NULL}, ct_deadline_in(50 * CT_MS), &out),
		CT_TIMEOUT);
	/* It has closed its outputs, but goes on. */
	assert_int_equal(ct_subprocess_run(SHELL("exec sleep 1000 >/dev/null 2>&1"), ct_deadline_in(50 * CT_MS), &out),
			 CT_TIMEOUT);
	ct_str_release(&out);
}

/* The program of a wrapper ends with it. It inherits the pipe, which is closed when it has ended. */
static void test_deadline_of_wrapper(void **state)
{
	struct ct_str out = {0};
	struct pollfd p = {0};
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(ct_subprocess_run(SHELL("sleep 100 & wait"), ct_deadline_in(300 * CT_MS), &out), CT_TIMEOUT);
	close(fds[1]);
	p.fd = fds[0];
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_true(p.revents & POLLHUP);
	close(fds[0]);
	ct_str_release(&out);
}

/* If the process that runs a program is killed, the program and its children are killed, too. */
static void test_caller_is_killed(void **state)
{
	struct ct_str out = {0};
	struct pollfd p = {0};
	char script[64], byte;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	snprintf(script, sizeof(script), "echo >&%d; sleep 1000 & wait", fds[1]);
	const pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(ct_subprocess_run(SHELL(script), soon(), &out) == CT_OK);
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	p.fd = fds[0];
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_true(p.revents & POLLHUP);
	close(fds[0]);
}

/* Returns a signal set in /proc/self/status, as a mask. */
static unsigned long long signals_in(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	assert_non_null(line);
	return strtoull(line + strlen(name), NULL, 16);
}

/* The program does not inherit how this process treats the end of its children. Without it, no exit code is known. */
static void test_children_are_ignored(void **state)
{
	const unsigned long long child = 1ULL << (SIGCHLD - 1), timer = 1ULL << (SIGALRM - 1),
				 term = 1ULL << (SIGTERM - 1);
	struct ct_str out = {0};
	sigset_t set, old;

	(void)state;
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, &old);
	signal(SIGCHLD, SIG_IGN);
	assert_fails(ct_subprocess_run((const char *const[]){"cat", "/proc/self/status", NULL}, soon(), &out), CT_IO,
		     "cannot wait for cat: No child processes");
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	assert_int_equal(signals_in(ct_str_text(&out), "SigBlk:") & (child | timer | term), term);
	assert_int_equal(signals_in(ct_str_text(&out), "SigIgn:") & child, 0);
	ct_str_release(&out);
}

/* A stop signal that is blocked here does not end the program. */
static void test_signals(void **state)
{
	struct ct_str out = {0};
	sigset_t set, old;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	assert_int_equal(ct_subprocess_run(SHELL("kill -TERM $$; echo alive"), soon(), &out), CT_OK);
	assert_string_equal(ct_str_text(&out), "alive\n");
	sigprocmask(SIG_SETMASK, &old, NULL);
	ct_str_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_output),           cmocka_unit_test(test_failures),
		cmocka_unit_test(test_deadline),         cmocka_unit_test(test_deadline_of_wrapper),
		cmocka_unit_test(test_caller_is_killed), cmocka_unit_test(test_children_are_ignored),
		cmocka_unit_test(test_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
