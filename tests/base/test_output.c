/* Standard output and standard error with a reader that does not read. Each case runs in a child process, because the
 * changes cannot be undone. */
#include "base/output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/check.h"
#include "tests/pause.h"

#define LINE_LEN 100
#define N_LINES 3000 /* more than fits into a pipe or terminal and the buffer */

static void put_line(int fd, int i)
{
	char line[LINE_LEN + 1];

	snprintf(line, sizeof(line), "%-*d\n", LINE_LEN - 1, i);
	line[LINE_LEN - 1] = '\n';
	ct_output_write(fd, line, LINE_LEN);
}

static char *read_all(int fd)
{
	struct ct_str s = {0};
	char part[4096];
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0)
		ct_str_add_bytes(&s, part, (size_t)n);
	ct_str_add(&s, "");
	return s.s ? s.s : ct_strdup("");
}

/* Runs `body` in a child with both streams redirected to out_fd. The child must end although no one reads. */
static void in_child(int out_fd, void (*body)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		dup2(out_fd, STDOUT_FILENO);
		dup2(out_fd, STDERR_FILENO);
		close(out_fd);
		/* If the child waits, SIGALRM ends it, so that the test does not hang. */
		alarm(20);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void flood(void)
{
	ct_output_never_wait();
	for (int i = 0; i < N_LINES; i++)
		put_line(i % 2 ? STDERR_FILENO : STDOUT_FILENO, i);
	CT_ASSERT(ct_output_pending());
	ct_output_finish(ct_deadline_in(10 * CT_MS));
}

/* Checks that the first lines have arrived, complete and in order. */
static void check_first_lines(const char *text)
{
	size_t n = strlen(text) / LINE_LEN;

	assert_in_range(n, 10, N_LINES - 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal((int)strtol(text + i * LINE_LEN, NULL, 10), (int)i);
}

static void test_pipe_that_nobody_reads(void **state)
{
	int p[2];
	char *text;

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	in_child(p[1], flood);
	/* The flags of the pipe have not changed for other processes. */
	assert_int_equal(fcntl(p[1], F_GETFL) & O_NONBLOCK, 0);
	close(p[1]);
	text = read_all(p[0]);
	check_first_lines(text);
	ct_free(text);
	close(p[0]);
}

static void test_socket_that_nobody_reads(void **state)
{
	int p[2];
	char *text;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
	in_child(p[1], flood);
	close(p[1]);
	text = read_all(p[0]);
	check_first_lines(text);
	ct_free(text);
	close(p[0]);
}

/* Writes until the pipe and the buffer are full but for a few bytes: a short line must not overtake the missing ones.
 * Then the reader wakes up, and the rest arrives. */
static void flood_and_go_on(int ready)
{
	ct_output_never_wait();
	for (int i = 0; i < N_LINES; i++)
		put_line(STDOUT_FILENO, i);
	ct_output_print(STDOUT_FILENO, "%d\n", N_LINES);
	ct_output_transient(STDERR_FILENO, "status", 6);
	(void)!write(ready, "x", 1);
	while (ct_output_pending())
		pause_briefly();
	put_line(STDOUT_FILENO, N_LINES + 1);
	ct_output_print(STDERR_FILENO, "the %s\n", "end");
	ct_output_finish(CT_FOREVER);
}

static void test_reader_that_comes_back(void **state)
{
	int p[2], ready[2], status, missing = -1, last = -1;
	char *text, *line, *rest, x;
	pid_t child;

	(void)state;
	assert_true(pipe2(p, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(p[1], STDOUT_FILENO);
		dup2(p[1], STDERR_FILENO);
		close(p[0]);
		close(p[1]);
		alarm(20);
		flood_and_go_on(ready[1]);
		_exit(0);
	}
	close(p[1]);
	assert_int_equal(read(ready[0], &x, 1), 1);
	rest = text = read_all(p[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	while ((line = strsep(&rest, "\n")) && *line) {
		int got;

		if (sscanf(line, "ctrain: %d lines are missing here", &missing) == 1)
			continue;
		if (strcmp(line, "the end") == 0)
			break;
		assert_int_equal(sscanf(line, "%d", &got), 1);
		/* All missing lines are reported where they are missing. */
		assert_int_equal(got, missing >= 0 && last <= N_LINES ? last + missing + 1 : last + 1);
		last = got;
	}
	assert_true(missing > 0);
	assert_int_equal(last, N_LINES + 1);
	assert_string_equal(line, "the end");
	assert_null(strstr(text, "status"));
	ct_free(text);
	close(p[0]);
	close(ready[0]);
	close(ready[1]);
}

/* Without ct_output_never_wait, the writer waits, and nothing is lost. */
static void test_waits_at_first(void **state)
{
	int p[2], status;
	pid_t child;
	char *text;

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(p[1], STDOUT_FILENO);
		close(p[0]);
		close(p[1]);
		/* Another process may have set this flag. */
		fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
		for (int i = 0; i < N_LINES; i++)
			put_line(STDOUT_FILENO, i);
		_exit(0);
	}
	close(p[1]);
	text = read_all(p[0]);
	assert_int_equal(strlen(text), N_LINES * LINE_LEN);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ct_free(text);
	close(p[0]);
}

static void write_on(void)
{
	ct_output_never_wait();
	for (int i = 0; i < N_LINES; i++)
		put_line(STDOUT_FILENO, i);
	CT_ASSERT(!ct_output_pending());
}

/* A file accepts everything. A pipe without a reader accepts nothing, which is not an error. */
static void test_file_and_nobody(void **state)
{
	char *path = ct_path_join(*state, "out"), *text;
	int p[2], fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	size_t len;

	in_child(fd, write_on);
	close(fd);
	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	assert_int_equal(len, N_LINES * LINE_LEN);
	ct_free(text);
	ct_free(path);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	close(p[0]);
	in_child(p[1], write_on);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe_that_nobody_reads), cmocka_unit_test(test_socket_that_nobody_reads),
		cmocka_unit_test(test_reader_that_comes_back), cmocka_unit_test(test_waits_at_first),
		cmocka_unit_test(test_file_and_nobody),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
