/* The store's operations, waits and limits, with the server and its clients in one process. */
#include "dist/store/store.h"

#include <pthread.h>

#include "base/thread.h"
#include "tests/dist/store_rig.h"

#define MAX_VALUE ((size_t)16 << 20)

static void test_row_30_values(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *a = join(srv, 0), *b = join(srv, 1);
	int64_t n;

	(void)state;
	assert_ok(ct_store_set(a, "k", "v", 1));
	must_hold(b, "k", "v");
	assert_ok(ct_store_set(b, "k", "other", 5));
	must_hold(a, "k", "other");
	assert_ok(ct_store_set(a, "k", "", 0));
	must_hold(b, "k", "");

	assert_ok(ct_store_add(a, "n", 5, &n));
	assert_int_equal(n, 5);
	assert_ok(ct_store_add(b, "n", -7, &n));
	assert_int_equal(n, -2);
	must_hold(a, "n", "-2");
	assert_ok(ct_store_set(a, "n", "x", 1));
	assert_fails(ct_store_add(a, "n", 1, &n), CT_DATA, "\"n\"");
	assert_ok(ct_store_set(a, "n", "9223372036854775807", 19));
	assert_fails(ct_store_add(a, "n", 1, &n), CT_DATA, "exceed 64 bits");

	assert_ok(ct_store_set(a, "c", "1", 1));
	assert_ok(ct_store_delete(a, "c"));
	assert_ok(ct_store_delete(a, "c"));
	assert_fails(ct_store_get(b, "c", ct_deadline_in(10 * CT_MS), &(char *){NULL}, &(size_t){0}), CT_TIMEOUT,
		     "\"c\"");
	ct_store_close(a);
	ct_store_close(b);
	ct_store_server_stop(srv, SOON);
}

static void test_many_keys(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *s = join(srv, 0);
	char key[32];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "key/%d", i);
		assert_ok(ct_store_set(s, key, key, strlen(key)));
	}
	for (int i = 0; i < 1000; i += 3) {
		snprintf(key, sizeof(key), "key/%d", i);
		must_hold(s, key, key);
		assert_ok(ct_store_delete(s, key));
	}
	must_hold(s, "key/998", "key/998");
	assert_fails(ct_store_get(s, "key/999", ct_deadline_in(10 * CT_MS), &(char *){NULL}, &(size_t){0}), CT_TIMEOUT,
		     "key/999");
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static void test_limits(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *s = join(srv, 0);
	char *big = ct_calloc(MAX_VALUE + 1, 1), *got, key[258];
	size_t len;

	(void)state;
	memset(key, 'k', sizeof(key));
	key[257] = '\0';
	assert_fails(ct_store_set(s, key, "", 0), CT_USAGE, "257");
	assert_fails(ct_store_set(s, "", "", 0), CT_USAGE, "0 bytes");
	key[256] = '\0';
	assert_ok(ct_store_set(s, key, "long", 4));
	must_hold(s, key, "long");

	assert_fails(ct_store_set(s, "big", big, MAX_VALUE + 1), CT_UNSUPPORTED, "16777217");
	for (size_t i = 0; i < MAX_VALUE; i++)
		big[i] = (char)(i * 2654435761u >> 13);
	assert_ok(ct_store_set(s, "big", big, MAX_VALUE));
	assert_ok(ct_store_get(s, "big", SOON, &got, &len));
	assert_int_equal(len, MAX_VALUE);
	assert_memory_equal(got, big, MAX_VALUE);
	ct_free(got);
	assert_ok(ct_store_set(s, "big", "small", 5));

	/* 64 MiB in all; afterwards the connection and the room that a delete frees are good. */
	assert_ok(ct_store_set(s, "1", big, MAX_VALUE));
	assert_ok(ct_store_set(s, "2", big, MAX_VALUE));
	assert_ok(ct_store_set(s, "3", big, MAX_VALUE / 2));
	assert_fails(ct_store_set(s, "4", big, MAX_VALUE), CT_NOMEM, "full");
	/* Now, not even the request has room: the server skips it. */
	assert_ok(ct_store_set(s, "5", big, MAX_VALUE / 2));
	assert_fails(ct_store_set(s, "4", big, MAX_VALUE), CT_NOMEM, "full");
	assert_ok(ct_store_delete(s, "5"));
	assert_ok(ct_store_delete(s, "1"));
	assert_ok(ct_store_set(s, "4", big, MAX_VALUE));
	ct_free(big);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

struct worker {
	ct_store *s;
	struct ct_thread t;
	int i;
	enum ct_status st;
	struct ct_failure f;
	struct ct_error e;
};

static void *count_up(void *arg)
{
	struct worker *w = arg;
	char key[32];
	int64_t n;

	for (int i = 0; i < 200 && w->st == CT_OK; i++)
		w->st = ct_store_add(w->s, "n", 1, &n);
	snprintf(key, sizeof(key), "done/%d", w->i);
	if (w->st == CT_OK)
		w->st = ct_store_set(w->s, key, "1", 1);
	return NULL;
}

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

/* Threads share one connection: waits, a watch and many small calls at once. */
static void test_threads(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *s = join(srv, 0);
	struct worker w[8] = {0}, waiter = {.s = s}, watcher = {.s = s};
	int64_t n;

	(void)state;
	assert_ok(ct_thread_start(&waiter.t, "wait", wait_for_key, &waiter));
	assert_ok(ct_thread_start(&watcher.t, "watch", watch, &watcher));
	for (int i = 0; i < 8; i++) {
		w[i].s = s;
		w[i].i = i;
		assert_ok(ct_thread_start(&w[i].t, "count", count_up, &w[i]));
	}
	for (int i = 0; i < 8; i++) {
		char key[32];

		snprintf(key, sizeof(key), "done/%d", i);
		must_hold(s, key, "1");
		ct_thread_join(&w[i].t);
		assert_ok(w[i].st);
	}
	assert_ok(ct_store_add(s, "n", 0, &n));
	assert_int_equal(n, 1600);
	assert_ok(ct_store_set(s, "go", "", 0));
	ct_thread_join(&waiter.t);
	assert_ok(waiter.st);
	ct_store_cancel_watch(s);
	ct_thread_join(&watcher.t);
	assert_int_equal(watcher.st, CT_CANCELLED);
	/* Cancelled for good: a watch that comes later ends as well. */
	assert_int_equal(ct_store_watch(s, SOON, &watcher.f), CT_CANCELLED);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static void test_bye(void **state)
{
	ct_store_server *srv = serve_for(-1);
	ct_store *a = join(srv, 0), *b = join(srv, 1), *observer = join(srv, -1);
	struct ct_member_state *m;
	struct ct_failure f;
	int n;

	(void)state;
	assert_ok(ct_store_beat(b, &(struct ct_position){CT_RANK_SAVING, 6, 41}));
	assert_ok(ct_store_beat(b, &(struct ct_position){CT_RANK_TRAINING, 7, 42}));
	/* The answer to a later request of the same connection: the beats are in. */
	assert_ok(ct_store_set(b, "x", "1", 1));
	assert_ok(ct_store_members(a, &m, &n));
	assert_int_equal(n, 2);
	assert_int_equal(m[0].rank, 0);
	assert_true(m[0].connected);
	assert_true(m[0].beat_age_s < 0);
	assert_int_equal(m[0].at.collective, -1);
	assert_true(m[1].beat_age_s >= 0);
	assert_int_equal(m[1].at.collective, 42);
	assert_int_equal(m[1].at.phase, CT_RANK_TRAINING);
	assert_int_equal(m[1].at.step, 7);
	assert_string_equal(m[1].host, "h1");
	assert_int_equal(m[1].pid, 1001);
	ct_free(m);

	ct_store_close(b);
	ct_store_drop(observer);
	assert_int_equal(ct_store_watch(a, ct_deadline_in(50 * CT_MS), &f), CT_TIMEOUT);
	assert_ok(ct_store_members(a, &m, &n));
	assert_true(m[1].left);
	assert_false(m[1].connected);
	ct_free(m);
	/* After BYE the rank may join again. */
	b = join(srv, 1);
	ct_store_close(b);
	ct_store_close(a);
	ct_store_server_stop(srv, SOON);
}

static void test_auxiliary(void **state)
{
	ct_store_server *srv = serve_for(0);
	struct ct_store_opts o = opts_of("run-a", "secret", 1);
	ct_store *a = join(srv, 0), *b = join(srv, 1), *aux, *fails = NULL;
	struct ct_member_state *m;
	struct ct_failure f;
	int n, rank, pid;
	char host[64];

	(void)state;
	assert_ok(ct_store_connect_aux(b, SOON, &aux));
	assert_ok(ct_store_beat(aux, &(struct ct_position){CT_RANK_TRAINING, 1, 5}));
	assert_ok(ct_store_set(aux, "k", "v", 1));
	must_hold(a, "k", "v");
	assert_ok(ct_store_members(a, &m, &n));
	assert_int_equal(n, 2);
	assert_int_equal(m[1].at.collective, 5);
	ct_free(m);
	ct_store_owner(aux, &rank, &pid, host);
	assert_int_equal(rank, 0);
	assert_int_equal(pid, 1000);
	assert_string_equal(host, "h0");
	ct_store_drop(aux);
	assert_int_equal(ct_store_watch(a, ct_deadline_in(50 * CT_MS), &f), CT_TIMEOUT);
	/* Only one is the first. */
	assert_fails(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &o, SOON, &fails), CT_MISMATCH,
		     "rank 1 is taken");
	ct_store_close(a);
	assert_ok(ct_store_connect_aux(b, SOON, &aux));
	ct_store_close(aux);
	ct_store_close(b);
	ct_store_server_stop(srv, SOON);
}

static void test_addresses(void **state)
{
	ct_store_server *srv = serve_for(-1);
	struct ct_store_opts o = opts_of("run-a", "secret", 0);
	ct_store *s = join(srv, 1), *v6 = NULL;
	char addr[64];

	(void)state;
	assert_ok(ct_store_local_addr(s, addr, sizeof(addr)));
	assert_string_equal(addr, "127.0.0.1");
	if (ct_store_connect("::1", ct_store_server_port(srv), &o, ct_deadline_in(CT_SEC), &v6) == CT_OK) {
		assert_ok(ct_store_local_addr(v6, addr, sizeof(addr)));
		assert_string_equal(addr, "::1");
	} else {
		print_message("no IPv6 here: %s\n", ct_error_message());
	}
	ct_store_close(v6);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static void test_token(void **state)
{
	char a[CT_TOKEN_HEX], b[CT_TOKEN_HEX];

	(void)state;
	assert_ok(ct_token_make(a));
	assert_ok(ct_token_make(b));
	assert_int_equal(strlen(a), 64);
	assert_int_equal(strspn(a, "0123456789abcdef"), 64);
	assert_string_not_equal(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_row_30_values), cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_limits),        cmocka_unit_test(test_threads),
		cmocka_unit_test(test_bye),           cmocka_unit_test(test_auxiliary),
		cmocka_unit_test(test_addresses),     cmocka_unit_test(test_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
