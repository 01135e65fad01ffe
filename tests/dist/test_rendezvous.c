/* Ranks as real processes that meet, agree or disagree, and leave. */
#include "dist/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/rendezvous/handshake_impl.h"
#include "dist/rendezvous/rendezvous_file_impl.h"
#include "tests/base/check.h"
#include "tests/dist/procs.h"

#define MAX_RANKS 4
#define LONG (20 * CT_SEC)

struct plan {
	int rank, world;
	char init[256];
	const char *run_id, *token;
	int64_t timeout_ns;
	const char *lines; /* for agree */
};

static enum ct_status join(const struct plan *p, struct ct_world *w)
{
	struct ct_identity id = {.by = CT_LAUNCHER_ENV,
				 .rank = p->rank,
				 .world = p->world,
				 .local_rank = -1,
				 .local_world = -1,
				 .node = -1,
				 .n_nodes = -1};
	struct ct_world_opts o = {.run_id = p->run_id, .token = p->token, .timeout_ns = p->timeout_ns};

	snprintf(id.init, sizeof(id.init), "%s", p->init);
	return ct_world_join(&id, &o, w);
}

/* Joins and tells how that went; when well, waits for a note, agrees if there is something to agree on, and leaves. */
static void rank_main(struct proc *me, void *arg)
{
	const struct plan *p = arg;
	struct ct_world w = {0};
	enum ct_status st = join(p, &w);

	if (st == CT_OK && p->lines) {
		for (int i = 0; i < 3 && st == CT_OK; i++)
			st = ct_world_agree(&w, "config", i < 2 ? "same=1\n" : p->lines, ct_deadline_in(LONG));
	}
	proc_send(me, st, st == CT_OK ? "" : ct_error_message());
	if (w.store) {
		proc_send(me, w.id.local_rank, w.peers[w.id.rank].addr);
		proc_send(me, w.id.local_world, w.peers[w.id.rank].host);
		proc_send(me, w.n_hosts, w.peers[0].host_key);
		proc_send(me, w.peers[p->world - 1].pid, "");
		(void)proc_hear(me);
	}
	ct_world_leave(&w, st != CT_OK);
}

/* A port that is free now. */
static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static void plan_all(struct plan *p, int n, const char *init)
{
	for (int i = 0; i < n; i++) {
		p[i] = (struct plan){.rank = i, .world = n, .run_id = "run", .timeout_ns = LONG};
		snprintf(p[i].init, sizeof(p[i].init), "%s", init);
	}
}

static void plan_tcp(struct plan *p, int n, const char *host)
{
	char init[256];

	snprintf(init, sizeof(init), "tcp://%s:%d", host, free_port());
	plan_all(p, n, init);
}

static void expect_met(struct proc *p, int rank, int world, pid_t last_pid)
{
	struct note n = proc_hear(p);

	if (n.v != CT_OK)
		fail_msg("rank %d: %s", rank, n.text);
	n = proc_hear(p);
	assert_int_equal(n.v, rank);
	assert_non_null(strchr(n.text, '.'));
	n = proc_hear(p);
	assert_int_equal(n.v, world);
	assert_string_not_equal(n.text, "");
	n = proc_hear(p);
	assert_int_equal(n.v, 1);
	assert_non_null(strchr(n.text, '/'));
	assert_int_equal(proc_hear(p).v, last_pid);
}

/* All meet, whoever comes first, and leave cleanly. */
static void meet_and_leave(struct plan *plans, int n, bool last_first)
{
	struct proc p[MAX_RANKS];

	for (int i = 0; i < n; i++)
		proc_start(&p[last_first ? n - 1 - i : i], rank_main, &plans[last_first ? n - 1 - i : i]);
	for (int i = 0; i < n; i++)
		expect_met(&p[i], i, n, p[n - 1].pid);
	for (int i = 0; i < n; i++)
		proc_send(&p[i], 0, "leave");
	for (int i = 0; i < n; i++)
		assert_int_equal(proc_end(&p[i]), 0);
}

static void test_tcp(void **state)
{
	struct plan plans[MAX_RANKS];

	(void)state;
	for (int n = 2; n <= MAX_RANKS; n++) {
		plan_tcp(plans, n, n == 3 ? "localhost" : "127.0.0.1");
		meet_and_leave(plans, n, n != 2);
	}
}

static void test_alone(void **state)
{
	struct plan p = {.world = 1, .run_id = "run", .timeout_ns = LONG, .init = "tcp://nowhere.invalid:1"};
	struct ct_failure f;
	struct ct_world w;

	(void)state;
	assert_ok(join(&p, &w));
	assert_null(w.store);
	assert_int_equal(w.n_hosts, 1);
	assert_int_equal(w.peers[0].pid, getpid());
	assert_ok(ct_world_agree(&w, "config", "a=1", 0));
	assert_int_equal(ct_world_attribute_failure(&w, &(struct ct_waiting){.seq = 3}, &f), CT_NOT_FOUND);
	ct_world_leave(&w, false);
	ct_world_leave(&w, false);
	p.rank = 1;
	assert_int_equal(join(&p, &w), CT_USAGE);
}

/* file://: fresh, after a run that died and left its file, over an empty file, and with the last rank first. */
static void test_file(void **state)
{
	struct ct_rendezvous_file stale = {
		.run_id = "run", .nonce = "00", .port = free_port(), .n_addrs = 1, .addrs = {"127.0.0.1"}};
	char *path = ct_path_join(*state, "meet"), init[256];
	struct plan plans[MAX_RANKS];
	struct ct__host_facts facts;

	snprintf(init, sizeof(init), "file://%s", path);
	plan_all(plans, 3, init);
	meet_and_leave(plans, 3, true);
	assert_false(ct_file_exists(path));

	ct__host_facts(&facts);
	snprintf(stale.net_key, sizeof(stale.net_key), "%s", facts.net_key);
	assert_ok(ct__rendezvous_file_publish(&stale, path));
	meet_and_leave(plans, 3, true);

	assert_ok(ct_file_replace(path, "", 0));
	meet_and_leave(plans, 2 + 1, false);
	ct_free(path);
}

/* The stale file's port belongs to another run of ctrain by now, which refuses; and another run's file is not
 * taken for ours. */
static void test_file_of_another_run(void **state)
{
	struct ct_store_opts o = {.run_id = "run", .token = "other", .member = 0, .host = "h"};
	struct ct_rendezvous_file stale = {.run_id = "run", .nonce = "00", .n_addrs = 1, .addrs = {"127.0.0.1"}};
	char *path = ct_path_join(*state, "meet2"), init[256];
	struct plan plans[2], late;
	struct ct__host_facts facts;
	struct proc p[2];
	ct_store_server *srv;
	struct ct_world w;

	snprintf(init, sizeof(init), "file://%s", path);
	plan_all(plans, 2, init);
	proc_start(&p[1], rank_main, &plans[1]);
	proc_start(&p[0], rank_main, &plans[0]);
	expect_met(&p[0], 0, 2, p[1].pid);
	expect_met(&p[1], 1, 2, p[1].pid);
	late = plans[1];
	late.run_id = "another";
	late.timeout_ns = 20 * CT_MS;
	assert_fails(join(&late, &w), CT_TIMEOUT, "belongs to run \"run\", not to run \"another\"");
	for (int i = 0; i < 2; i++)
		proc_send(&p[i], 0, "leave");
	for (int i = 0; i < 2; i++)
		assert_int_equal(proc_end(&p[i]), 0);

	ct__host_facts(&facts);
	snprintf(stale.net_key, sizeof(stale.net_key), "%s", facts.net_key);
	proc_start(&p[1], rank_main, &plans[1]);
	proc_start(&p[0], rank_main, &plans[0]);
	for (int i = 0; i < 2; i++)
		expect_met(&p[i], i, 2, p[1].pid);
	for (int i = 0; i < 2; i++)
		proc_send(&p[i], 0, "leave");
	for (int i = 0; i < 2; i++)
		assert_int_equal(proc_end(&p[i]), 0);
	assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
	stale.port = ct_store_server_port(srv);
	assert_ok(ct__rendezvous_file_publish(&stale, path));
	late.run_id = "run";
	assert_fails(join(&late, &w), CT_TIMEOUT, "wrong token");
	ct_store_server_stop(srv, 0);
	ct_free(path);
}

static void test_file_trouble(void **state)
{
	static const char *const broken[] = {"hello\n",
					     "ctrain-rendezvous 2\nend\n",
					     "ctrain-rendezvous 1\n",
					     "ctrain-rendezvous 1\nend\n",
					     "ctrain-rendezvous 1\nport 0\nnonce a\nend\n",
					     "ctrain-rendezvous 1\nport 1\nend\n",
					     "ctrain-rendezvous 1\nport 1\nnonce a\n",
					     "ctrain-rendezvous 1\nport 1\nnonce a\nwhat x\nend\n",
					     "ctrain-rendezvous 1\nport 1\nnonce \nend\n",
					     "ctrain-rendezvous 1\nport 1\nport\nend\n"};
	char *path = ct_path_join(*state, "precious"), *text;
	struct ct_rendezvous_file m;
	struct plan plans[2];
	struct ct_world w;
	char init[256];
	size_t len;

	for (size_t i = 0; i < CT_ARRAY_LEN(broken); i++) {
		if (ct__rendezvous_file_parse(broken[i], "F", &m) != CT_DATA)
			fail_msg("\"%s\" is not refused", broken[i]);
	}
	assert_ok(ct__rendezvous_file_parse("ctrain-rendezvous 1\nport 7\nnonce a\nrun b c\naddr x\nend\n", "F", &m));
	assert_string_equal(m.run_id, "b c");
	/* A file of the user is not overwritten. */
	assert_ok(ct_file_replace(path, "thesis", 6));
	snprintf(init, sizeof(init), "file://%s", path);
	plan_all(plans, 2, init);
	assert_fails(join(&plans[0], &w), CT_USAGE, "precious is not a ctrain rendezvous file");
	assert_ok(ct_file_read(path, 100, &text, &len));
	assert_string_equal(text, "thesis");
	ct_free(text);
	snprintf(plans[0].init, sizeof(plans[0].init), "file:///proc/none/x");
	assert_int_equal(join(&plans[0], &w), CT_IO);
	plans[1].timeout_ns = 20 * CT_MS;
	snprintf(plans[1].init, sizeof(plans[1].init), "file://%s.never", path);
	assert_fails(join(&plans[1], &w), CT_TIMEOUT, "precious.never");
	ct_free(path);
}

/* Rank 2 never comes: those who did say so, with a table. */
static void test_missing_rank(void **state)
{
	struct plan plans[3];
	struct proc p[2];

	(void)state;
	plan_tcp(plans, 3, "127.0.0.1");
	for (int i = 0; i < 2; i++) {
		plans[i].timeout_ns = 2 * CT_SEC;
		proc_start(&p[i], rank_main, &plans[i]);
	}
	for (int i = 0; i < 2; i++) {
		struct note n = proc_hear(&p[i]);

		assert_int_equal(n.v, CT_TIMEOUT);
		if (!strstr(n.text, "1 of 3 ranks are missing: 2\n") || !strstr(n.text, "rank 2    MISSING") ||
		    !strstr(n.text, "here"))
			fail_msg("rank %d: \"%s\"", i, n.text);
		assert_int_equal(proc_end(&p[i]), 0);
	}
}

/* One dies while the others wait for a fourth: no need to wait for the deadline. */
static void test_death_while_meeting(void **state)
{
	struct plan plans[4];
	struct proc p[3];

	(void)state;
	plan_tcp(plans, 4, "127.0.0.1");
	for (int i = 0; i < 3; i++)
		proc_start(&p[i], rank_main, &plans[i]);
	/* Rank 3's place is taken by the test, which then drops it. */
	{
		struct ct_store_opts o = {.run_id = "run", .member = 3, .pid = 55, .host = "h"};
		ct_store *s = NULL;
		char *v;
		size_t len;
		int port = (int)strtol(strrchr(plans[0].init, ':') + 1, NULL, 10);

		/* The token that follows from the run id. */
		snprintf(o.token, sizeof(o.token), "%s", "secret");
		assert_int_equal(ct_store_connect("127.0.0.1", port, &o, ct_deadline_in(LONG), &s), CT_MISMATCH);
		for (int i = 0; i < 3; i++) {
			proc_kill(&p[i], SIGKILL);
			(void)proc_end(&p[i]);
		}
		for (int i = 0; i < 4; i++)
			plans[i].token = "secret";
		for (int i = 0; i < 3; i++)
			proc_start(&p[i], rank_main, &plans[i]);
		assert_ok(ct_store_connect("127.0.0.1", port, &o, ct_deadline_in(LONG), &s));
		for (int i = 0; i < 3; i++) {
			char key[32];

			snprintf(key, sizeof(key), "introduction/%d", i);
			assert_ok(ct_store_get(s, key, ct_deadline_in(LONG), &v, &len));
			ct_free(v);
		}
		ct_store_drop(s);
	}
	for (int i = 0; i < 3; i++) {
		struct note n = proc_hear(&p[i]);

		assert_int_equal(n.v, CT_PEER_LOST);
		assert_non_null(strstr(n.text, "rank 3 (pid 55 on host h) is gone"));
		assert_int_equal(proc_end(&p[i]), 0);
	}
}

static void test_other_world_size(void **state)
{
	struct plan plans[2];
	struct proc p[2];

	(void)state;
	plan_tcp(plans, 2, "127.0.0.1");
	plans[1].world = 3;
	for (int i = 0; i < 2; i++)
		proc_start(&p[i], rank_main, &plans[i]);
	for (int i = 0; i < 2; i++) {
		struct note n = proc_hear(&p[i]);

		assert_int_equal(n.v, CT_MISMATCH);
		assert_non_null(strstr(n.text, "rank 1 (pid "));
		assert_non_null(strstr(n.text, "was started for a world of 3 ranks, but rank 0 (pid "));
		assert_int_equal(proc_end(&p[i]), 0);
	}
}

/* Another run at the same address, and a wrong token: told at once, and the run goes on. */
static void test_two_runs(void **state)
{
	struct plan plans[2], other, thief;
	struct proc p[4];
	struct note n;

	(void)state;
	plan_tcp(plans, 2, "127.0.0.1");
	plans[0].token = plans[1].token = "secret";
	other = plans[1];
	other.run_id = "other";
	thief = plans[1];
	thief.token = "guess";
	proc_start(&p[0], rank_main, &plans[0]);
	proc_start(&p[2], rank_main, &other);
	proc_start(&p[3], rank_main, &thief);
	n = proc_hear(&p[2]);
	assert_int_equal(n.v, CT_MISMATCH);
	assert_non_null(strstr(n.text, "run \"run\" of rank 0"));
	assert_non_null(strstr(n.text, "not run \"other\""));
	n = proc_hear(&p[3]);
	assert_int_equal(n.v, CT_MISMATCH);
	assert_non_null(strstr(n.text, "wrong token"));
	/* The other run's rank 0 cannot have the port. */
	assert_int_equal(proc_end(&p[2]), 0);
	other.rank = 0;
	proc_start(&p[2], rank_main, &other);
	n = proc_hear(&p[2]);
	assert_int_equal(n.v, CT_COMM);
	assert_non_null(strstr(n.text, "is in use by pid"));
	proc_start(&p[1], rank_main, &plans[1]);
	for (int i = 0; i < 2; i++)
		expect_met(&p[i], i, 2, p[1].pid);
	for (int i = 0; i < 2; i++)
		proc_send(&p[i], 0, "leave");
	for (int i = 0; i < 4; i++)
		assert_int_equal(proc_end(&p[i]), 0);
}

struct disagreement {
	const char *lines[3];
	int culprit;
	const char *say[2];
};

static void test_agree(void **state)
{
	static const struct disagreement cases[] = {
		{{"a=1\nb=2\n", "a=1\nb=2\n", "a=1\nb=2\n"}, -1, {NULL, NULL}},
		{{"a=1\nb=2\n", "a=1\nb=2\n", "a=1\nb=3\n"}, 2, {"config: b differs: rank 2 (pid ", " has 2"}},
		{{"a=1\nb=2\nc=3", "a=9\nb=8\nc=3", "a=1\nb=2\nc=3"}, 1, {"a differs: rank 1 (pid ", ", and 1 more"}},
		{{"a=1\n", "a=1\nb=2\n", "a=1\n"}, 1, {"has b=2 where rank 0 (pid ", "has nothing"}},
		{{"a=1\nb=1", "a=1\n", "a=1\nb=1"}, 1, {"has nothing where rank 0 (pid ", "has b=1"}},
		{{"a=\n", "a=\n", "a=\x01\n"}, 2, {"has \\x01, rank 0 (pid ", ") has "}},
	};

	(void)state;
	for (size_t c = 0; c < CT_ARRAY_LEN(cases); c++) {
		struct plan plans[3];
		struct proc p[3];

		plan_tcp(plans, 3, "127.0.0.1");
		for (int i = 0; i < 3; i++) {
			plans[i].lines = cases[c].lines[i];
			proc_start(&p[i], rank_main, &plans[i]);
		}
		for (int i = 0; i < 3; i++) {
			struct note n = proc_hear(&p[i]);

			assert_int_equal(n.v, cases[c].culprit < 0 ? CT_OK : CT_MISMATCH);
			for (int k = 0; k < 2 && cases[c].culprit >= 0; k++) {
				if (!strstr(n.text, cases[c].say[k]))
					fail_msg("rank %d: \"%s\" does not hold \"%s\"", i, n.text, cases[c].say[k]);
			}
			for (int k = 0; k < 4; k++)
				(void)proc_hear(&p[i]);
		}
		for (int i = 0; i < 3; i++)
			proc_send(&p[i], 0, "leave");
		for (int i = 0; i < 3; i++)
			assert_int_equal(proc_end(&p[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_file_of_another_run),
		cmocka_unit_test(test_file_trouble),
		cmocka_unit_test(test_missing_rank),
		cmocka_unit_test(test_death_while_meeting),
		cmocka_unit_test(test_other_world_size),
		cmocka_unit_test(test_two_runs),
		cmocka_unit_test(test_agree),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
