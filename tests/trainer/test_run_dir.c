/* The run directory before training: created, moved aside, locked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/launch/run_dir.h"

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

/* Not even as root in somebody else's directory. */
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
		cmocka_unit_test(test_never_moves_a_run_aside),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_lock_that_vanishes),
		cmocka_unit_test(test_lock_that_is_a_link),
		cmocka_unit_test(test_space),
		cmocka_unit_test(test_folder_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
