/* Attribution of timeouts, with real ranks that are behind, are stopped, have died or have left. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "dist/rendezvous/rendezvous.h"
#include "tests/base/check.h"
#include "tests/dist/await_all.h"
#include "tests/dist/procs.h"

#define WORLD 3
#define LONG (20 * CT_SEC)

struct place {
	int rank;
	char init[256];
	int64_t seq; /* the collective it is at; -1: it sends no heartbeats */
};

static enum ct_status join(const struct place *p, struct ct_world *w)
{
	struct ct_identity id = {.by = CT_LAUNCHER_ENV,
				 .rank = p->rank,
				 .world = WORLD,
				 .local_rank = -1,
				 .local_world = -1,
				 .node = -1,
				 .n_nodes = -1};
	const struct ct_world_opts o = {.run_id = "run", .timeout_ns = LONG};

	snprintf(id.init, sizeof(id.init), "%s", p->init);
	return ct_world_join(&id, &o, w);
}

struct heart {
	struct ct_thread t;
	ct_store *s;
	int64_t seq;
};

/* Beats fast, until the watch is cancelled or the run fails. */
static void *heart_main(void *arg)
{
	struct heart *h = arg;
	struct ct_failure f;

	while (ct_store_beat(h->s, &(struct ct_position){CT_RANK_TRAINING, 120, h->seq}) == CT_OK &&
	       ct_store_watch(h->s, ct_deadline_in(50 * CT_MS), &f) == CT_TIMEOUT)
		;
	return NULL;
}

/* Rank 1 knows all collectives but number 8. */
static void name_bucket(void *user, int64_t seq, char *buf, size_t len)
{
	(void)user;
	if (seq != 8)
		snprintf(buf, len, "bucket %d of step 118", (int)seq - 7);
}

/* A rank whose heart beats at the collective that its plan says. */
static void beating_rank(struct proc *me, void *arg)
{
	const struct place *p = arg;
	struct heart h = {.seq = p->seq};
	struct ct_world w = {0};
	struct note n;

	CHECK(join(p, &w) == CT_OK);
	CHECK(ct_store_connect_aux(w.store, ct_deadline_in(LONG), &h.s) == CT_OK);
	if (p->seq >= 0) {
		CHECK(ct_store_beat(w.store, &(struct ct_position){CT_RANK_TRAINING, 120, p->seq}) == CT_OK);
		CHECK(ct_thread_start(&h.t, "heart", heart_main, &h) == CT_OK);
	}
	CHECK(await_all(w.store, "all have beaten", WORLD) == CT_OK);
	proc_send(me, 0, "ready");
	n = proc_hear(me);
	w.watched = strcmp(n.text, "blame, watched") == 0;
	if (w.watched || strcmp(n.text, "blame") == 0) {
		struct ct_failure f = {0};
		const struct ct_waiting at = {.seq = p->seq, .name = name_bucket};
		enum ct_status st = ct_world_attribute_failure(&w, &at, &f);

		proc_send(me, st == CT_OK ? f.rank : -1, f.message);
		n = proc_hear(me);
	}
	ct_store_cancel_watch(h.s);
	ct_thread_join(&h.t);
	ct_store_close(h.s);
	ct_world_leave(&w, strcmp(n.text, "leave") != 0);
}

static void start_beating(struct proc *p, struct place *places, const int64_t *seq, const char *path)
{
	for (int i = 0; i < 3; i++) {
		places[i] = (struct place){.rank = i, .seq = seq[i]};
		snprintf(places[i].init, sizeof(places[i].init), "file://%s", path);
		proc_start(&p[i], beating_rank, &places[i]);
	}
	for (int i = 0; i < 3; i++)
		assert_string_equal(proc_hear(&p[i]).text, "ready");
}

struct guilt {
	int64_t seq[3];
	const char *end; /* what rank 2 does before rank 1 blames */
	int guilty;
	const char *say;
};

/* Rank 1 waits at collective 9: who is behind, stopped, gone or has left? */
static void test_blame(void **state)
{
	char *path = ct_path_join(*state, "meet");
	static const struct guilt cases[] = {
		{{9, 9, 8},
		 NULL,
		 2,
		 "is alive but has never posted bucket 2 of step 118; ranks waiting in it: 0, 1; last seen at collective 8, training, step 120"},
		{{7, 9, 8},
		 NULL,
		 0,
		 "is alive but has never posted collective 8; ranks waiting in it: 1, 2; last seen at collective 7"},
		{{8, 9, 8},
		 NULL,
		 0,
		 "is alive but has never posted bucket 2 of step 118 (and so rank 2); ranks waiting in it: 1"},
		{{9, 9, 9}, NULL, -1, ""},
		{{9, 9, 9}, "drop", 2, "is gone"},
		{{9, 9, 9}, "leave", 2, "has left the run; ranks waiting in bucket 2 of step 118: 0, 1"},
	};

	for (size_t c = 0; c < CT_ARRAY_LEN(cases); c++) {
		struct place places[3];
		struct proc p[3];
		struct note n;

		start_beating(p, places, cases[c].seq, path);
		if (cases[c].end) {
			proc_send(&p[2], 0, cases[c].end);
			assert_int_equal(proc_end(&p[2]), 0);
		}
		proc_send(&p[1], 0, "blame");
		n = proc_hear(&p[1]);
		assert_int_equal(n.v, cases[c].guilty);
		if (!strstr(n.text, cases[c].say))
			fail_msg("case %zu: \"%s\" does not hold \"%s\"", c, n.text, cases[c].say);
		proc_send(&p[1], 0, "drop");
		if (!cases[c].end) {
			proc_send(&p[2], 0, "drop");
			assert_int_equal(proc_end(&p[2]), 0);
		}
		proc_send(&p[0], 0, "drop");
		assert_int_equal(proc_end(&p[1]), 0);
		assert_int_equal(proc_end(&p[0]), 0);
	}
	ct_free(path);
}

/* Rank 2 is stopped: its heart does not beat. Then rank 0, which serves the store, is stopped as well. */
static void test_blame_stopped(void **state)
{
	char *path = ct_path_join(*state, "meet");
	static const int64_t seq[3] = {9, 9, 9};
	struct place places[3];
	struct proc p[3];
	struct note n;
	char who[64];

	for (int stopped = 2; stopped >= 0; stopped -= 2) {
		start_beating(p, places, seq, path);
		proc_kill(&p[stopped], SIGSTOP);
		proc_send(&p[1], 0, "blame");
		n = proc_hear(&p[1]);
		snprintf(who, sizeof(who), "rank %d (pid %d on host ", stopped, (int)p[stopped].pid);
		assert_int_equal(n.v, stopped);
		if (!strstr(n.text, who) || !strstr(n.text, "has not answered for") ||
		    (stopped == 2 && !strstr(n.text, "; ranks waiting in bucket 2 of step 118: 0, 1")))
			fail_msg("\"%s\"", n.text);
		for (int i = 0; i < 3; i++) {
			proc_kill(&p[i], SIGKILL);
			(void)proc_end(&p[i]);
		}
	}
	ct_free(path);
}

/* Rank 2 has sent no heartbeat. If the ranks have watchdogs, it has been stopped since it joined. */
static void test_blame_mute(void **state)
{
	static const int64_t seq[3] = {9, 9, -1};
	char *path = ct_path_join(*state, "meet");

	for (int watched = 0; watched < 2; watched++) {
		struct place places[3];
		struct proc p[3];
		struct note n;

		start_beating(p, places, seq, path);
		proc_send(&p[1], 0, watched ? "blame, watched" : "blame");
		n = proc_hear(&p[1]);
		assert_int_equal(n.v, watched ? 2 : -1);
		if (watched && !strstr(n.text, "has joined, but has sent no heartbeat since; ranks waiting in"))
			fail_msg("\"%s\"", n.text);
		for (int i = 3; i-- > 0;) {
			proc_send(&p[i], 0, "drop");
			assert_int_equal(proc_end(&p[i]), 0);
		}
	}
	ct_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blame),
		cmocka_unit_test(test_blame_stopped),
		cmocka_unit_test(test_blame_mute),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
