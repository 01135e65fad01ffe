/* The run directory before training: created, moved aside, locked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/job/run_dir.h"
#include "trainer/run/checkpoint/checkpoint.h"

/* The linker sends the program's calls of rmdir here (--wrap). */
static bool add_late_file; /* before the next rmdir */
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);

int __wrap_rmdir(const char *path)
{
	char file[600];

	if (add_late_file) {
		add_late_file = false;
		snprintf(file, sizeof(file), "%s/late", path);
		assert_int_equal(ct_file_replace(file, "x", 1), CT_OK);
	}
	return __real_rmdir(path);
}

static bool no_flock, no_ofd; /* the file system lacks these locks */
int __real_flock(int fd, int operation);
int __real_fcntl(int fd, int cmd, void *argument);
int __wrap_flock(int fd, int operation);
int __wrap_fcntl(int fd, int cmd, void *argument);

int __wrap_flock(int fd, int operation)
{
	errno = ENOLCK;
	return no_flock ? -1 : __real_flock(fd, operation);
}

int __wrap_fcntl(int fd, int cmd, void *argument)
{
	errno = ENOLCK;
	return no_ofd ? -1 : __real_fcntl(fd, cmd, argument);
}

static bool exists(const char *run, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s%s", run, name);
	return ct_file_exists(path);
}

static void add_folder(const char *run, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/checkpoints/%s", run, name);
	assert_int_equal(ct_dir_make(path), CT_OK);
}

static void add_checkpoint(const char *run)
{
	add_folder(run, "step-000000000001");
}

static void test_never_moves_a_run_aside(void **state)
{
	const char *run = in_tmpdir("aside");

	(void)state;
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
	assert_true(exists(run, "/log") && exists(run, "/checkpoints"));
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
	assert_false(exists(run, ".old-1")); /* nothing was in it */
	add_folder(run, ".tmp-step-000000000001-1-2");
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
	assert_false(exists(run, ".old-1")); /* nor did it come to a checkpoint */
	for (int k = 1; k <= 2; k++) {
		add_checkpoint(run);
		assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
		assert_true(exists(run, "/checkpoints/step-000000000001"));
		assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
		assert_false(exists(run, "/checkpoints/step-000000000001"));
	}
	assert_true(exists(run, ".old-1/checkpoints/step-000000000001"));
	assert_true(exists(run, ".old-2/checkpoints/step-000000000001"));
}

static void test_lock(void **state)
{
	const char *run = in_tmpdir("lock");
	char pid[32];
	ct_run_lock *one = NULL, *two = NULL;

	(void)state;
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &one), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &two), CT_IO);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	assert_non_null(strstr(ct_error_message(), pid));
	/* Nor is it moved aside while it is in use. */
	add_checkpoint(run);
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_IO);
	assert_true(exists(run, "/checkpoints/step-000000000001"));
	ct_run_dir_unlock(one);
	assert_int_equal(ct_run_dir_lock(run, &two), CT_OK);
	ct_run_dir_unlock(two);
}

/* What a run that goes on sees when its lock is removed, replaced or moved, and that no second run gets in. */
static void test_lock_that_vanishes(void **state)
{
	const char *run = in_tmpdir("vanish"), *path = in_tmpdir("vanish/lock"), *moved = in_tmpdir("vanish-moved");
	ct_run_lock *one = NULL, *two = NULL;

	(void)state;
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &one), CT_OK);
	assert_int_equal(ct_run_lock_check(one), CT_OK);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ct_run_lock_check(one), CT_IO);
	assert_non_null(strstr(ct_error_message(), "vanish/lock was removed or renamed"));
	assert_non_null(strstr(ct_error_hint_text(), "do not change the directory"));
	/* The directory is locked, too. This attempt makes a new RUN/lock. */
	assert_int_equal(ct_run_dir_lock(run, &two), CT_IO);
	assert_non_null(strstr(ct_error_message(), "in use"));
	assert_int_equal(ct_run_lock_check(one), CT_IO);
	assert_non_null(strstr(ct_error_message(), "replaced"));
	ct_run_dir_unlock(one);

	assert_int_equal(ct_run_dir_lock(run, &one), CT_OK);
	assert_int_equal(rename(run, moved), 0);
	assert_int_equal(ct_run_lock_check(one), CT_IO);
	assert_int_equal(ct_run_dir_lock(moved, &two), CT_IO);
	assert_int_equal(rename(moved, run), 0);
	assert_int_equal(ct_run_lock_check(one), CT_OK);
	assert_int_equal(ct_dir_remove(run), CT_OK);
	assert_int_equal(ct_run_lock_check(one), CT_IO);
	ct_run_dir_unlock(one);
}

static void set_job(const char *id, const char *restarts)
{
	assert_int_equal(setenv("SLURM_CLUSTER_NAME", "c", 1), 0);
	assert_int_equal(setenv("SLURM_JOB_ID", id, 1), 0);
	assert_int_equal(setenv("SLURM_RESTART_COUNT", restarts, 1), 0);
}

static void unset_job(void)
{
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_RESTART_COUNT");
	unsetenv("SLURM_CLUSTER_NAME");
}

/* A job that Slurm has restarted takes the directory from its earlier start, which can no longer publish. */
static void test_take_over(void **state)
{
	const char *run = in_tmpdir("job"), *metrics = in_tmpdir("job/metrics.jsonl");
	ct_run_lock *one = NULL, *two = NULL, *three = NULL;
	char *text;
	size_t len;
	int fd;

	(void)state;
	set_job("7", "0");
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &one), CT_OK);
	assert_int_equal(ct_run_lock_saves_before(one), -1);
	assert_int_equal(ct_file_replace(metrics, "{}\n", 3), CT_OK);
	assert_int_equal(ct_file_open(metrics, CT_FILE_APPEND, &fd), CT_OK);
	add_checkpoint(run);
	add_folder(run, ".tmp-step-000000000002-1-2");
	set_job("8", "5");
	assert_int_equal(ct_run_dir_lock(run, &two), CT_IO); /* another job is not a restart */
	assert_int_equal(ct_run_lock_check(one), CT_OK);

	set_job("7", "1");
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
	assert_true(exists(run, "/checkpoints/step-000000000001"));
	assert_int_equal(ct_run_dir_lock(run, &two), CT_OK);
	assert_int_equal(ct_run_lock_saves_before(two), 0);
	assert_int_equal(ct_run_lock_check(two), CT_OK);
	assert_int_equal(ct_run_lock_check(one), CT_IO);
	assert_false(exists(run, "/checkpoints/.tmp-step-000000000002-1-2"));
	assert_int_equal(ct_fd_write_all(fd, "{\"late\":1}\n", 11, metrics), CT_OK);
	close(fd);
	assert_int_equal(ct_file_read(metrics, 100, &text, &len), CT_OK);
	assert_string_equal(text, "{}\n");
	ct_free(text);

	/* The new lock is as good as the old one, and outlives the end of the earlier start. */
	ct_run_dir_unlock(one);
	assert_int_equal(ct_run_dir_lock(run, &three), CT_IO);
	ct_run_dir_unlock(two);
	set_job("7", "0");
	assert_int_equal(ct_run_dir_lock(run, &three), CT_IO);
	assert_non_null(strstr(ct_error_message(), "start 0 of Slurm job c/7, but start 1"));
	set_job("8", "5");
	assert_int_equal(ct_run_dir_lock(run, &three), CT_OK);
	ct_run_dir_unlock(three);
	unset_job();
}

/* A process of the earlier start still writes a checkpoint. The first attempt to remove it fails, which is no error. */
static void test_take_over_from_a_save(void **state)
{
	const char *run = in_tmpdir("saving");
	ct_run_lock *lock = NULL;

	(void)state;
	set_job("12", "0");
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &lock), CT_OK);
	ct_run_dir_unlock(lock);
	add_folder(run, ".tmp-step-000000000002-1-2");
	set_job("12", "1");
	ct_error_clear();
	add_late_file = true;
	assert_ok(ct_run_dir_lock(run, &lock));
	assert_false(add_late_file);
	assert_false(exists(run, "/checkpoints/.tmp-step-000000000002-1-2"));
	assert_int_equal(ct_error_status(), CT_OK);
	assert_string_equal(ct_error_message(), "");
	ct_run_dir_unlock(lock);
	unset_job();
}

/* Limits the memory that this process can still allocate. */
static struct rlimit limit_memory(size_t more)
{
	struct rlimit before, limit;
	unsigned long long pages;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu", &pages), 1);
	fclose(f);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	limit = (struct rlimit){pages * (unsigned long long)sysconf(_SC_PAGESIZE) + more, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	return before;
}

/* The metrics may be larger than the memory. */
static void test_take_over_of_large_metrics(void **state)
{
	const char *run = in_tmpdir("large"), *metrics = in_tmpdir("large/metrics.jsonl");
	const uint64_t size = 40 << 20;
	ct_run_lock *lock = NULL;
	struct rlimit before;
	uint64_t now;

	(void)state;
	set_job("11", "0");
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_run_dir_lock(run, &lock), CT_OK);
	ct_run_dir_unlock(lock);
	assert_int_equal(ct_file_replace(metrics, "{}\n", 3), CT_OK);
	assert_int_equal(truncate(metrics, (off_t)size), 0);
	set_job("11", "1");
	before = limit_memory(size / 2);
	assert_ok(ct_run_dir_lock(run, &lock));
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(ct_file_size(metrics, &now), CT_OK);
	assert_int_equal(now, size);
	ct_run_dir_unlock(lock);
	unset_job();
}

/* Only the first start of a job treats what it finds as an earlier run. */
static void test_restarted_job_counts_saves(void **state)
{
	const char *run = in_tmpdir("saves");
	ct_run_lock *lock = NULL;

	(void)state;
	set_job("9", "0");
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	add_checkpoint(run);
	for (int restart = 0; restart < 3; restart++) {
		set_job("9", (const char *const[]){"0", "1", "2"}[restart]);
		assert_int_equal(ct_run_dir_lock(run, &lock), CT_OK);
		assert_int_equal(ct_run_lock_saves_before(lock),
				 restart == 0 ? -1 : (int64_t)ct_checkpoint_newest_save(run));
		ct_run_dir_unlock(lock);
	}
	/* The earlier starts of this job have not locked the directory. */
	set_job("10", "1");
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_OK);
	assert_false(exists(run, "/checkpoints/step-000000000001"));
	unset_job();
}

/* Not even as root in another user's directory. */
static void test_lock_that_is_a_link(void **state)
{
	const char *run = in_tmpdir("linked"), *victim = in_tmpdir("victim"), *lock = in_tmpdir("linked/lock");
	char *text;
	size_t len;
	ct_run_lock *fd;

	(void)state;
	assert_int_equal(ct_run_dir_prepare(run, "auto"), CT_OK);
	assert_int_equal(ct_file_replace(victim, "precious", 8), CT_OK);
	assert_int_equal(symlink("../victim", lock), 0);
	assert_int_equal(ct_run_dir_lock(run, &fd), CT_IO);
	assert_non_null(strstr(ct_error_message(), "not a regular file but a symbolic link"));
	assert_int_equal(ct_file_read(victim, 100, &text, &len), CT_OK);
	assert_string_equal(text, "precious");
	ct_free(text);
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(mkfifo(lock, 0600), 0);
	assert_int_equal(ct_run_dir_lock(run, &fd), CT_IO);
	assert_non_null(strstr(ct_error_message(), "not a regular file but a FIFO"));
}

/* Locks of fcntl keep other runs away, too. Without any, training may go on, but nothing that would be wrong if the run
 * were still in use. */
static void test_file_system_without_locks(void **state)
{
	const char *run = in_tmpdir("unlocked"), *log = in_tmpdir("unlocked.log");
	ct_run_lock *one = NULL, *two = NULL;
	char *text;
	size_t len;

	(void)state;
	assert_ok(ct_run_dir_prepare(run, "auto"));
	no_flock = true;
	assert_ok(ct_run_dir_try_lock(run, &one));
	assert_int_equal(ct_run_dir_try_lock(run, &two), CT_IO);
	assert_non_null(strstr(ct_error_message(), "in use by another ctrain"));
	assert_true(ct_run_dir_in_use(run));
	ct_run_dir_unlock(one);
	no_ofd = true;
	assert_int_equal(ct_run_dir_lock(run, &one), CT_IO);
	assert_int_equal(ct_error_reason(), CT_REASON_NO_LOCKS);
	assert_non_null(strstr(ct_error_message(), "unlocked/lock"));
	assert_ok(ct_log_open_file(log));
	assert_ok(ct_run_dir_try_lock(run, &one));
	ct_log_close();
	assert_ok(ct_file_read(log, 1 << 20, &text, &len));
	assert_non_null(strstr(text, "do not start a second run"));
	assert_non_null(strstr(text, "hint: mount it with locks"));
	ct_free(text);
	assert_ok(ct_run_lock_check(one));
	add_checkpoint(run);
	assert_int_equal(ct_run_dir_prepare(run, "never"), CT_IO);
	assert_true(exists(run, "/checkpoints/step-000000000001"));
	ct_run_dir_unlock(one);
	no_flock = no_ofd = false;
}

static void test_space(void **state)
{
	(void)state;
	assert_int_equal(ct_run_dir_check_space(tmpdir, 1, 1), CT_OK);
	assert_int_equal(ct_run_dir_check_space(tmpdir, (uint64_t)1 << 60, 3), CT_IO);
	assert_non_null(strstr(ct_error_message(), "3 more checkpoints need"));
}

static void test_folder_that_cannot_be(void **state)
{
	(void)state;
	assert_int_equal(ct_file_replace(in_tmpdir("file"), "x", 1), CT_OK);
	assert_int_equal(ct_run_dir_prepare(in_tmpdir("file/run"), "auto"), CT_IO);
	assert_non_null(strstr(ct_error_message(), "cannot use"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_moves_a_run_aside),    cmocka_unit_test(test_lock),
		cmocka_unit_test(test_lock_that_vanishes),         cmocka_unit_test(test_take_over),
		cmocka_unit_test(test_take_over_from_a_save),      cmocka_unit_test(test_take_over_of_large_metrics),
		cmocka_unit_test(test_restarted_job_counts_saves), cmocka_unit_test(test_lock_that_is_a_link),
		cmocka_unit_test(test_file_system_without_locks),  cmocka_unit_test(test_space),
		cmocka_unit_test(test_folder_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
