/* RUN/leader, and who may replace it. */
#include "tests/trainer/tmpdir.h"
#include "trainer/launch/leader.h"

static const char *new_run(const char *name)
{
	const char *run = in_tmpdir(name);

	assert_ok(ct_run_dir_prepare(run, "auto"));
	return run;
}

static struct ct_leader read_leader(const char *run)
{
	struct ct_leader l;

	assert_ok(ct_leader_read(run, &l, NULL));
	return l;
}

/* Lets a launcher become the leader after attempt `number`, and returns true if it did. */
static bool become(const char *run, int number, struct ct_leader *me)
{
	ct_run_lock *lock;

	assert_ok(ct_leader_become(run, number, me, "{\"attempt\":1}", &lock));
	const bool leads = lock != NULL;
	ct_run_dir_unlock(lock);
	return leads;
}

static void test_contents(void **state)
{
	const char *run = new_run("contents");
	struct ct_leader now,
		me = {.pid = 7, .port = 29400, .used = 2, .saves_before = 5, .host = "a b\"", .addr = "fe80::1"};
	struct ct_str line = {0};

	(void)state;
	assert_int_equal(read_leader(run).number, -1);
	assert_true(become(run, -1, &me));
	assert_ok(ct_leader_read(run, &now, &line));
	assert_int_equal(now.number, 0);
	assert_int_equal(now.pid, 7);
	assert_int_equal(now.port, 29400);
	assert_int_equal(now.used, 2);
	assert_int_equal(now.saves_before, 5);
	assert_string_equal(now.host, "a b\"");
	assert_string_equal(now.addr, "fe80::1");
	assert_string_equal(ct_str_text(&line), "{\"attempt\":1}");
	ct_str_release(&line);
}

/* Two launchers have seen that the same leader is lost. */
static void test_only_one(void **state)
{
	const char *run = new_run("one");
	struct ct_leader first = {.host = "a"}, second = {.host = "b"}, third = {.host = "c"};

	(void)state;
	assert_true(become(run, -1, &first));
	assert_true(become(run, 0, &second));
	assert_false(become(run, 0, &third));
	assert_false(become(run, -1, &third));
	assert_string_equal(read_leader(run).host, "b");
	assert_int_equal(read_leader(run).number, 1);
}

/* Rank 0 or the leader is alive. */
static void test_locked(void **state)
{
	const char *run = new_run("locked");
	struct ct_leader first = {.host = "a"}, second = {.host = "b"};
	ct_run_lock *held, *lock;

	(void)state;
	assert_ok(ct_run_dir_lock(run, &held));
	/* At the start of a job, another run is using the directory. */
	assert_fails(ct_leader_become(run, -1, &first, "", &lock), CT_IO, "in use by another ctrain");
	assert_null(lock);
	ct_run_dir_unlock(held);
	assert_true(become(run, -1, &first));

	assert_ok(ct_leader_lock(run, 0, &held));
	assert_non_null(held);
	assert_false(become(run, 0, &second));
	ct_run_dir_unlock(held);
	assert_true(become(run, 0, &second));
	assert_ok(ct_leader_lock(run, 0, &lock)); /* the first one does not lead any more */
	assert_null(lock);
}

static void test_resign(void **state)
{
	const char *run = new_run("resign");
	struct ct_leader me = {.host = "a"};

	(void)state;
	assert_true(become(run, -1, &me));
	ct_leader_resign(run, me.number + 1);
	assert_int_equal(read_leader(run).number, me.number);
	ct_leader_resign(run, me.number);
	assert_int_equal(read_leader(run).number, -1);
}

static void test_bad_file(void **state)
{
#define NUMBERS(attempt, port)                              \
	"{\"attempt\":" attempt ",\"pid\":7,\"port\":" port \
	",\"restarts\":0,\"saves_before\":0,\"host\":\"a\",\"addr\":\"b\",\"line\":\"\"}"
	static const char *const texts[] = {"",
					    "{}",
					    "[1]",
					    "{\"attempt\":\"x\"}",
					    "{\"attempt\":1",
					    NUMBERS("-1", "29400"),
					    NUMBERS("4294967297", "29400"),
					    NUMBERS("1", "65536")};
	const char *run = new_run("bad"), *path = in_tmpdir("bad/leader");
	struct ct_leader l;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(texts); i++) {
		assert_ok(ct_file_replace(path, texts[i], strlen(texts[i])));
		assert_fails(ct_leader_read(run, &l, NULL), CT_DATA, "bad/leader");
		assert_non_null(strstr(ct_error_hint_text(), "delete this file"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents), cmocka_unit_test(test_only_one), cmocka_unit_test(test_locked),
		cmocka_unit_test(test_resign),   cmocka_unit_test(test_bad_file),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
