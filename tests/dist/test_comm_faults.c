/* The errors of communicators when ranks die, are stopped, are late or abort. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "tests/dist/await_all.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

/* Holds ranks back until rank 0 lets them go, through the store and not the communicator under test. */
static void release_all(struct ct_world *w, const char *key)
{
	CHECK(ct_store_set(w->store, key, "1", 1) == CT_OK);
}

static void held(struct ct_world *w, const char *key)
{
	char *v;
	size_t len;

	CHECK(ct_store_get(w->store, key, ct_deadline_in(LONG), &v, &len) == CT_OK);
	ct_free(v);
}

/* ---- the end from another thread */

/* The final error is of rank 7, or of the launcher of another host. */
static bool by_launcher;

static void *abort_it(void *arg)
{
	struct ct_failure why = {.rank = 7,
				 .pid = 4711,
				 .host = "nowhere",
				 .status = CT_NUMERIC,
				 .phase = "step 12",
				 .message = "loss is not finite",
				 .hint = "lower the learning rate"};

	if (by_launcher)
		why.rank = -1;
	(void)ct_error_set(CT_IO, __FILE__, __LINE__, "own chain");
	ct_comm_abort(arg, &why);
	CHECK(ct_error_status() == CT_IO);
	return NULL;
}

static void aborted(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	struct ct_thread t = {0};
	enum ct_status st;
	static float x[100000];
	ct_work *w;

	by_launcher = s->variant;
	if (world->id.rank == 0) {
		CHECK(ct_comm_allreduce(c, x, 100000, CT_F32, CT_SUM, &w) == CT_OK);
		CHECK(ct_thread_start(&t, "aborter", abort_it, c) == CT_OK);
		CHECK(ct_work_wait(w) == CT_NUMERIC);
		CHECK(says(by_launcher ? "the launcher (pid 4711 on host nowhere) failed in step 12: loss is not finite"
				       : "rank 7 (pid 4711 on host nowhere) failed in step 12: loss is not finite"));
		CHECK(strstr(ct_error_hint_text(), "lower the learning rate"));
		ct_thread_join(&t);
		is_dead(c, CT_NUMERIC);
		release_all(world, "aborted");
	} else {
		held(world, "aborted");
		st = run(ct_comm_allreduce(c, x, 100000, CT_F32, CT_SUM, &w), &w);
		CHECK(st == CT_PEER_LOST);
	}
	CHECK(await_all(world->store, "end", world->id.world) == CT_OK);
	ct_comm_close(c);
}

static void test_abort(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, aborted, 0, 0, NULL);
	play("shm", 2, NULL, LONG, aborted, 1, 0, NULL);
	if (!comm_built("gloo"))
		return;
	play("gloo", 2, NULL, LONG, aborted, 0, 0, NULL);
	play("hier", 3, two_hosts, LONG, aborted, 0, 0, NULL);
}

/* ---- death, at rest and in the middle of traffic */

static void killed(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	int last = world->id.world - 1, rounds = s->variant;
	static float x[300000];
	enum ct_status st = CT_OK;
	char name[32];
	ct_work *w;

	for (int i = 0; st == CT_OK; i++) {
		if (world->id.rank == last && i == rounds)
			raise(SIGKILL);
		st = run(ct_comm_allreduce(c, x, 300000, CT_F32, CT_SUM, &w), &w);
	}
	CHECK(st == CT_PEER_LOST);
	/* Others leave too when they see it; where gloo is between, one of them may be seen first. */
	snprintf(name, sizeof(name), "rank %d ", last);
	CHECK(says(name) || strcmp(s->backend, "shm") != 0);
	CHECK(says("rank "));
	is_dead(c, st);
	ct_comm_close(c);
}

static void test_killed(void **state)
{
	(void)state;
	for (int rounds = 0; rounds <= 40; rounds += 20) {
		play("shm", 2, NULL, LONG, killed, rounds, 1, NULL);
		play("shm", 4, NULL, LONG, killed, rounds, 1, NULL);
		if (!comm_built("gloo"))
			continue;
		play("gloo", 2, NULL, LONG, killed, rounds, 1, NULL);
		play("gloo", 3, NULL, LONG, killed, rounds, 1, NULL);
		play("hier", 3, two_hosts, LONG, killed, rounds, 1, NULL);
		play("hier", 4, (const int[]){0, 0, 1, 1}, LONG, killed, rounds, 1, NULL);
	}
}

/* ---- silence: a rank stopped by a signal, one that does not come, one that has left */

static void stopped(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	int last = world->id.world - 1;
	enum ct_status st = CT_OK;
	static float x[300000];
	ct_work *w;

	for (int i = 0; st == CT_OK; i++) {
		if (world->id.rank == last && i == 3)
			raise(SIGSTOP);
		st = run(ct_comm_allreduce(c, x, 300000, CT_F32, CT_SUM, &w), &w);
	}
	/* The first to run out of patience ends it for the others. */
	CHECK(st == CT_TIMEOUT || st == CT_PEER_LOST);
	if (st == CT_TIMEOUT)
		CHECK(says("allreduce sum f32[300000]") && (says("for rank 2 (pid") || says("for rank 1 (pid")));
	s->outcome[world->id.rank] = st;
	ct_comm_close(c);
}

static void test_stopped(void **state)
{
	int outcome[MAX_RANKS];

	(void)state;
	play("shm", 2, NULL, CT_SEC, stopped, 0, 1, outcome);
	assert_int_equal(outcome[0], CT_TIMEOUT);
	play("shm", 3, NULL, CT_SEC, stopped, 0, 1, outcome);
	assert_true(outcome[0] == CT_TIMEOUT || outcome[1] == CT_TIMEOUT);
	if (!comm_built("gloo"))
		return;
	play("gloo", 3, NULL, CT_SEC, stopped, 0, 1, outcome);
	assert_true(outcome[0] == CT_TIMEOUT || outcome[1] == CT_TIMEOUT);
	play("hier", 3, two_hosts, CT_SEC, stopped, 0, 1, outcome);
	assert_true(outcome[0] == CT_TIMEOUT || outcome[1] == CT_TIMEOUT);
}

static void late(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	char x[8] = {0};
	ct_work *w;

	if (world->id.rank == 0) {
		if (s->variant)
			CHECK(run(ct_comm_recv(c, x, 8, CT_U8, 1, 0, &w), &w) == CT_TIMEOUT);
		else
			CHECK(barrier(c) == CT_TIMEOUT);
		CHECK(says(s->variant ? "recv u8[8] from rank 1" : "barrier") && says("rank 1 (pid"));
		CHECK(says("not reached it"));
		release_all(world, "late");
	} else {
		/* Rank 0 did issue its barrier; what comes after that fails. */
		held(world, "late");
		while (barrier(c) == CT_OK)
			;
		CHECK(ct_error_status() == CT_PEER_LOST || ct_error_status() == CT_TIMEOUT);
	}
	ct_comm_close(c);
}

static void test_late(void **state)
{
	(void)state;
	for (int v = 0; v < 2; v++) {
		play("shm", 2, NULL, CT_SEC / 4, late, v, 0, NULL);
		if (comm_built("gloo"))
			play("gloo", 2, NULL, CT_SEC / 4, late, v, 0, NULL);
	}
}

static void left(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);

	if (world->id.rank != 1) {
		CHECK(barrier(c) == CT_PEER_LOST);
		CHECK(says("rank "));
	}
	ct_comm_close(c);
	CHECK(await_all(world->store, "end", world->id.world) == CT_OK);
}

/* Rank 1 closes and ends; the other two have business of their own. */
static void left_in_order(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, world->peers[1].pid, 0), .events = POLLIN};
	uint8_t x[8] = {0};
	char *v;
	size_t len;
	ct_work *w;

	if (world->id.rank == 1) {
		ct_comm_close(c);
		return;
	}
	CHECK(p.fd >= 0 && poll(&p, 1, (int)(LONG / CT_MS)) == 1);
	if (world->id.rank == 0) {
		CHECK(run(ct_comm_recv(c, x, 8, CT_U8, 2, 0, &w), &w) == CT_OK);
	} else {
		/* No one sets this key: rank 0 waits long enough to check its peers' processes. */
		CHECK(ct_store_get(world->store, "never", ct_deadline_in(CT_SEC / 5), &v, &len) == CT_TIMEOUT);
		CHECK(run(ct_comm_send(c, x, 8, CT_U8, 0, 0, &w), &w) == CT_OK);
	}
	CHECK(barrier(c) == CT_PEER_LOST);
	CHECK(says("rank 1 (pid") && says("closed the communicator"));
	ct_comm_close(c);
}

static void test_left(void **state)
{
	(void)state;
	play("shm", 3, NULL, LONG, left_in_order, 0, 0, NULL);
	play("shm", 3, NULL, LONG, left, 0, 0, NULL);
	if (comm_built("gloo"))
		play("gloo", 2, NULL, LONG, left, 0, 0, NULL);
}

/* Bytes of memory that this process's shared segment has got. */
static long long segment_bytes(void)
{
	char path[64], target[128];
	struct stat sb;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "memfd:ctrain") && fstat(fd, &sb) == 0)
			return (long long)sb.st_blocks * 512;
	}
	return -1;
}

/* Slots and staging have their memory before the first collective: running out is an error, not SIGBUS in a step. */
static void reserved(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);

	CHECK(segment_bytes() >= 3LL * 2 * (512 << 10) + 3LL * 64 * 2048);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
}

static void test_segment_is_reserved(void **state)
{
	(void)state;
	play("shm", 3, NULL, LONG, reserved, 0, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort), cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_late),  cmocka_unit_test(test_left),   cmocka_unit_test(test_segment_is_reserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
