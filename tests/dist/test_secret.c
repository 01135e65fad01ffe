/* Where the run's secret comes from, and which files are refused. */
#include "dist/rendezvous/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/base/check.h"

#define MPI_KEY "OMPI_MCA_orte_precondition_transports"

static void put(const char *path, const char *text, mode_t mode)
{
	assert_ok(ct_file_replace(path, text, strlen(text)));
	assert_int_equal(chmod(path, mode), 0);
}

/* RUN and HOME below the scratch directory, both empty; an environment without secrets. */
static void fresh(const char *scratch, const char *name, char run[256], char home[256])
{
	snprintf(run, 256, "%s/%s-run", scratch, name);
	snprintf(home, 256, "%s/%s-home", scratch, name);
	assert_ok(ct_dir_make(run));
	assert_ok(ct_dir_make(home));
	unsetenv("CTRAIN_TOKEN");
	unsetenv(MPI_KEY);
	setenv("HOME", home, 1);
}

static void test_order(void **state)
{
	char run[256], home[256], path[300], dot[300];
	struct ct_secret_opts o = {.run_dir = run};
	struct ct_secret s;

	fresh(*state, "order", run, home);
	assert_fails(ct_secret_find(&o, &s), CT_NOT_FOUND, "there is no CTRAIN_TOKEN");
	assert_non_null(strstr(ct_error_message(), "order-run/token"));
	assert_non_null(strstr(ct_error_message(), "order-home/.ctrain/token"));
	assert_non_null(strstr(ct_error_hint_text(), "dist.open_network=true"));

	snprintf(dot, sizeof(dot), "%s/.ctrain", home);
	assert_ok(ct_dir_make(dot));
	snprintf(path, sizeof(path), "%s/.ctrain/token", home);
	put(path, "of my home\n", 0600);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "of my home");
	assert_string_equal(s.from, path);
	/* Node 0 makes nothing where there is a source. */
	o.first = true;
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "of my home");
	assert_false(s.made);

	snprintf(path, sizeof(path), "%s/token", run);
	put(path, "of this run", 0600);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "of this run");
	assert_string_equal(s.from, path);
	assert_true(s.in_file && !s.in_env);

	setenv(MPI_KEY, "0123456789abcdef-fedcba9876543210", 1);
	assert_ok(ct_secret_find(&o, &s));
	assert_int_equal(strlen(s.token), 64);
	assert_non_null(strstr(s.from, "mpirun"));
	assert_null(strstr(s.token, "0123456789abcdef"));
	assert_false(s.in_env || s.in_file);

	setenv("CTRAIN_TOKEN", "of the environment", 1);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "of the environment");
	assert_true(s.in_env && !s.in_file);
	/* Empty is not set. */
	setenv("CTRAIN_TOKEN", "", 1);
	unsetenv(MPI_KEY);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "of this run");
}

static void test_length(void **state)
{
	char run[256], home[256], text[80] = "";
	struct ct_secret_opts o = {.run_dir = run, .first = true};
	struct ct_secret s;

	fresh(*state, "length", run, home);
	memset(text, 'x', 65);
	setenv("CTRAIN_TOKEN", text, 1);
	assert_fails(ct_secret_find(&o, &s), CT_USAGE, "CTRAIN_TOKEN has 65 characters, but at most 64");
	assert_fails(ct_secret_from_env(&s), CT_USAGE, "65 characters");
	text[64] = '\0';
	setenv("CTRAIN_TOKEN", text, 1);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, text);
}

static void test_open_network(void **state)
{
	char run[256], home[256], path[300];
	struct ct_secret_opts o = {.run_dir = run, .first = true, .open_network = true};
	struct ct_secret s;

	fresh(*state, "open", run, home);
	snprintf(path, sizeof(path), "%s/token", run);
	put(path, "not wanted", 0600);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "");
	/* The key of mpirun is not a contradiction. */
	setenv(MPI_KEY, "0123456789abcdef-fedcba9876543210", 1);
	assert_ok(ct_secret_find(&o, &s));
	assert_string_equal(s.token, "");
	setenv("CTRAIN_TOKEN", "wanted", 1);
	assert_fails(ct_secret_find(&o, &s), CT_USAGE, "dist.open_network");
}

static void test_made(void **state)
{
	char run[256], home[256], path[300];
	struct ct_secret_opts first = {.run_dir = run, .first = true}, second = {.run_dir = run};
	struct ct_secret a, b;
	struct stat st;

	fresh(*state, "made", run, home);
	umask(0);
	assert_ok(ct_secret_find(&first, &a));
	umask(022);
	assert_true(a.made && a.in_file);
	assert_int_equal(strlen(a.token), 32);
	snprintf(path, sizeof(path), "%s/token", run);
	assert_string_equal(a.from, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_ok(ct_secret_find(&second, &b));
	assert_string_equal(a.token, b.token);
	assert_false(b.made);
	/* Those who start again keep it: another node may have read it already. */
	assert_ok(ct_secret_find(&first, &b));
	assert_string_equal(a.token, b.token);
	/* One that was left empty is made anew. */
	put(path, "", 0600);
	assert_ok(ct_secret_find(&first, &b));
	assert_true(b.made);
	assert_string_not_equal(a.token, b.token);
	first.run_dir = "/proc/self/none";
	assert_fails(ct_secret_find(&first, &b), CT_IO, "cannot store the run's secret");
}

static void test_files_that_are_refused(void **state)
{
	static const struct {
		const char *text;
		mode_t mode;
		enum ct_status st;
		const char *says;
	} cases[] = {
		{"secret\n", 0640, CT_USAGE, "other users have access to"},
		{"secret\n", 0604, CT_USAGE, "mode 0604"},
		{"secret\n", 0620, CT_USAGE, "mode 0620"},
		{"\n", 0600, CT_USAGE, "must contain exactly one line"},
		{"two\nlines\n", 0600, CT_USAGE, "must contain exactly one line"},
		{"0123456789012345678901234567890123456789012345678901234567890123456789", 0600, CT_USAGE,
		 "at most 64"},
	};
	char run[256], home[256], path[300], other[300], big[5000];
	struct ct_secret_opts o = {.run_dir = run, .first = true};
	struct ct_secret s;

	fresh(*state, "refused", run, home);
	snprintf(path, sizeof(path), "%s/token", run);
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		put(path, cases[i].text, cases[i].mode);
		assert_fails(ct_secret_find(&o, &s), cases[i].st, cases[i].says);
		assert_non_null(strstr(ct_error_message(), path));
	}
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	put(path, big, 0600);
	assert_fails(ct_secret_find(&o, &s), CT_DATA, "more than 4096 bytes");
	/* A link, a FIFO, a directory. */
	assert_int_equal(unlink(path), 0);
	snprintf(other, sizeof(other), "%s/other", run);
	put(other, "secret\n", 0600);
	assert_int_equal(symlink(other, path), 0);
	assert_fails(ct_secret_find(&o, &s), CT_USAGE, "symbolic link");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_fails(ct_secret_find(&o, &s), CT_DATA, "not a regular file");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_fails(ct_secret_find(&o, &s), CT_DATA, "not a regular file");
	assert_int_equal(rmdir(path), 0);
	/* Another user's. */
	put(path, "secret\n", 0600);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, 12345), 0);
		assert_fails(ct_secret_find(&o, &s), CT_USAGE, "belongs to user 12345");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_open_network),
		cmocka_unit_test(test_made),
		cmocka_unit_test(test_files_that_are_refused),
	};

	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
