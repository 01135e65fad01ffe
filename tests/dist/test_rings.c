/* Rings for short messages: order, sizes, full rings, and hosts that cannot share memory. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/comm_impl.h"
#include "dist/comm/mpi/rings.h"
#include "tests/dist/await_all.h"
#include "tests/dist/ranks.h"

#define LONG (60 * CT_SEC)

/* The members of a communicator that rings need. */
static struct ct_comm comm_of(struct ct_world *w)
{
	struct ct_comm c = {.world = w, .rank = w->id.rank, .size = w->id.world, .opts = {.timeout_ns = LONG}};

	snprintf(c.scope, sizeof(c.scope), "test");
	return c;
}

static struct ct_rings *open_rings(struct ct_comm *c)
{
	struct ct_rings *r;

	CHECK(ct__rings_open(c, LONG, &r) == CT_OK);
	return r;
}

static void meet(struct ct_world *w, const char *name)
{
	CHECK(await_all(w->store, name, w->id.world) == CT_OK);
}

static void finish(struct ct_rings *r, struct ct_ring_request *q)
{
	while (!q->done) {
		CHECK(ct__rings_poll(r, q->peer) == CT_OK);
		(void)sched_yield();
	}
}

/* Message k from a rank: its length and its bytes. */
static size_t make(int from, int k, unsigned char *buf)
{
	size_t n = k % 7 == 0 ? CT_RING_MESSAGE_MAX : (size_t)k * 37 % (CT_RING_MESSAGE_MAX + 1);

	for (size_t i = 0; i < n; i++)
		buf[i] = (unsigned char)(from * 101 + k * 13 + (int)i);
	return n;
}

/* All ranks send to all others. Messages with four keys are received in another order than they are sent. */
static void exchange(struct ct_world *w, void *arg)
{
	enum { N = 200, KEYS = 4 };
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	struct ct_ring_request *send = calloc((size_t)c.size * N, sizeof(*send));
	unsigned char *sent = calloc((size_t)c.size * N, CT_RING_MESSAGE_MAX), want[CT_RING_MESSAGE_MAX];

	(void)arg;
	CHECK(r && send && sent);
	for (int k = 0; k < N; k++) {
		for (int q = 0; q < c.size; q++) {
			const int i = q * N + k;
			unsigned char *buf = sent + (size_t)i * CT_RING_MESSAGE_MAX;

			if (q == c.rank)
				continue;
			CHECK(ct__rings_reach(r, q));
			send[i] = (struct ct_ring_request){.buf = buf,
							   .bytes = make(c.rank, k, buf),
							   .key = (uint64_t)(k % KEYS),
							   .peer = q,
							   .sending = true};
			CHECK(ct__rings_start(r, &send[i]) == CT_OK);
		}
	}
	for (int key = KEYS - 1; key >= 0; key--) {
		for (int k = key; k < N; k += KEYS) {
			for (int q = 0; q < c.size; q++) {
				unsigned char got[CT_RING_MESSAGE_MAX];
				const size_t n = make(q, k, want);
				struct ct_ring_request receive = {
					.buf = got, .bytes = n, .key = (uint64_t)key, .peer = q};

				if (q == c.rank)
					continue;
				CHECK(ct__rings_start(r, &receive) == CT_OK);
				while (!receive.done) {
					for (int p = 0; p < c.size; p++)
						CHECK(p == c.rank || ct__rings_poll(r, p) == CT_OK);
					(void)sched_yield();
				}
				CHECK(memcmp(got, want, n) == 0);
			}
		}
	}
	for (int i = 0; i < c.size * N; i++) {
		if (i / N != c.rank)
			finish(r, &send[i]);
	}
	meet(w, "exchanged");
	ct__rings_close(r);
	free(send);
	free(sent);
}

/* Several receives that were started before their messages arrive, in another order. */
static void receives_first(struct ct_world *w, void *arg)
{
	enum { N = 3 };
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	struct ct_ring_request q[N + 1];
	int x[N + 1];

	(void)arg;
	for (int k = 0; k <= N; k++) {
		const bool sending = c.rank == 0;
		const int key = sending ? N - 1 - k : k;

		x[k] = sending ? 10 + key : -1;
		q[k] = (struct ct_ring_request){.buf = &x[k],
						.bytes = sizeof(x[k]),
						.key = (uint64_t)key,
						.peer = 1 - c.rank,
						.sending = sending};
	}
	for (int k = 0; k < N && c.rank == 1; k++) {
		CHECK(ct__rings_start(r, &q[k]) == CT_OK);
		CHECK(!q[k].done);
	}
	meet(w, "started");
	for (int k = 0; k < N && c.rank == 0; k++)
		CHECK(ct__rings_start(r, &q[k]) == CT_OK);
	for (int k = 0; k < N; k++) {
		finish(r, &q[k]);
		CHECK(x[k] == (c.rank == 0 ? 10 + N - 1 - k : 10 + k));
	}
	/* The lists are intact. */
	q[N].key = 7;
	x[N] = c.rank == 0 ? 5 : -1;
	CHECK(ct__rings_start(r, &q[N]) == CT_OK);
	finish(r, &q[N]);
	CHECK(x[N] == 5);
	ct__rings_close(r);
}

static void one(struct ct_rings *r, struct ct_comm *c, uint64_t key)
{
	char x = 'x';
	struct ct_ring_request q = {.buf = &x, .bytes = 1, .key = key, .peer = 1 - c->rank, .sending = c->rank == 0};

	CHECK(ct__rings_start(r, &q) == CT_OK);
	finish(r, &q);
}

/* A send waits when all slots are full, until the receiver waits for a message. */
static void full(struct ct_world *w, void *arg)
{
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	struct ct_ring_request q[CT_RING_SLOTS + 2];
	char x = 'x';

	(void)arg;
	for (int k = 0; k < CT_RING_SLOTS + 2 && c.rank == 0; k++) {
		q[k] = (struct ct_ring_request){.buf = &x, .bytes = 1, .key = 1, .peer = 1, .sending = true};
		CHECK(ct__rings_start(r, &q[k]) == CT_OK);
		CHECK(ct__rings_poll(r, 1) == CT_OK);
		CHECK(q[k].done == (k < CT_RING_SLOTS));
	}
	meet(w, "full");
	if (c.rank == 1)
		CHECK(ct__rings_poll(r, 0) == CT_OK); /* takes nothing out */
	meet(w, "still full");
	if (c.rank == 0)
		CHECK(ct__rings_poll(r, 1) == CT_OK && !q[CT_RING_SLOTS].done);
	meet(w, "checked");
	if (c.rank == 0) {
		finish(r, &q[CT_RING_SLOTS + 1]);
		CHECK(q[CT_RING_SLOTS].done);
	}
	one(r, &c, 2); /* the others are stored as early messages */
	for (int k = 0; k < CT_RING_SLOTS + 2 && c.rank == 1; k++)
		one(r, &c, 1);
	/* Again, with one early message. */
	if (c.rank == 0)
		one(r, &c, 1);
	one(r, &c, 2);
	if (c.rank == 1)
		one(r, &c, 1);
	meet(w, "empty");
	ct__rings_close(r);
}

/* A receive expects fewer bytes than a message has. early: the message has arrived before a message with another key,
 * which is received first. */
static void wrong_size(struct ct_world *w, void *arg)
{
	const bool early = *(const bool *)arg;
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	char x[9] = {0};
	struct ct_ring_request q = {.buf = x, .bytes = c.rank == 0 ? 9 : 8, .peer = 1 - c.rank, .sending = c.rank == 0};
	struct ct_ring_request other = {.key = 1, .peer = 1 - c.rank, .sending = c.rank == 0};

	if (c.rank == 0) {
		CHECK(ct__rings_start(r, &q) == CT_OK && q.done);
		CHECK(ct__rings_start(r, &other) == CT_OK && other.done);
	}
	meet(w, "sent");
	if (c.rank == 1 && early) {
		CHECK(ct__rings_start(r, &other) == CT_OK);
		finish(r, &other);
	}
	if (c.rank == 1)
		CHECK(ct__rings_start(r, &q) == CT_MISMATCH && strstr(ct_error_message(), "size"));
	meet(w, "compared");
	ct__rings_close(r);
}

static void two_hosts(struct ct_world *w, void *arg)
{
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	struct ct_ring_request q = {.peer = c.rank == 0 ? 2 : 0, .sending = c.rank == 0};
	int x = c.rank;

	(void)arg;
	CHECK((r != NULL) == (c.rank != 1)); /* rank 1 is alone */
	CHECK(!ct__rings_reach(r, 1));
	if (r) {
		CHECK(ct__rings_reach(r, q.peer));
		q.buf = &x;
		q.bytes = sizeof(x);
		CHECK(ct__rings_start(r, &q) == CT_OK);
		finish(r, &q);
		CHECK(x == 0);
	}
	meet(w, "sent");
	ct__rings_close(r);
}

/* The first rank cannot allocate memory, so no rank has rings. */
static void no_memory(struct ct_world *w, void *arg)
{
	const struct rlimit limit = {1024, 1024};
	struct ct_comm c = comm_of(w);

	(void)arg;
	if (c.rank == 0) {
		signal(SIGXFSZ, SIG_IGN);
		CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	}
	CHECK(open_rings(&c) == NULL);
	CHECK(ct_error_message()[0] == '\0');
	meet(w, "opened");
}

/* Limited messages do not wait in the receiver's memory without bound, and do not delay the others. */
static void limited(struct ct_world *w, void *arg)
{
	enum { N = 5 * CT_RING_LIMIT };
	struct ct_comm c = comm_of(w);
	struct ct_rings *r = open_rings(&c);
	struct ct_ring_request q[N];
	int x[N];

	(void)arg;
	for (int k = 0; k < N && c.rank == 0; k++) {
		x[k] = k;
		q[k] = (struct ct_ring_request){
			.buf = &x[k], .bytes = sizeof(x[k]), .key = 1, .peer = 1, .sending = true, .limited = true};
		CHECK(ct__rings_start(r, &q[k]) == CT_OK);
	}
	one(r, &c, 2); /* rank 1 takes as many of them out as it may */
	meet(w, "limited");
	if (c.rank == 0) {
		CHECK(ct__rings_poll(r, 1) == CT_OK);
		CHECK(q[CT_RING_LIMIT - 1].done && !q[CT_RING_LIMIT].done);
	}
	meet(w, "checked");
	/* Both ranks continue at the same time, and the order does not change. */
	for (int k = 0; k < N && c.rank == 0; k++)
		finish(r, &q[k]);
	for (int k = 0; k < N && c.rank == 1; k++) {
		struct ct_ring_request receive = {.buf = &x[k], .bytes = sizeof(x[k]), .key = 1};

		CHECK(ct__rings_start(r, &receive) == CT_OK);
		finish(r, &receive);
		CHECK(x[k] == k);
	}
	meet(w, "received");
	ct__rings_close(r);
}

/* The last rank never opens the rings. The others name it. */
static void late(struct ct_world *w, void *arg)
{
	struct ct_comm c = comm_of(w);
	struct ct_rings *r;
	char who[32];

	(void)arg;
	snprintf(who, sizeof(who), "rank %d (pid", c.size - 1);
	if (c.rank < c.size - 1) {
		CHECK(ct__rings_open(&c, 200 * CT_MS, &r) == CT_TIMEOUT && !r);
		CHECK(strstr(ct_error_message(), who) && strstr(ct_error_message(), "within 0.2 s"));
	}
	meet(w, "waited");
}

static bool hide_proc(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", "/proc", "tmpfs", 0, NULL) == 0;
}

/* Rank 1 cannot see the processes of this host, so no rank has rings. */
static void no_proc(struct ct_world *w, void *arg)
{
	struct ct_comm c = comm_of(w);

	(void)arg;
	CHECK(c.rank != 1 || hide_proc());
	CHECK(open_rings(&c) == NULL);
	CHECK(c.rank != 1 || umount2("/proc", MNT_DETACH) == 0); /* sanitizers read it */
	meet(w, "opened");
}

/* ---- whether ranks have a CPU each */

static struct ct_rank_cpus cpus_of(int first, int n, int quota)
{
	struct ct_rank_cpus c = {.quota = quota};

	for (int i = 0; i < n; i++)
		CPU_SET(first + i, &c.cpus);
	return c;
}

static void test_cpus(void **state)
{
	static const struct {
		int first[2], n[2], quota[2], enough;
	} cases[] = {
		{{0, 0}, {4, 4}, {0, 0}, 4},                               /* the same CPUs */
		{{0, 1}, {1, 1}, {0, 0}, 2},                               /* bound to a core each */
		{{0, 0}, {1, 1}, {0, 0}, 1},                               /* bound to the same core */
		{{0, 1}, {1, 1}, {0, 1}, 1},                               /* bound, with a quota */
		{{0, 0}, {8, 8}, {6, 3}, 3}, {{0, 0}, {2, 2}, {16, 0}, 2}, /* the quota is larger */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ct_rank_cpus all = {.quota = 0};

		for (int k = 0; k < 2; k++) {
			const struct ct_rank_cpus one = cpus_of(cases[i].first[k], cases[i].n[k], cases[i].quota[k]);

			ct__comm_add_cpus(&all, &one);
		}
		assert_true(ct__comm_has_cpus(&all, cases[i].enough));
		assert_false(ct__comm_has_cpus(&all, cases[i].enough + 1));
	}
}

static void test_exchange(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, exchange, NULL, NULL), 0);
	assert_int_equal(run_ranks(4, NULL, exchange, NULL, NULL), 0);
}

static void test_order(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, receives_first, NULL, NULL), 0);
}

static void test_full(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, full, NULL, NULL), 0);
}

static void test_wrong_size(void **state)
{
	(void)state;
	for (int early = 0; early < 2; early++)
		assert_int_equal(run_ranks(2, NULL, wrong_size, &(bool){early}, NULL), 0);
}

static void test_hosts(void **state)
{
	static const int nodes[] = {0, 1, 0};

	(void)state;
	assert_int_equal(run_ranks(3, nodes, two_hosts, NULL, NULL), 0);
}

static void test_no_memory(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(3, NULL, no_memory, NULL, NULL), 0);
}

static void test_limit(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, limited, NULL, NULL), 0);
}

static void test_late(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, late, NULL, NULL), 0);
	assert_int_equal(run_ranks(3, NULL, late, NULL, NULL), 0);
}

static void test_no_proc(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0)
		_exit(!hide_proc());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0) {
		printf("this case must mount a file system, which needs CAP_SYS_ADMIN\n");
		skip();
	}
	assert_int_equal(run_ranks(3, NULL, no_proc, NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange),   cmocka_unit_test(test_order), cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong_size), cmocka_unit_test(test_hosts), cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_limit),      cmocka_unit_test(test_late),  cmocka_unit_test(test_no_proc),
		cmocka_unit_test(test_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
