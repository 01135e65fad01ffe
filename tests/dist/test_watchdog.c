/* The watchdog in real processes: the messages and exit codes of the survivors when a rank dies or fails. */
#include "dist/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/rank_page.h"
#include "tests/base/check.h"
#include "tests/dist/procs.h"

#define LONG (20 * CT_SEC)

struct role {
	int rank, world;
	int n_comms; /* open that many communicators; wait in the last one */
};

static void join(const struct role *r, int port, struct ct_world *w)
{
	struct ct_identity id = {.by = CT_LAUNCHER_CTRAIN,
				 .rank = r->rank,
				 .world = r->world,
				 .local_rank = r->rank,
				 .local_world = r->world,
				 .n_nodes = 1};
	struct ct_world_opts o = {.run_id = "run", .token = "t", .timeout_ns = LONG};

	snprintf(id.init, sizeof(id.init), "store://127.0.0.1:%d", port);
	CHECK(ct_world_join(&id, &o, w) == CT_OK);
}

/* Hangs forever in its main thread, like a rank that is blocked in a collective of another library. */
static void hang(void)
{
	for (;;)
		pause();
}

/* As a stream waits: it sees that the communicator was aborted, but does not look for the peers itself. */
static enum ct_status poll_work(ct_work *w)
{
	int64_t deadline = ct_deadline_in(LONG);

	while (ct_now_ns() < deadline && ct_work_test(w) == CT_INPROGRESS)
		;
	return ct_work_wait(w);
}

static void wait_in_collective(struct proc *me, struct ct_world *w, ct_watchdog *dog, int n)
{
	static const char *const scopes[] = {NULL, "norm"};
	enum ct_status st;
	ct_comm *comms[2], *c;
	ct_work *work;
	float x = 1;

	for (int i = 0; i < n; i++) {
		const struct ct_comm_opts opts = {.timeout_ns = LONG, .scope = scopes[i]};

		CHECK(ct_comm_open("shm", w, &opts, &comms[i]) == CT_OK);
		ct_watchdog_add_comm(dog, comms[i]);
	}
	c = comms[n - 1];
	proc_send(me, 0, "ready");
	if (w->id.rank == 1)
		hang();
	CHECK(ct_comm_allreduce(c, &x, 1, CT_F32, CT_SUM, &work) == CT_OK);
	st = n > 1 ? poll_work(work) : ct_work_wait(work);
	proc_send(me, st, ct_error_message());
	for (int i = n; i-- > 0;) {
		ct_watchdog_remove_comm(dog, comms[i]);
		ct_comm_close(comms[i]);
	}
}

static void rank_main(struct proc *me, void *arg)
{
	const struct role *r = arg;
	struct ct_world w = {0};
	ct_watchdog *dog;
	struct note n;

	join(r, proc_hear(me).v, &w);
	CHECK(ct_watchdog_start(&w, &dog) == CT_OK);
	(void)ct_rank_page_enter(CT_RANK_TRAINING, 120 + r->rank);
	ct_watchdog_beat(dog);
	if (r->n_comms > 0) {
		wait_in_collective(me, &w, dog, r->n_comms);
	} else {
		proc_send(me, 0, "ready");
		n = proc_hear(me);
		if (strcmp(n.text, "hang") == 0)
			hang();
		if (strcmp(n.text, "report") == 0) {
			CT_FAIL(CT_NUMERIC, "loss is NaN");
			ct_error_hint("lower optim.lr");
			ct_watchdog_report(dog);
			CHECK(ct_error_status() == CT_NUMERIC);
			proc_send(me, 0, "reported");
			(void)proc_hear(me);
		}
	}
	ct_watchdog_stop(dog);
	ct_world_leave(&w, false);
	exit(40 + r->rank);
}

/* Server in the test; ranks are forked first, so that they may have threads. */
static ct_store_server *start_all(struct proc *p, struct role *r, int n)
{
	struct ct_store_opts o = {.run_id = "run", .token = "t", .member = -1, .host = "here", .pid = (int)getpid()};
	ct_store_server *srv = NULL;

	for (int i = 0; i < n; i++)
		proc_start_quiet(&p[i], rank_main, &r[i]);
	assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &srv));
	for (int i = 0; i < n; i++)
		proc_send(&p[i], ct_store_server_port(srv), NULL);
	for (int i = 0; i < n; i++)
		assert_string_equal(proc_hear(&p[i]).text, "ready");
	return srv;
}

static void expect_end(struct proc *p, int code, const char *const *say)
{
	char text[4096];
	int status;

	proc_errors(p, text, sizeof(text));
	status = proc_end(p);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
		fail_msg("status %x instead of exit code %d; it said: %s", (unsigned)status, code, text);
	for (; *say; say++) {
		if (!strstr(text, *say))
			fail_msg("\"%s\" does not hold \"%s\"", text, *say);
	}
}

/* Until the store knows that a rank has done `step` steps. */
static void await_step(ct_store_server *srv, int rank, int64_t step)
{
	struct ct_store_opts o = {.run_id = "run", .token = "t", .member = -1};
	bool heard = false;
	ct_store *s = NULL;

	assert_ok(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &o, ct_deadline_in(LONG), &s));
	while (!heard) {
		struct ct_member_state *m;
		int n;

		assert_ok(ct_store_members(s, &m, &n));
		for (int i = 0; i < n; i++)
			heard |= m[i].rank == rank && m[i].at.step == step;
		ct_free(m);
	}
	ct_store_close(s);
}

/* Rank 1 is killed; ranks 0 and 2 hang in code that knows nothing of it, and end all the same. */
static void test_killed(void **state)
{
	struct role r[3] = {{0, 3, 0}, {1, 3, 0}, {2, 3, 0}};
	ct_store_server *srv;
	struct proc p[3];
	char who[64];

	(void)state;
	srv = start_all(p, r, 3);
	proc_send(&p[0], 0, "hang");
	proc_send(&p[2], 0, "hang");
	await_step(srv, 1, 121);
	proc_kill(&p[1], SIGKILL);
	snprintf(who, sizeof(who), "ctrain: rank 1 (pid %d on host ", (int)p[1].pid);
	expect_end(&p[0], 5, (const char *const[]){who, "is gone", "step 121", "hint: ", NULL});
	expect_end(&p[2], 5, (const char *const[]){who, "is gone", NULL});
	(void)proc_end(&p[1]);
	ct_store_server_stop(srv, ct_deadline_in(LONG));
}

/* Rank 1 reports why it fails: the others say that, and end with its code. */
static void test_report(void **state)
{
	struct role r[2] = {{0, 2, 0}, {1, 2, 0}};
	ct_store_server *srv;
	struct proc p[2];
	char who[64];

	(void)state;
	srv = start_all(p, r, 2);
	proc_send(&p[0], 0, "hang");
	proc_send(&p[1], 0, "report");
	assert_string_equal(proc_hear(&p[1]).text, "reported");
	snprintf(who, sizeof(who), "rank 1 (pid %d on host ", (int)p[1].pid);
	expect_end(&p[0], 6,
		   (const char *const[]){who, "failed in training, step 121: loss is NaN\n", "hint: lower optim.lr\n",
					 NULL});
	/* So does the one that reported, if it does not manage to end. */
	expect_end(&p[1], 6, (const char *const[]){"failed in training, step 121", NULL});
	ct_store_server_stop(srv, ct_deadline_in(LONG));
}

/* A process that ends by itself in time does so without the watchdog. */
static void test_in_time(void **state)
{
	struct role r[2] = {{0, 2, 0}, {1, 2, 0}};
	ct_store_server *srv;
	struct proc p[2];
	char text[256];

	(void)state;
	srv = start_all(p, r, 2);
	proc_send(&p[0], 0, "end");
	proc_errors(&p[0], text, sizeof(text));
	assert_string_equal(text, "");
	expect_end(&p[0], 40, (const char *const[]){NULL});
	proc_send(&p[1], 0, "end");
	expect_end(&p[1], 41, (const char *const[]){NULL});
	ct_store_server_stop(srv, CT_FOREVER);
}

/* The server's process has died: no one can report this, but all ranks detect it. */
static void test_server_gone(void **state)
{
	struct role r[2] = {{0, 2, 0}, {1, 2, 0}};
	ct_store_server *srv;
	struct proc p[2];

	(void)state;
	srv = start_all(p, r, 2);
	proc_send(&p[0], 0, "hang");
	proc_send(&p[1], 0, "hang");
	ct_store_server_stop(srv, 0);
	for (int i = 0; i < 2; i++)
		expect_end(&p[i], 5, (const char *const[]){"the launcher (pid ", "on host here) is gone", NULL});
}

/* A collective that waits for the dead rank ends with the reason, in whichever communicator. */
static void check_collective(int n_comms)
{
	struct role r[2] = {{0, 2, n_comms}, {1, 2, n_comms}};
	ct_store_server *srv;
	struct proc p[2];
	struct note n;
	char who[64];

	srv = start_all(p, r, 2);
	proc_kill(&p[1], SIGKILL);
	n = proc_hear(&p[0]);
	snprintf(who, sizeof(who), "rank 1 (pid %d on host ", (int)p[1].pid);
	assert_int_equal(n.v, CT_PEER_LOST);
	if (!strstr(n.text, who) || !strstr(n.text, "this rank waited in allreduce sum f32[1]"))
		fail_msg("\"%s\" does not hold \"%s\"", n.text, who);
	(void)proc_end(&p[1]);
	expect_end(&p[0], 40, (const char *const[]){NULL});
	ct_store_server_stop(srv, ct_deadline_in(LONG));
}

static void test_collective(void **state)
{
	(void)state;
	check_collective(1);
}

static void test_second_communicator(void **state)
{
	(void)state;
	check_collective(2);
}

static void test_alone(void **state)
{
	struct ct_world w = {.id = {.world = 1}};
	ct_watchdog *dog = NULL;

	(void)state;
	assert_ok(ct_watchdog_start(&w, &dog));
	ct_watchdog_beat(dog);
	ct_watchdog_remove_comm(dog, NULL);
	ct_watchdog_report(dog);
	ct_watchdog_stop(dog);
	ct_watchdog_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_in_time),
		cmocka_unit_test(test_server_gone),
		cmocka_unit_test(test_collective),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_second_communicator),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
