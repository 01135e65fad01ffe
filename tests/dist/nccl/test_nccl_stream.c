/* Collectives of NCCL in streams, posted and recorded, and what waits of the host return when another rank is lost. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "dist/watchdog.h"
#include "tests/dist/await_all.h"
#include "tests/dist/nccl/gpu_rig.h"

/* variant: seed of the execution order */
static struct rig open_seeded(struct ct_world *w, const struct scene *s)
{
	char seed[16];

	snprintf(seed, sizeof(seed), "%d", s->variant);
	setenv("SOFT_GPU_SEED", seed, 1);
	return open_rig(w, s);
}

static void fill(struct rig *r, int rank, int round)
{
	for (int k = 0; k < N; k++)
		r->host[k] = (float)(rank + k % 100 + round);
}

/* After two sums over all ranks. */
static void check_sums(const struct rig *r, int size, int round)
{
	for (int k = 0; k < N; k++)
		CHECK(r->host[k] == (float)(size * (size * (k % 100 + round) + size * (size - 1) / 2)));
}

/* Collectives on two streams, ordered by events, several times. */
static void sums(struct ct_world *world, void *arg)
{
	struct rig r = open_seeded(world, arg);
	int size = world->id.world;

	for (int i = 0; i < 5; i++) {
		fill(&r, world->id.rank, i);
		CHECK(ct_device_copy(r.d, r.x, r.host, N * sizeof(float), r.a) == CT_OK);
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
		hand_over(&r, r.a, r.b);
		CHECK(ct_comm_post_broadcast(r.c, r.x, 10, CT_F32, size - 1, r.b) == CT_OK);
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.b) == CT_OK);
		hand_over(&r, r.b, r.a);
		CHECK(ct_device_copy(r.d, r.host, r.x, N * sizeof(float), r.a) == CT_OK);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_OK);
		check_sums(&r, size, i);
	}
	close_rig(&r);
}

static void test_sums(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 3; seed++) {
		play("nccl", 2, NULL, LONG, sums, seed, 0, NULL);
		play("nccl", 3, NULL, LONG, sums, seed, 0, NULL);
	}
}

/* The same collectives recorded once and posted again with other input, between others that are not recorded. */
static void recorded(struct ct_world *world, void *arg)
{
	struct rig r = open_seeded(world, arg);
	int size = world->id.world, one;
	ct_recording *rec;
	ct_work *w;

	CHECK(ct_recording_begin(r.a) == CT_OK);
	CHECK(ct_device_copy(r.d, r.x, r.host, N * sizeof(float), r.a) == CT_OK);
	hand_over(&r, r.a, r.b);
	CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.b) == CT_OK);
	hand_over(&r, r.b, r.a);
	CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
	CHECK(ct_device_copy(r.d, r.host, r.x, N * sizeof(float), r.a) == CT_OK);
	CHECK(ct_recording_end(r.a, &rec) == CT_OK);
	for (int i = 0; i < 5; i++) {
		fill(&r, world->id.rank, i);
		CHECK(ct_recording_post(rec, r.a) == CT_OK);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_OK);
		check_sums(&r, size, i);
		one = 1;
		CHECK(run(ct_comm_allreduce(r.c, &one, 1, CT_I32, CT_SUM, &w), &w) == CT_OK && one == size);
	}
	ct_recording_destroy(rec);
	close_rig(&r);
}

static void test_recorded(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 3; seed++) {
		play("nccl", 2, NULL, LONG, recorded, seed, 0, NULL);
		play("nccl", 3, NULL, LONG, recorded, seed, 0, NULL);
	}
}

/* The last rank ends, or is stopped, in the middle. */
static enum ct_status lose_last(struct ct_world *world, struct rig *r, int sig)
{
	enum ct_status st = CT_OK;

	for (int i = 0; st == CT_OK; i++) {
		st = ct_comm_post_allreduce(r->c, r->x, N, CT_F32, CT_SUM, r->a);
		if (world->id.rank == world->id.world - 1 && i == 3)
			raise(sig);
		if (st == CT_OK)
			st = ct_stream_sync(r->a, CT_FOREVER);
	}
	return st;
}

static void killed(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	char name[32];

	CHECK(lose_last(world, &r, SIGKILL) == CT_PEER_LOST);
	snprintf(name, sizeof(name), "rank %d ", world->id.world - 1);
	CHECK(says(name));
	close_rig(&r);
}

static void test_killed(void **state)
{
	(void)state;
	play("nccl", 2, NULL, 3600 * CT_SEC, killed, 0, 1, NULL);
	play("nccl", 3, NULL, 3600 * CT_SEC, killed, 0, 1, NULL);
}

static void stopped(struct ct_world *world, void *arg)
{
	ct_watchdog *dog;
	enum ct_status st;
	struct rig r;

	CHECK(ct_watchdog_start(world, &dog) == CT_OK);
	r = open_rig(world, arg);
	ct_watchdog_add_comm(dog, r.c);
	st = lose_last(world, &r, SIGSTOP);
	CHECK(st == CT_TIMEOUT && says("has not finished within 1.0 s; rank 1 (pid"));
	((struct scene *)arg)->outcome[world->id.rank] = st;
	ct_watchdog_remove_comm(dog, r.c);
	close_rig(&r);
	ct_watchdog_stop(dog);
}

static void test_stopped(void **state)
{
	int outcome[MAX_RANKS];

	(void)state;
	play("nccl", 2, NULL, CT_SEC, stopped, 0, 1, outcome);
	assert_int_equal(outcome[0], CT_TIMEOUT);
}

static void *abort_it(void *arg)
{
	struct ct_failure why = {.rank = 7,
				 .pid = 4711,
				 .host = "nowhere",
				 .status = CT_NUMERIC,
				 .phase = "step 12",
				 .message = "loss is not finite"};

	ct_comm_abort(arg, &why);
	return NULL;
}

/* The abort ends the work of the stream, but its result is wrong, so the wait must fail. */
static void aborted(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	struct ct_thread t = {0};

	if (world->id.rank == 0) {
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
		CHECK(ct_thread_start(&t, "aborter", abort_it, r.c) == CT_OK);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_NUMERIC);
		CHECK(says("rank 7 (pid 4711 on host nowhere) failed in step 12: loss is not finite"));
		ct_thread_join(&t);
		ct_device_drain(r.d);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_NUMERIC);
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_NUMERIC);
		is_dead(r.c, CT_NUMERIC);
	}
	CHECK(await_all(world->store, "end", world->id.world) == CT_OK);
	close_rig(&r);
}

static void test_aborted(void **state)
{
	(void)state;
	play("nccl", 2, NULL, LONG, aborted, 0, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),    cmocka_unit_test(test_recorded), cmocka_unit_test(test_killed),
		cmocka_unit_test(test_stopped), cmocka_unit_test(test_aborted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
