/* The report after a failure: several launchers that add to it, and what is read from files that anyone may have changed. */
#include "tests/trainer/tmpdir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/postmortem/entry.h"
#include "trainer/postmortem/report.h"

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
	const double started = ct_wall_seconds();
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lock_of_another, tmpdir_setup, tmpdir_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
