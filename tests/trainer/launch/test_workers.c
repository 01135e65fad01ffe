/* The children of the launcher. This program is its own worker: started with a mode, it acts as one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/job/launch_env.h"
#include "trainer/job/launched.h"
#include "trainer/launch/workers_impl.h"

/* What a worker does that was started with this mode; returns its exit code. */
static int play(const char *mode)
{
	int64_t code;

	if (ct_launched_join() < 0)
		return 98;
	if (strcmp(mode, "pause") == 0)
		return pause();
	if (strcmp(mode, "say") == 0)
		return fputs("one\ntwo", stdout) < 0;
	if (strcmp(mode, "data") == 0)
		return ct_launched_deliver_error(CT_FAIL(CT_DATA, "no %s", "such file")) ? 3 : 1;
	if (strcmp(mode, "peer") == 0)
		return ct_launched_deliver_error(CT_FAIL(CT_PEER_LOST, "rank 9 is gone")) ? 5 : 1;
	if (strcmp(mode, "wordless") == 0)
		return ct_launched_deliver_error(CT_NOMEM) ? 4 : 1;
	if (strcmp(mode, "env") == 0)
		return strcmp(getenv("CT_TEST_A"), "new") == 0 && strcmp(getenv("CT_TEST_AB"), "old") == 0 &&
				       strcmp(getenv("CT_TEST_B"), "added") == 0
			       ? 0
			       : 1;
	return ct_parse_i64(mode, &code) == CT_OK ? (int)code : 99;
}

static struct ct_rank_pages pages;

static void start(struct ct_worker *w, char *mode)
{
	char *argv[] = {"test_workers", mode, NULL}, fd[48];
	char *env[] = {"CT_TEST_A=new", "CT_TEST_B=added", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", fd};

	snprintf(fd, sizeof(fd), "%s=%d", CT_ENV_PAGES_FD, pages.fd);
	setenv("CT_TEST_A", "old", 1);
	setenv("CT_TEST_AB", "old", 1);
	ct_rank_pages_clear(&pages);
	ct__worker_init(w, 3, ct_rank_pages_at(&pages, 0));
	assert_int_equal(ct__worker_start(w, argv, env, CT_ARRAY_LEN(env), false, pages.fd), CT_OK);
}

static void wait_for_end(struct ct_worker *w)
{
	siginfo_t info;

	assert_int_equal(waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(ct__worker_reap(w));
	assert_false(ct__worker_reap(w));
}

static enum ct_status status_of(char *mode, bool *consequence)
{
	struct ct_worker w;
	enum ct_status st;

	start(&w, mode);
	wait_for_end(&w);
	st = ct__worker_status(&w);
	*consequence = ct__worker_is_consequence(&w);
	ct__worker_release(&w);
	return st;
}

static void test_status(void **state)
{
	static const struct {
		char mode[12];
		enum ct_status st;
		bool consequence;
	} cases[] = {
		{"env", CT_OK, false},    {"data", CT_DATA, false}, {"peer", CT_PEER_LOST, true},
		{"2", CT_USAGE, false},   {"3", CT_DATA, false},    {"5", CT_COMM, true},
		{"6", CT_NUMERIC, false}, {"7", CT_IO, false},      {"75", CT_INTERRUPTED, false},
		{"70", CT_BUG, false},    {"1", CT_BUG, false},     {"wordless", CT_NOMEM, false},
	};
	bool consequence;
	char mode[12];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		memcpy(mode, cases[i].mode, sizeof(mode));
		assert_int_equal(status_of(mode, &consequence), cases[i].st);
		assert_int_equal(consequence, cases[i].consequence);
	}
}

static void test_error_travels(void **state)
{
	char mode[] = "data";
	struct ct_worker w;

	(void)state;
	start(&w, mode);
	wait_for_end(&w);
	assert_non_null(ct__worker_error(&w));
	assert_string_equal(ct__worker_error(&w)->message, "no such file");
	ct__worker_release(&w);
}

static void test_signal_ends_group(void **state)
{
	char mode[] = "pause";
	struct ct_worker w;

	(void)state;
	start(&w, mode);
	assert_false(ct__worker_reap(&w));
	assert_int_equal(getpgid(w.pid), w.pid);
	ct__worker_signal(&w, SIGKILL);
	wait_for_end(&w);
	assert_int_equal(ct__worker_status(&w), CT_PEER_LOST);
	assert_false(ct__worker_is_consequence(&w));
	ct__worker_signal(&w, SIGKILL); /* its pid may be another's by now: nothing is sent */
	ct__worker_release(&w);
}

/* Standard error of this process during fn. */
static char *captured(void (*fn)(void))
{
	int keep = dup(STDERR_FILENO), fd = open(in_tmpdir("stderr"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	char *text;
	size_t len;

	assert_true(keep >= 0 && fd >= 0);
	dup2(fd, STDERR_FILENO);
	fn();
	(void)fflush(stderr);
	dup2(keep, STDERR_FILENO);
	close(keep);
	close(fd);
	assert_int_equal(ct_file_read(in_tmpdir("stderr"), 4096, &text, &len), CT_OK);
	return text;
}

static void run_say(void)
{
	char mode[] = "say";
	struct ct_worker w;

	start(&w, mode);
	wait_for_end(&w);
	ct__worker_release(&w);
}

static void test_output_has_prefix(void **state)
{
	char *text = captured(run_say);

	(void)state;
	assert_string_equal(text, "[rank 3] one\n[rank 3] two\n");
	ct_free(text);
}

static void test_limits_are_no_bug(void **state)
{
	char mode[] = "say", *argv[] = {"test_workers", mode, NULL};
	struct rlimit limit, none;
	struct ct_worker w;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){0, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ct__worker_init(&w, 3, ct_rank_pages_at(&pages, 0));
	assert_int_equal(ct__worker_start(&w, argv, NULL, 0, false, pages.fd), CT_NOMEM);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_non_null(strstr(ct_error_message(), "rank 3"));
	assert_int_equal(ct__worker_status(&w), CT_OK); /* it never was */
	ct__worker_release(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_error_travels),
		cmocka_unit_test(test_signal_ends_group),
		cmocka_unit_test(test_output_has_prefix),
		cmocka_unit_test(test_limits_are_no_bug),
	};

	if (argc > 1)
		return play(argv[1]);
	if (ct_rank_pages_create(1, &pages) < 0)
		return 1;
	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
