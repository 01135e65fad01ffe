#include "tests/base/check.h"

#include "base/thread.h"

static enum ct_status deepest(void)
{
	return CT_FAIL(CT_DATA, "byte %d is odd", 7);
}

static enum ct_status middle(void)
{
	CT_TRY(deepest());
	return CT_OK;
}

static enum ct_status outer(void)
{
	enum ct_status st;

	CT_TRY_GOTO(middle(), st, out);
	return CT_OK;
out:
	ct_error_hint("check %s", "the file");
	return ct_error_wrap("loading %s", "x.gz") == st ? st : CT_BUG;
}

static void test_chain(void **state)
{
	(void)state;
	ct_error_clear();
	assert_string_equal(ct_error_message(), "");
	assert_string_equal(ct_error_hint_text(), "");
	assert_string_equal(ct_error_frames(), "");
	assert_int_equal(ct_error_status(), CT_OK);

	assert_int_equal(outer(), CT_DATA);
	assert_int_equal(ct_error_status(), CT_DATA);
	assert_string_equal(ct_error_message(), "loading x.gz: byte 7 is odd");
	assert_string_equal(ct_error_hint_text(), "check the file");
	assert_non_null(strstr(ct_error_frames(), "middle\n"));
	assert_non_null(strstr(ct_error_frames(), "outer\n"));
	assert_true(strstr(ct_error_frames(), "middle\n") < strstr(ct_error_frames(), "outer\n"));
	ct_error_hint("or %d", 2);
	assert_string_equal(ct_error_hint_text(), "check the file; or 2");

	CT_FAIL(CT_IO, "no %s", "file");
	assert_int_equal(ct_error_hint("make %s", "one"), CT_IO);
	assert_string_equal(ct_error_message(), "no file");
	assert_string_equal(ct_error_hint_text(), "make one");
	assert_int_equal(outer(), CT_DATA);

	/* A new chain replaces the old one, and its message may contain the old message. */
	assert_int_equal(CT_FAIL(CT_IO, "again: %s", ct_error_message()), CT_IO);
	assert_string_equal(ct_error_message(), "again: loading x.gz: byte 7 is odd");
	assert_string_equal(ct_error_hint_text(), "");
	assert_null(strstr(ct_error_frames(), "middle"));
}

static void test_tag(void **state)
{
	char longer[CT_ERROR_TAG_MAX + 1];

	(void)state;
	assert_int_equal(CT_FAIL_TAG(CT_DATA, NULL, "size", "%d bytes", 3), CT_DATA);
	assert_string_equal(ct_error_message(), "size: 3 bytes");
	assert_string_equal(ct_error_tag(), "size");
	assert_int_equal(ct_error_tag_at(), 0);

	CT_FAIL_TAG(CT_DATA, "a: size: b", "size", "again: %s", ct_error_message());
	ct_error_wrap("%s", "c");
	assert_string_equal(ct_error_message(), "c: a: size: b: size: again: size: 3 bytes");
	assert_string_equal(ct_error_tag(), "size");
	assert_string_equal(ct_error_message() + ct_error_tag_at(), "size: again: size: 3 bytes");

	CT_FAIL(CT_DATA, "other: no tag");
	assert_string_equal(ct_error_tag(), "");
	assert_int_equal(ct_error_tag_at(), 0);
	CT_FAIL_TAG(CT_DATA, "a", "size", "%s", "b");
	ct_error_clear();
	assert_string_equal(ct_error_tag(), "");
	/* A tag that is too long is only part of the message. */
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	CT_FAIL_TAG(CT_DATA, "a", longer, "b");
	assert_string_equal(ct_error_tag(), "");
	assert_string_equal(ct_error_message() + 3 + strlen(longer), ": b");
}

/* A message that is cut in front of its tag has none. */
static void test_tag_of_a_long_message(void **state)
{
	static char front[CT_ERROR_MESSAGE_MAX / 2 - 8];

	(void)state;
	memset(front, 'x', sizeof(front) - 1);
	CT_FAIL_TAG(CT_DATA, front, "size", "b");
	assert_string_equal(ct_error_message() + ct_error_tag_at(), "size: b");
	ct_error_wrap("%s", front);
	assert_string_equal(ct_error_tag(), "size");
	ct_error_wrap("%s", front);
	assert_string_equal(ct_error_tag(), "");
}

static void test_in_progress_is_no_failure(void **state)
{
	enum ct_status st = CT_OK;

	(void)state;
	CT_TRY_GOTO(CT_INPROGRESS, st, wrong);
	assert_int_equal(st, CT_INPROGRESS);
	return;
wrong:
	fail();
}

static void test_long_texts_are_cut(void **state)
{
	char big[CT_ERROR_MESSAGE_MAX + 4000];

	(void)state;
	/* Two-byte characters: wherever the cut is, no half character remains. */
	for (size_t i = 0; i + 1 < sizeof(big); i += 2)
		memcpy(big + i, "\xC3\xA9", 2);
	big[sizeof(big) - 2] = '\0';
	for (int shift = 0; shift < 2; shift++) {
		size_t n;

		CT_FAIL(CT_DATA, "%s", big);
		ct_error_wrap("%s", shift ? "x" : "xy");
		n = strlen(ct_error_message());
		assert_in_range(n, CT_ERROR_MESSAGE_MAX - 10, CT_ERROR_MESSAGE_MAX - 1);
		assert_string_equal(ct_error_message() + n - 3, "...");
		assert_true(ct_utf8_valid(ct_error_message(), n));
	}
	/* A long prefix leaves room for the reason. */
	CT_FAIL(CT_DATA, "the reason");
	ct_error_wrap("%s", big);
	assert_non_null(strstr(ct_error_message(), ": the reason"));
	ct_error_clear();
	for (int i = 0; i < 100; i++)
		ct_error_hint("%s", big + sizeof(big) - 100);
	assert_true(strlen(ct_error_hint_text()) < 512);
	for (int i = 0; i < 200; i++)
		ct_error_frame("some/file.c", i, "function");
	assert_non_null(strstr(ct_error_frames(), "some/file.c:0: function\n"));
	assert_int_equal(ct_error_frames()[strlen(ct_error_frames()) - 1], '\n');
	ct_error_clear();
}

/* The facts of an error are kept by a prefix, a hint and a copy, and end with the chain. */
static void test_facts(void **state)
{
	struct ct_error e;

	(void)state;
	CT_FAIL(CT_COMM, "x");
	assert_int_equal(ct_error_because(CT_REASON_REJECTED), CT_COMM);
	assert_int_equal(ct_error_caused_by(3, 4711), CT_COMM);
	ct_error_hint("y");
	assert_int_equal(ct_error_wrap("z"), CT_COMM);
	ct_error_save(&e);
	CT_FAIL(CT_DATA, "another error");
	assert_int_equal(ct_error_reason(), CT_REASON_NONE);
	assert_int_equal(ct_error_restore(&e), CT_COMM);
	assert_int_equal(ct_error_reason(), CT_REASON_REJECTED);
	ct_error_save(&e);
	assert_int_equal(e.cause_rank, 3);
	assert_int_equal(e.cause_pid, 4711);
	ct_error_clear();
	ct_error_save(&e);
	assert_int_equal(e.reason, CT_REASON_NONE);
	assert_int_equal(e.cause_pid, 0);
}

static void test_wrap_without_chain(void **state)
{
	(void)state;
	ct_error_clear();
	assert_int_equal(ct_error_wrap("doing it"), CT_BUG);
	assert_non_null(strstr(ct_error_message(), "doing it: "));
	ct_error_clear();
}

static void *worker(void *arg)
{
	assert_int_equal(ct_error_status(), CT_OK);
	assert_int_equal(outer(), CT_DATA);
	ct_error_save(arg);
	return NULL;
}

static void test_carry_over_threads(void **state)
{
	struct ct_error saved;
	struct ct_thread t = {0};

	(void)state;
	memset(&saved, 0xFF, sizeof(saved));
	CT_FAIL(CT_NUMERIC, "mine");
	assert_ok(ct_thread_start(&t, "worker", worker, &saved));
	ct_thread_join(&t);
	assert_string_equal(ct_error_message(), "mine");
	assert_int_equal(ct_error_status(), CT_NUMERIC);
	assert_int_equal(ct_error_restore(&saved), CT_DATA);
	assert_string_equal(ct_error_message(), "loading x.gz: byte 7 is odd");
	assert_string_equal(ct_error_hint_text(), "check the file");
	/* The bytes after the strings contain nothing of this process's memory. */
	for (size_t i = strlen(saved.message); i < sizeof(saved.message); i++)
		assert_int_equal(saved.message[i], 0);
	/* A copy from another process may lack its NUL. */
	/* A message that is too long for the copy is truncated. */
	ct_error_restore(&saved);
	for (int i = 0; i < 100; i++)
		ct_error_wrap("a long way to go %d", i);
	assert_true(strlen(ct_error_message()) > sizeof(saved.message));
	ct_error_save(&saved);
	assert_int_equal(strlen(saved.message), sizeof(saved.message) - 1);
	memset(&saved, 'x', sizeof(saved));
	saved.status = CT_COMM;
	assert_int_equal(ct_error_restore(&saved), CT_COMM);
	assert_int_equal(strlen(ct_error_message()), sizeof(saved.message) - 1);
	ct_error_clear();
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(ct_status_name(CT_PEER_LOST), "PEER_LOST");
	assert_string_equal(ct_status_text(CT_NOMEM), "out of memory");
	assert_string_equal(ct_status_name((enum ct_status) - 99), "BUG");
	assert_string_equal(ct_status_text((enum ct_status) - 99), ct_status_text(CT_BUG));
	/* The program's exit codes are a contract with scripts. */
	assert_int_equal(ct_status_exit_code(CT_OK), 0);
	assert_int_equal(ct_status_exit_code(CT_USAGE), 2);
	assert_int_equal(ct_status_exit_code(CT_CONFIG), 2);
	assert_int_equal(ct_status_exit_code(CT_DATA), 3);
	assert_int_equal(ct_status_exit_code(CT_DEVICE), 4);
	assert_int_equal(ct_status_exit_code(CT_PEER_LOST), 5);
	assert_int_equal(ct_status_exit_code(CT_TIMEOUT), 5);
	assert_int_equal(ct_status_exit_code(CT_NUMERIC), 6);
	assert_int_equal(ct_status_exit_code(CT_IO), 7);
	assert_int_equal(ct_status_exit_code(CT_INTERRUPTED), 75);
	assert_int_equal(ct_status_exit_code((enum ct_status) - 99), 70);
}

static void test_failures(void **state)
{
	(void)state;
#define CASE(name, value, code, text) assert_int_equal(ct_status_is_failure(value), (value) < 0);
	CT_STATUS_LIST(CASE)
#undef CASE
	assert_false(ct_status_is_failure(-99));
	assert_false(ct_status_is_failure(99));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_tag),
		cmocka_unit_test(test_tag_of_a_long_message),
		cmocka_unit_test(test_in_progress_is_no_failure),
		cmocka_unit_test(test_long_texts_are_cut),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_wrap_without_chain),
		cmocka_unit_test(test_carry_over_threads),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_failures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
