/* The store when real processes die, are stopped and leave. */
#include <signal.h>

#include "base/clock.h"
#include "dist/store/store.h"
#include "tests/base/check.h"
#include "tests/dist/procs.h"

#define SOON ct_deadline_in(20 * CT_SEC)

static struct ct_store_opts opts_of(int member)
{
	struct ct_store_opts o = {.run_id = "run", .token = "t", .member = member, .pid = (int)getpid()};

	snprintf(o.host, sizeof(o.host), "host%d", member);
	return o;
}

static ct_store *join_at(int port, int member)
{
	struct ct_store_opts o = opts_of(member);
	ct_store *s = NULL;

	CHECK(ct_store_connect("127.0.0.1", port, &o, SOON, &s) == CT_OK);
	return s;
}

/* Joins, notifies the test, watches, and sends what it has seen. */
static void watcher(struct proc *me, void *arg)
{
	ct_store *s = join_at(proc_hear(me).v, *(int *)arg);
	struct ct_failure f;

	proc_send(me, 0, "joined");
	CHECK(ct_store_watch(s, SOON, &f) == CT_OK);
	proc_send(me, f.rank, f.message);
	ct_store_drop(s);
}

/* Joins, notifies the test, and leaves with BYE, without BYE, or not at all, as the next note requests. */
static void leaver(struct proc *me, void *arg)
{
	ct_store *s = join_at(proc_hear(me).v, *(int *)arg);
	struct note n;

	CHECK(ct_store_beat(s, &(struct ct_position){CT_RANK_TRAINING, 4, 17}) == CT_OK);
	proc_send(me, 0, "joined");
	n = proc_hear(me);
	if (strcmp(n.text, "bye") == 0)
		ct_store_close(s);
	else if (strcmp(n.text, "return") != 0)
		ct_store_drop(s);
	else
		exit(3);
}

static void owner(struct proc *me, void *arg)
{
	struct ct_store_opts o = opts_of(0);
	ct_store_server *srv;

	(void)arg;
	CHECK(ct_store_server_start("127.0.0.1", 0, &o, &srv) == CT_OK);
	proc_send(me, ct_store_server_port(srv), "serving");
	(void)proc_hear(me);
	ct_store_server_stop(srv, SOON);
}

static void expect_named(const struct note *n, int rank, pid_t pid)
{
	char name[64];

	snprintf(name, sizeof(name), "rank %d (pid %d on host host%d) is gone", rank, (int)pid, rank);
	assert_int_equal(n->v, rank);
	if (!strstr(n->text, name))
		fail_msg("\"%s\" does not hold \"%s\"", n->text, name);
}

/* A member is killed with SIGKILL or ends without BYE: every watcher gets its rank, pid, host and position. */
static void test_lost_member(void **state)
{
	static int ranks[3] = {0, 1, 2};

	(void)state;
	for (int how = 0; how < 3; how++) {
		struct ct_store_opts o = opts_of(-1);
		struct proc p[3];
		ct_store_server *srv;
		int status;

		for (int i = 0; i < 3; i++)
			proc_start(&p[i], i == 2 ? leaver : watcher, &ranks[i]);
		assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
		for (int i = 0; i < 3; i++)
			proc_send(&p[i], ct_store_server_port(srv), NULL);
		for (int i = 0; i < 3; i++)
			(void)proc_hear(&p[i]);
		if (how == 0)
			proc_kill(&p[2], SIGKILL);
		else
			proc_send(&p[2], 0, how == 1 ? "return" : "drop");
		for (int i = 0; i < 2; i++) {
			struct note n = proc_hear(&p[i]);

			expect_named(&n, 2, p[2].pid);
			assert_non_null(strstr(n.text, "last seen at collective 17, training, step 4"));
		}
		status = proc_end(&p[2]);
		assert_true(how == 0 ? WIFSIGNALED(status) : WIFEXITED(status));
		assert_int_equal(proc_end(&p[0]), 0);
		assert_int_equal(proc_end(&p[1]), 0);
		ct_store_server_stop(srv, SOON);
	}
}

/* Leaving with BYE is not a failure, and the server ends when the last member has left. */
static void test_clean_leave(void **state)
{
	static int ranks[2] = {0, 1};
	struct ct_store_opts o = opts_of(-1);
	struct ct_member_state *m;
	struct ct_failure f;
	ct_store_server *srv;
	struct proc p[2];
	ct_store *s;
	int n;

	(void)state;
	for (int i = 0; i < 2; i++)
		proc_start(&p[i], leaver, &ranks[i]);
	assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
	s = join_at(ct_store_server_port(srv), -1);
	for (int i = 0; i < 2; i++) {
		proc_send(&p[i], ct_store_server_port(srv), NULL);
		(void)proc_hear(&p[i]);
	}
	for (int i = 0; i < 2; i++) {
		proc_send(&p[i], 0, "bye");
		assert_int_equal(proc_end(&p[i]), 0);
	}
	assert_int_equal(ct_store_watch(s, ct_deadline_in(20 * CT_MS), &f), CT_TIMEOUT);
	assert_ok(ct_store_members(s, &m, &n));
	assert_int_equal(n, 2);
	assert_true(m[0].left && m[1].left);
	ct_free(m);
	ct_store_drop(s);
	/* No deadline: it has to see for itself that all have left. */
	ct_store_server_stop(srv, CT_FOREVER);
}

/* The process that serves the store is killed: the others learn it from their own connections. */
static void test_owner_killed(void **state)
{
	static int ranks[2] = {1, 2};
	struct proc server, p[2];
	int port;

	(void)state;
	proc_start(&server, owner, NULL);
	for (int i = 0; i < 2; i++)
		proc_start(&p[i], watcher, &ranks[i]);
	port = proc_hear(&server).v;
	for (int i = 0; i < 2; i++) {
		proc_send(&p[i], port, NULL);
		(void)proc_hear(&p[i]);
	}
	proc_kill(&server, SIGKILL);
	for (int i = 0; i < 2; i++) {
		struct note n = proc_hear(&p[i]);

		expect_named(&n, 0, server.pid);
		assert_int_equal(proc_end(&p[i]), 0);
	}
	assert_true(WIFSIGNALED(proc_end(&server)));
}

/* A stopped server: no call waits beyond its deadline. */
static void test_owner_stopped(void **state)
{
	struct ct_store_opts o = opts_of(2);
	struct proc server;
	ct_store *s, *late = NULL;
	struct ct_member_state *m;
	struct ct_failure f;
	size_t len;
	char *v;
	int port, n;

	(void)state;
	proc_start(&server, owner, NULL);
	port = proc_hear(&server).v;
	s = join_at(port, 1);
	proc_kill(&server, SIGSTOP);
	assert_fails(ct_store_get(s, "k", ct_deadline_in(20 * CT_MS), &v, &len), CT_TIMEOUT, "rank 0 (pid ");
	assert_fails(ct_store_members_by(s, ct_deadline_in(20 * CT_MS), &m, &n), CT_TIMEOUT, "no answer in time");
	assert_fails(ct_store_connect("127.0.0.1", port, &o, ct_deadline_in(20 * CT_MS), &late), CT_TIMEOUT,
		     "does not answer");
	assert_int_equal(ct_store_watch(s, ct_deadline_in(20 * CT_MS), &f), CT_TIMEOUT);
	/* It goes on, answers what is new, and does not count the rank that gave up at its door as lost. */
	proc_kill(&server, SIGCONT);
	assert_ok(ct_store_connect("127.0.0.1", port, &o, SOON, &late));
	assert_ok(ct_store_set(s, "k", "v", 1));
	assert_int_equal(ct_store_watch(s, ct_deadline_in(20 * CT_MS), &f), CT_TIMEOUT);
	ct_store_close(late);
	ct_store_close(s);
	proc_send(&server, 0, NULL);
	assert_int_equal(proc_end(&server), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_member),
		cmocka_unit_test(test_clean_leave),
		cmocka_unit_test(test_owner_killed),
		cmocka_unit_test(test_owner_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
