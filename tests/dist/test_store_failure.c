/* The store's failure record: who receives it, and which of several reports counts as the cause. */
#include "dist/store/store.h"

#include <pthread.h>

#include "base/thread.h"
#include "tests/dist/store_rig.h"

struct worker {
	ct_store *s;
	struct ct_thread t;
	int i;
	enum ct_status st;
	struct ct_failure f;
	struct ct_error e;
};

static void *wait_for_key(void *arg)
{
	struct worker *w = arg;
	char *value;
	size_t len;

	w->st = ct_store_get(w->s, "go", SOON, &value, &len);
	if (w->st == CT_OK)
		ct_free(value);
	ct_error_save(&w->e);
	return NULL;
}

static void *watch(void *arg)
{
	struct worker *w = arg;

	w->st = ct_store_watch(w->s, SOON, &w->f);
	return NULL;
}

static void expect_position(const struct ct_failure *f, struct ct_position at)
{
	assert_int_equal(f->at.phase, at.phase);
	assert_int_equal(f->at.step, at.step);
	assert_int_equal(f->at.collective, at.collective);
}

/* A failure ends waits and watches of all, does not end the store, and is reported to clients that connect later. */
static void test_failure(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *a = join(srv, 0), *b = join(srv, 1), *late;
	struct worker waiter = {.s = a}, watcher = {.s = a};
	struct ct_failure f = {.rank = 1,
			       .pid = 7,
			       .host = "h",
			       .status = CT_NUMERIC,
			       .at = {CT_RANK_TRAINING, 3, 12},
			       .message = "rank 1 (pid 7 on host h) failed: loss is NaN",
			       .hint = "lower optim.lr"};
	struct ct_failure second = f, got;

	(void)state;
	assert_ok(ct_thread_start(&waiter.t, "wait", wait_for_key, &waiter));
	assert_ok(ct_thread_start(&watcher.t, "watch", watch, &watcher));
	assert_ok(ct_store_report(b, &f));
	ct_thread_join(&waiter.t);
	ct_thread_join(&watcher.t);
	assert_int_equal(waiter.st, CT_PEER_LOST);
	assert_string_equal(waiter.e.message, f.message);
	assert_string_equal(waiter.e.hint, f.hint);
	assert_ok(watcher.st);
	assert_int_equal(watcher.f.rank, f.rank);
	assert_int_equal(watcher.f.pid, f.pid);
	assert_string_equal(watcher.f.host, f.host);
	assert_int_equal(watcher.f.status, f.status);
	expect_position(&watcher.f, f.at);
	assert_string_equal(watcher.f.message, f.message);
	assert_string_equal(watcher.f.hint, f.hint);

	second.rank = 0;
	assert_ok(ct_store_report(a, &second));
	assert_ok(ct_store_set(a, "after", "1", 1));
	must_hold(b, "after", "1");
	late = join(srv, 2);
	assert_ok(ct_store_watch(late, SOON, &got));
	assert_int_equal(got.rank, 1);
	ct_store_close(late);
	ct_store_drop(a);
	ct_store_drop(b);
	ct_store_server_stop(srv, SOON);
}

static void report_lost_peer(ct_store *s)
{
	const struct ct_failure f = {.rank = 0, .status = CT_PEER_LOST, .message = "rank 0 failed: connection reset"};

	assert_ok(ct_store_report(s, &f));
}

/* "I lost my peer" is not why the run failed if the peer itself, or its end, or the launcher says more. */
static void test_cause_before_consequence(void **state)
{
	struct ct_failure cause = {.rank = 1, .status = CT_DATA, .message = "rank 1 failed: bad file"}, got;

	(void)state;
	for (int how = 0; how < 4; how++) {
		ct_store_server *srv = serve_for(0);
		ct_store *a = join(srv, 0), *b = join(srv, 1);

		report_lost_peer(a);
		if (how == 0)
			assert_ok(ct_store_report(b, &cause));
		else if (how == 1)
			ct_store_drop(b);
		else if (how == 2)
			ct_store_server_fail(srv, &cause);
		assert_ok(ct_store_watch(a, SOON, &got));
		assert_int_equal(got.rank, how == 3 ? 0 : 1);
		if (how == 1)
			assert_non_null(strstr(got.message, "is gone"));
		ct_store_drop(a);
		if (how != 1)
			ct_store_drop(b);
		ct_store_server_stop(srv, SOON);
	}
}

/* A launcher knows how its child died; the end of the child's connection, which comes first, waits for that. */
static void report_killed(struct ct_position known, struct ct_position result, const char *shown)
{
	struct ct_failure killed = {.rank = 1, .status = CT_PEER_LOST, .message = "rank 1 was killed by signal 9"}, got;
	ct_store_server *srv = serve_for(-1);
	ct_store *a = join(srv, 0), *b = join(srv, 1);

	char message[100];
	int64_t sum;

	killed.at = known;
	assert_false(ct_store_server_failure(srv, &got));
	assert_ok(ct_store_beat(b, &(struct ct_position){CT_RANK_TRAINING, 3, 7}));
	assert_ok(ct_store_add(b, "after the beat", 1, &sum)); /* answered in order: the server has the beat */
	ct_store_drop(b);
	ct_store_server_fail(srv, &killed);
	assert_ok(ct_store_watch(a, SOON, &got));
	snprintf(message, sizeof(message), "rank 1 was killed by signal 9; last seen at %s", shown);
	assert_string_equal(got.message, message);
	assert_true(ct_store_server_failure(srv, &got));
	expect_position(&got, result);
	assert_int_equal(got.rank, 1);
	ct_store_drop(a);
	ct_store_server_stop(srv, SOON);
}

static void test_launcher_says_how(void **state)
{
	(void)state;
	report_killed(CT_POSITION_UNKNOWN, (struct ct_position){CT_RANK_TRAINING, 3, 7},
		      "collective 7, training, step 3");
	/* The heartbeat may be older than what the launcher has read in the page of the rank. */
	report_killed((struct ct_position){CT_RANK_SAVING, 5, -1}, (struct ct_position){CT_RANK_SAVING, 5, 7},
		      "collective 7, saving, step 5");
}

/* Returns the status of a failure that crosses the store with this one. */
static int status_received(int sent)
{
	const struct ct_failure f = {.rank = 1, .status = sent, .at = CT_POSITION_UNKNOWN};
	struct ct_wire_frame frame;
	struct ct_str b = {0};
	struct ct_failure got;

	ct_wire_begin(&b, CT_WIRE_REPORT, CT_OK, 0);
	ct_wire_put_failure(&b, &f);
	ct_wire_end(&b, 0);
	assert_ok(ct_str_status(&b));
	ct_wire_decode_header((const uint8_t *)b.s, &frame);
	frame.body = (const uint8_t *)b.s + CT_WIRE_HEADER_LEN;
	assert_true(ct_wire_get_failure(&frame, &got));
	assert_int_equal(got.rank, 1);
	ct_str_release(&b);
	return got.status;
}

/* Each status of a failure is known to all ranks as it is. Others do not say that something has failed. */
static void test_statuses(void **state)
{
	(void)state;
#define CASE(name, value, code, text) assert_int_equal(status_received(value), (value) < 0 ? (value) : CT_PEER_LOST);
	CT_STATUS_LIST(CASE)
#undef CASE
	assert_int_equal(status_received(-1000), CT_PEER_LOST);
	assert_int_equal(status_received(1000), CT_PEER_LOST);
}

/* The end of the server is the failure of its owner, for calls, waits and watches. */
static void test_server_gone(void **state)
{
	ct_store_server *srv = serve_for(0);
	ct_store *s = join(srv, 1);
	struct worker waiter = {.s = s}, watcher = {.s = s};
	enum ct_status st;

	(void)state;
	assert_ok(ct_thread_start(&waiter.t, "wait", wait_for_key, &waiter));
	assert_ok(ct_thread_start(&watcher.t, "watch", watch, &watcher));
	ct_store_server_stop(srv, 0);
	ct_thread_join(&waiter.t);
	ct_thread_join(&watcher.t);
	assert_int_equal(waiter.st, CT_PEER_LOST);
	assert_ok(watcher.st);
	assert_int_equal(watcher.f.rank, 0);
	assert_int_equal(watcher.f.pid, 1000);
	assert_non_null(strstr(watcher.f.message, "rank 0 (pid "));
	assert_non_null(strstr(watcher.f.message, "on host h0) is gone"));
	assert_fails(ct_store_set(s, "k", "v", 1), CT_PEER_LOST, "rank 0");
	/* The first beat may still go into the socket's buffer. */
	do
		st = ct_store_beat(s, &(struct ct_position){CT_RANK_TRAINING, 0, 1});
	while (st == CT_OK);
	assert_int_equal(st, CT_PEER_LOST);
	ct_store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failure),           cmocka_unit_test(test_cause_before_consequence),
		cmocka_unit_test(test_launcher_says_how), cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_server_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
