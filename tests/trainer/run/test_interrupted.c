/* The files of a run while a signal interrupts every other system call (EINTR): nothing fails, and nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/trainer/ckpt_fixture.h"
#include "trainer/job/run_dir.h"
#include "trainer/run/metrics/metrics.h"

static bool interrupting;
static unsigned n_calls;

/* The linker sends the program's calls here (--wrap). */
int __real_open(const char *path, int flags, mode_t mode);
int __real_fsync(int fd);
int __real_flock(int fd, int operation);
int __real_close(int fd);
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __real_read(int fd, void *p, size_t n);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_fsync(int fd);
int __wrap_flock(int fd, int operation);
int __wrap_close(int fd);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);

static bool interrupted(void)
{
	if (!interrupting || n_calls++ % 2 == 1)
		return false;
	errno = EINTR;
	return true;
}

int __wrap_open(const char *path, int flags, mode_t mode)
{
	return interrupted() ? -1 : __real_open(path, flags, mode);
}

int __wrap_fsync(int fd)
{
	return interrupted() ? -1 : __real_fsync(fd);
}

int __wrap_flock(int fd, int operation)
{
	return interrupted() ? -1 : __real_flock(fd, operation);
}

/* Does what Linux does: the descriptor is closed even if the call was interrupted. */
int __wrap_close(int fd)
{
	int rc = __real_close(fd);

	return rc == 0 && interrupted() ? -1 : rc;
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	return interrupted() ? -1 : __real_write(fd, p, n);
}

ssize_t __wrap_read(int fd, void *p, size_t n)
{
	return interrupted() ? -1 : __real_read(fd, p, n);
}

static void test_checkpoints(void **state)
{
	const char *run = in_tmpdir("ckpt");
	struct fixture fx = {0};

	(void)state;
	assert_ok(fixture_try_open(&fx, "convnet", 3, 0.9f));
	interrupting = true;
	for (uint32_t step = 1; step <= 5; step++) {
		/* So that each of the calls is the interrupted one once. */
		n_calls += step % 2;
		assert_ok(fixture_save(&fx, run, step, 2, true));
		assert_int_equal(fixture_newest(&fx, run), step);
	}
	interrupting = false;
	assert_int_equal(count_names(run, ".tmp-"), 0);
	fixture_close(&fx);
}

static void test_run_files(void **state)
{
	struct ct_step_metrics s = {.grad_norm = -1, .weight_norm = -1};
	char *run = ct_strdup(in_tmpdir("run")), *text;
	ct_metrics_log *m;
	size_t len, n = 0, n_logged = 0;
	ct_run_lock *lock;

	(void)state;
	interrupting = true;
	for (int i = 0; i < 3; i++) {
		n_calls++;
		assert_ok(ct_run_dir_prepare(run, "auto"));
		assert_ok(ct_run_dir_lock(run, &lock));
		assert_ok(ct_log_open_file(in_tmpdir("run/log/rank-00000.log")));
		assert_ok(ct_metrics_open(run, s.step, true, NULL, &m));
		for (int k = 0; k < 5; k++) {
			s.step++;
			assert_ok(ct_metrics_step(m, &s));
			ct_log_record("test", "step %d done", k);
		}
		assert_ok(ct_metrics_checkpoint(m, s.step, "path", 1, 1, 1));
		ct_metrics_close(m);
		ct_log_close();
		ct_run_dir_unlock(lock);
	}
	interrupting = false;
	assert_ok(ct_file_read(in_tmpdir("run/metrics.jsonl"), 1 << 20, &text, &len));
	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	assert_int_equal(n, 3 * 6);
	ct_free(text);
	assert_ok(ct_file_read(in_tmpdir("run/log/rank-00000.log"), 1 << 20, &text, &len));
	for (const char *at = text; (at = strstr(at, " done\n")) != NULL; at++)
		n_logged++;
	assert_int_equal(n_logged, 3 * 5);
	ct_free(text);
	ct_free(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checkpoints),
		cmocka_unit_test(test_run_files),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
