/* Programs whose files are already in the places of others. */
#include "base/process/spawn.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/check.h"

/* In a process whose standard input is `output`, and whose standard output is a file with the contents "hello", runs
 * the script with the files. */
static void run(const char *script, const int files[3], int output, const char *path)
{
	struct ct_spawn s = {.argv = (const char *const[]){"sh", "-c", script, NULL},
			     .files = {files[0], files[1], files[2]}};
	int status, input = open(path, O_RDONLY | O_CLOEXEC);
	pid_t pid;

	sigemptyset(&s.blocked);
	sigemptyset(&s.defaults);
	if (input < 0 || dup2(output, STDIN_FILENO) < 0 || dup2(input, STDOUT_FILENO) < 0)
		_exit(97);
	if (ct_spawn(&s, &pid) != 0 || waitpid(pid, &status, 0) != pid)
		_exit(98);
	_exit(status != 0);
}

static void expect(const char *script, const int files[3], const char *expected)
{
	char path[] = "/tmp/ctrain-spawn-XXXXXX", text[64] = "";
	int fds[2], status, fd = mkstemp(path);
	ssize_t n;
	pid_t pid;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "hello", 5), 5);
	close(fd);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run(script, files, fds[1], path);
	close(fds[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(status, 0);
	n = read(fds[0], text, sizeof(text) - 1);
	assert_true(n >= 0);
	assert_string_equal(text, expected);
	close(fds[0]);
}

static void test_order(void **state)
{
	(void)state;
	expect("cat", (const int[]){1, 0, 2}, "hello");
	expect("cat >&2", (const int[]){1, -1, 0}, "hello");
	expect("cat; echo a; echo b >&2", (const int[]){-1, 0, 0}, "a\nb\n");
	expect("cat >&0 <&2", (const int[]){0, -1, 1}, "hello");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
