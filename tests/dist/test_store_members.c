/* Who may join the store and what a member may report. */
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/dist/store_rig.h"

static void test_refusals(void **state)
{
	ct_store_server *srv = serve();
	int port = ct_store_server_port(srv);
	ct_store *s = join(srv, 1), *none = NULL;
	struct ct_store_opts other_run = opts_of("run-b", "secret", 2), wrong = opts_of("run-a", "secreT", 2),
			     no_token = opts_of("run-a", "", 2), twice = opts_of("run-a", "secret", 1);

	(void)state;
	assert_fails(ct_store_connect("127.0.0.1", port, &other_run, SOON, &none), CT_MISMATCH,
		     "run \"run-a\" of rank 0");
	assert_non_null(strstr(ct_error_message(), "not run \"run-b\""));
	assert_fails(ct_store_connect("127.0.0.1", port, &wrong, SOON, &none), CT_MISMATCH, "wrong token");
	assert_null(strstr(ct_error_message(), "run-a"));
	assert_fails(ct_store_connect("127.0.0.1", port, &no_token, SOON, &none), CT_MISMATCH, "wrong token");
	assert_null(strstr(ct_error_message(), "run-a"));
	/* Nothing about the run for those who have neither its id nor its token. */
	snprintf(no_token.run_id, sizeof(no_token.run_id), "guess");
	assert_fails(ct_store_connect("127.0.0.1", port, &no_token, SOON, &none), CT_MISMATCH, "wrong token");
	assert_null(strstr(ct_error_message(), "run-a"));
	twice.pid = 4242;
	snprintf(twice.host, sizeof(twice.host), "elsewhere");
	assert_fails(ct_store_connect("127.0.0.1", port, &twice, SOON, &none), CT_MISMATCH, "pid 1001 on host h1");
	assert_non_null(strstr(ct_error_message(), "pid 4242 on host elsewhere"));
	assert_string_not_equal(ct_error_hint_text(), "");
	still_serves(s);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* After restarts of the job, the run id has their number, which launchers read from the store. */
static void test_other_attempt(void **state)
{
	struct ct_store_opts o = opts_of("run-a#2", "secret", -1);
	ct_store_server *srv = NULL;
	ct_store *s = NULL;

	(void)state;
	assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
	int port = ct_store_server_port(srv);
	static const struct {
		const char *run_id;
		int member;
		bool enters;
	} cases[] = {{"run-a#2", 0, true},
		     {"run-a#2", CT_STORE_LAUNCHER, true},
		     {"run-a", CT_STORE_LAUNCHER, true},
		     {"run-a", 1, false},
		     {"run-a", CT_STORE_OBSERVER, false},
		     {"run-a#1", 1, false},
		     {"run-a#1", CT_STORE_LAUNCHER, false},
		     {"run-", CT_STORE_LAUNCHER, false}};
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		o = opts_of(cases[i].run_id, "secret", cases[i].member);
		enum ct_status st = ct_store_connect("127.0.0.1", port, &o, SOON, &s);
		if (st != (cases[i].enters ? CT_OK : CT_MISMATCH))
			fail_msg("case %zu: %s", i, ct_status_name(st));
		if (st == CT_OK)
			ct_store_close(s);
	}
	ct_store_server_stop(srv, SOON);
}

static bool has_failed(ct_store *s)
{
	struct ct_failure f;

	return ct_store_watch(s, ct_deadline_in(0), &f) == CT_OK;
}

/* Only a rank itself and its host's launcher may report its failure. */
static void test_who_may_report(void **state)
{
	struct ct_failure f = {.rank = 2,
			       .pid = 5,
			       .host = "h2",
			       .status = CT_NUMERIC,
			       .at = CT_POSITION_UNKNOWN,
			       .message = "rank 2 fell over"},
			  got;
	struct ct_store_opts observer = opts_of("run-a", "secret", CT_STORE_OBSERVER),
			     launcher = opts_of("run-a", "secret", CT_STORE_LAUNCHER);
	ct_store_server *srv = serve();
	int port = ct_store_server_port(srv);
	ct_store *one = join(srv, 1), *two = join(srv, 2), *s = NULL;

	(void)state;
	assert_ok(ct_store_connect("127.0.0.1", port, &observer, SOON, &s));
	assert_fails(ct_store_report(s, &f), CT_USAGE, "may not report a failure of rank 2 (pid 5 on host h2)");
	ct_store_close(s);
	assert_fails(ct_store_report(one, &f), CT_USAGE, "may not report a failure of rank 2 (pid 5 on host h2)");
	assert_ok(ct_store_connect("127.0.0.1", port, &launcher, SOON, &s));
	assert_fails(ct_store_report(s, &f), CT_USAGE, "may not report a failure of rank 2 (pid 5 on host h2)");
	f.rank = CT_STORE_LAUNCHER;
	assert_fails(ct_store_report(s, &f), CT_USAGE, "may not report a failure of the launcher (pid 5 on host h2)");
	f.rank = 2;
	assert_false(has_failed(one));
	still_serves(one);
	ct_store_close(s);
	/* The launcher of rank 2's host; a status that there is not. */
	snprintf(launcher.host, sizeof(launcher.host), "h2");
	assert_ok(ct_store_connect("127.0.0.1", port, &launcher, SOON, &s));
	f.status = -1000;
	assert_ok(ct_store_report(s, &f));
	assert_ok(ct_store_watch(one, SOON, &got));
	assert_int_equal(got.rank, 2);
	assert_int_equal(got.status, CT_PEER_LOST);
	assert_string_equal(got.message, "rank 2 fell over");
	ct_store_close(s);
	ct_store_drop(two);
	ct_store_drop(one);
	ct_store_server_stop(srv, 0);
}

/* A rank that has reported why it ends is not "gone" for reasons unknown when its connection ends right after. */
static void test_reported_before_the_end(void **state)
{
	struct ct_failure f = {.rank = 2,
			       .pid = 5,
			       .status = CT_PEER_LOST,
			       .at = CT_POSITION_UNKNOWN,
			       .message = "no route"},
			  got;
	ct_store_server *srv = serve();
	ct_store *one = join(srv, 1), *two = join(srv, 2);

	(void)state;
	assert_ok(ct_store_report(two, &f));
	ct_store_drop(two);
	assert_ok(ct_store_watch(one, SOON, &got));
	assert_string_equal(got.message, "no route");
	ct_store_drop(one);
	ct_store_server_stop(srv, 0);
}

/* A client that counts other ranks: named to it, and to the others as long as ranks are missing. */
static void test_other_world(void **state)
{
	struct ct_store_opts o = opts_of("run-a", "secret", 0), other = opts_of("run-a", "secret", 7);
	ct_store *zero = NULL, *one = NULL, *none = NULL;
	ct_store_server *srv = NULL;
	struct ct_failure f;
	int port;

	(void)state;
	o.world = 2;
	other.world = 9;
	for (int joined = 1; joined <= 2; joined++) {
		assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
		port = ct_store_server_port(srv);
		o.member = 0;
		assert_ok(ct_store_connect("127.0.0.1", port, &o, SOON, &zero));
		one = joined == 2 ? join(srv, 1) : NULL;
		assert_fails(
			ct_store_connect("127.0.0.1", port, &other, SOON, &none), CT_MISMATCH,
			"rank 7 (pid 1007 on host h7) was started for a world of 9 ranks, but rank 0 (pid 1000 on host "
			"h0) for 2");
		if (joined == 2) {
			assert_false(has_failed(zero));
		} else {
			assert_ok(ct_store_watch(zero, SOON, &f));
			assert_int_equal(f.status, CT_MISMATCH);
			assert_non_null(
				strstr(f.message, "rank 7 (pid 1007 on host h7) was started for a world of 9 ranks"));
			assert_non_null(strstr(f.hint, "--procs"));
		}
		ct_store_drop(one);
		ct_store_drop(zero);
		ct_store_server_stop(srv, 0);
	}
}

static void test_port_in_use(void **state)
{
	struct ct_store_opts o = opts_of("run-b", "secret", 0);
	ct_store_server *srv = serve(), *second = NULL;
	int port = ct_store_server_port(srv);
	ct_store *s = join(srv, 1);
	char text[64];

	(void)state;
	snprintf(text, sizeof(text), "port %d: the port is in use by pid %d (", port, (int)getpid());
	assert_fails(ct_store_server_start("127.0.0.1", port, &o, &second), CT_COMM, text);
	assert_fails(ct_store_server_start(NULL, port, &o, &second), CT_COMM, "is in use");
	assert_non_null(strstr(ct_error_hint_text(), "--master-port"));
	/* The server ends its connection first: it stays in TIME_WAIT, which is no reason to refuse the next server. */
	ct_store_server_stop(srv, 0);
	ct_store_drop(s);
	assert_ok(ct_store_server_start("127.0.0.1", port, &o, &second));
	ct_store_server_stop(second, SOON);
	assert_fails(ct_store_server_start("192.0.2.1", 0, &o, &second), CT_COMM, "192.0.2.1");
	assert_fails(ct_store_server_start(NULL, 70000, &o, &second), CT_USAGE, "70000");
}

/* The server raises the limit of open files for as many ranks as may join. */
static void test_open_files_of_all_ranks(void **state)
{
	enum { RANKS = 1000, FEW = 64 };
	struct ct_store_opts o = opts_of("run-a", "secret", -1);
	struct rlimit before, limit;
	ct_store_server *srv = NULL;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < 2; i++) {
		o.world = i == 0 ? RANKS : 0;
		o.max_world = i == 0 ? 0 : RANKS;
		limit = (struct rlimit){FEW, before.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
		ct_store_server_stop(srv, SOON);
		assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_true(limit.rlim_cur >= 3 * RANKS || limit.rlim_cur == before.rlim_max);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_other_attempt),
		cmocka_unit_test(test_who_may_report),
		cmocka_unit_test(test_reported_before_the_end),
		cmocka_unit_test(test_other_world),
		cmocka_unit_test(test_port_in_use),
		cmocka_unit_test(test_open_files_of_all_ranks),
	};

	/* These tests cause many warnings about refused clients. */
	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
