/* The report after a failure: several launchers that add to it, and what is read from files that anyone may have
 * changed. */
#include "tests/trainer/tmpdir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/job/postmortem/entry.h"
#include "trainer/job/postmortem/postmortem.h"

static double clock_ahead; /* of this host, in seconds */

/* The linker sends the library's calls here (--wrap). */
double __real_ct_wall_seconds(void);
double __wrap_ct_wall_seconds(void);

double __wrap_ct_wall_seconds(void)
{
	return __real_ct_wall_seconds() + clock_ahead;
}

/* Adds the entry of a rank, as the launcher of its node does. */
static void add(int rank, double started)
{
	const struct ct_postmortem_job job = {.world = 2, .started = started};
	const struct ct_rank_end end = {.rank = rank, .pid = 100 + rank, .node = rank, .host = "h"};
	ct_json *entries = ct_json_array();

	assert_ok(ct_dir_make(in_tmpdir("log")));
	ct_json_push(entries, ct_postmortem_entry(tmpdir, &end, NULL));
	assert_ok(ct_postmortem_add(tmpdir, &job, entries));
}

/* Fails unless the report consists of the entries of these n ranks. */
static void assert_ranks(const int *ranks, size_t n)
{
	const ct_json *list;
	ct_json *report;
	int64_t rank;

	assert_ok(ct_postmortem_read(tmpdir, &report));
	list = ct_json_get(report, "ranks");
	assert_int_equal(ct_json_len(list), n);
	for (size_t i = 0; i < n; i++) {
		assert_ok(ct_json_get_i64(ct_json_at(list, i), "rank", &rank));
		assert_int_equal(rank, ranks[i]);
	}
	ct_json_destroy(report);
}
#define ASSERT_RANKS(...) assert_ranks((const int[]){__VA_ARGS__}, CT_ARRAY_LEN(((const int[]){__VA_ARGS__})))

/* A process that is stopped may have the lock forever. */
static void test_lock_of_another(void **state)
{
	const double started = ct_wall_seconds() - 10;
	int fd;

	(void)state;
	assert_ok(ct_dir_make(in_tmpdir("log")));
	fd = open(in_tmpdir("log"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	add(0, started);
	close(fd);
	add(1, started);
	ASSERT_RANKS(0, 1);
}

/* The clocks of the hosts differ by more than the run takes. */
static void test_clocks(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		add(0, ct_wall_seconds() - 10);
		clock_ahead = i == 0 ? 1000 : -1000;
		add(1, ct_wall_seconds() - 10);
		clock_ahead = 0;
		ASSERT_RANKS(0, 1);
		assert_ok(ct_dir_remove(in_tmpdir("log")));
	}
}

/* A report of an earlier attempt, in the same place. */
static void test_earlier_attempt(void **state)
{
	const struct timespec before[2] = {{.tv_sec = time(NULL) - 20}, {.tv_sec = time(NULL) - 20}};

	(void)state;
	for (int i = -1; i <= 1; i++) {
		clock_ahead = 1000 * i;
		add(0, ct_wall_seconds());
		assert_int_equal(utimensat(AT_FDCWD, in_tmpdir("log/postmortem.json"), before, 0), 0);
		add(1, ct_wall_seconds() - 10);
		ASSERT_RANKS(1);
	}
	clock_ahead = 0;
}

static void put_stacks(const char *name)
{
	static const char text[] = "reason signal 11\nthread 7 ctrain\nat 1234\n";

	assert_ok(ct_dir_make(in_tmpdir("log")));
	assert_ok(ct_file_replace(in_tmpdir(name), text, strlen(text)));
}

/* Ranks that have only left backtraces. */
static void test_stacks(void **state)
{
	static const char *const others[] = {"log/stacks-00003.old", "log/stacks-3.txt", "log/stacks--0004.txt",
					     "log/stacks-00004.txt~", "log/stacks-4294967300.txt"};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(others); i++)
		put_stacks(others[i]);
	put_stacks("log/stacks-00001.txt");
	put_stacks("log/stacks-00002.txt");
	put_stacks("log/stacks-123456.txt");
	ASSERT_RANKS(1, 2, 123456);
	assert_ok(ct_postmortem_remove_stacks(tmpdir, 2));
	ASSERT_RANKS(1);
	for (size_t i = 0; i < CT_ARRAY_LEN(others); i++)
		assert_true(ct_file_exists(in_tmpdir(others[i])));
}

/* Strings of a report do not reach the terminal as they are. */
static void test_control_characters(void **state)
{
	static const char json[] =
		"{\"failure\":{\"message\":\"\\u001b[2J\"},\"ranks\":[{\"rank\":0,\"phase\":\"\\u009b1m\","
		"\"stacks\":{\"threads\":[{\"name\":\"\\u0007\",\"frames\":[\"\\r\\u00e9\"]}]}}]}";
	struct ct_str text = {0};
	ct_json *report;

	(void)state;
	assert_ok(ct_json_parse(json, strlen(json), "test", &report));
	ct_postmortem_text(report, &text);
	assert_non_null(strstr(text.s, "First failure: \\x1b[2J\n"));
	assert_non_null(strstr(text.s, "\\x0d\xc3\xa9\n"));
	for (const char *c = text.s; *c; c++)
		assert_true(*c == '\n' || (unsigned char)*c >= ' ');
	assert_null(strstr(text.s, "\xc2\x9b"));
	ct_str_release(&text);
	ct_json_destroy(report);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lock_of_another, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test_setup_teardown(test_clocks, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test_setup_teardown(test_earlier_attempt, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test_setup_teardown(test_stacks, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test(test_control_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
