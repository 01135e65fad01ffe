/* Collectives posted to the streams of the device for tests: in stream order, one at a time, ended by a lost peer. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm.h"
#include "tests/dist/await_all.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

enum { N = 3000 };

struct rig {
	ct_comm *c;
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e;
	float *x, *host; /* [N] device memory, pinned memory */
};

static struct rig open_rig(struct ct_world *w, const struct scene *s)
{
	struct rig r = {.c = open_comm(w, s)};
	char seed[16];
	void *p;

	snprintf(seed, sizeof(seed), "%d", s->variant);
	setenv("CTRAIN_LAZY_SEED", seed, 1);
	CHECK(ct_device_open("lazy", w->id.rank, &r.d) == CT_OK);
	CHECK(ct_stream_create(r.d, false, &r.a) == CT_OK);
	CHECK(ct_stream_create(r.d, true, &r.b) == CT_OK);
	CHECK(ct_event_create(r.d, false, &r.e) == CT_OK);
	CHECK(ct_device_mem_alloc(r.d, N * sizeof(float), true, &p) == CT_OK);
	r.x = p;
	CHECK(ct_device_host_alloc(r.d, N * sizeof(float), &p) == CT_OK);
	r.host = p;
	return r;
}

static void close_rig(struct rig *r)
{
	ct_device_host_free(r->d, r->host);
	ct_device_mem_free(r->d, r->x);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
	ct_comm_close(r->c);
}

static void hand_over(struct rig *r, ct_stream *from, ct_stream *to)
{
	CHECK(ct_event_record(r->e, from) == CT_OK);
	CHECK(ct_stream_wait_event(to, r->e) == CT_OK);
}

/* Two collectives on two streams, ordered by events, several times. Nothing is allocated after the first time. */
static void sums(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	int size = world->id.world, rank = world->id.rank;
	uint64_t before = 0;

	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < N; k++)
			r.host[k] = (float)(rank + k % 100 + i);
		CHECK(ct_device_copy(r.d, r.x, r.host, N * sizeof(float), r.a) == CT_OK);
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
		hand_over(&r, r.a, r.b);
		CHECK(ct_comm_post_broadcast(r.c, r.x, 10, CT_F32, size - 1, r.b) == CT_OK);
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.b) == CT_OK);
		hand_over(&r, r.b, r.a);
		CHECK(ct_device_copy(r.d, r.host, r.x, N * sizeof(float), r.a) == CT_OK);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_OK);
		for (int k = 0; k < N; k++)
			CHECK(r.host[k] == (float)(size * (size * (k % 100 + i) + size * (size - 1) / 2)));
		if (i == 1)
			before = ct_mem_count();
	}
	CHECK(ct_mem_count() == before);
	close_rig(&r);
}

static void test_sums(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 5; seed++) {
		play("self", 1, NULL, LONG, sums, seed, 0, NULL);
		play("shm", 2, NULL, LONG, sums, seed, 0, NULL);
		play("shm", 3, NULL, LONG, sums, seed, 0, NULL);
	}
	if (comm_built("gloo"))
		play("gloo", 2, NULL, LONG, sums, 1, 0, NULL);
}

/* The same collectives recorded once and posted again with other input. */
static void recorded(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	int size = world->id.world, rank = world->id.rank;
	ct_recording *rec;

	CHECK(ct_recording_begin(r.a) == CT_OK);
	CHECK(ct_device_copy(r.d, r.x, r.host, N * sizeof(float), r.a) == CT_OK);
	hand_over(&r, r.a, r.b);
	CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.b) == CT_OK);
	hand_over(&r, r.b, r.a);
	CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
	CHECK(ct_device_copy(r.d, r.host, r.x, N * sizeof(float), r.a) == CT_OK);
	CHECK(ct_recording_end(r.a, &rec) == CT_OK);
	CHECK(ct_comm_seq(r.c) == (size > 1)); /* the barrier of the open: recording a collective does not begin it */
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < N; k++)
			r.host[k] = (float)(rank + k % 100 + i);
		CHECK(ct_recording_post(rec, r.a) == CT_OK);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_OK);
		for (int k = 0; k < N; k++)
			CHECK(r.host[k] == (float)(size * (size * (k % 100 + i) + size * (size - 1) / 2)));
	}
	ct_recording_destroy(rec);
	close_rig(&r);
}

static void test_recorded(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 5; seed++) {
		play("self", 1, NULL, LONG, recorded, seed, 0, NULL);
		play("shm", 2, NULL, LONG, recorded, seed, 0, NULL);
		play("shm", 3, NULL, LONG, recorded, seed, 0, NULL);
	}
}

/* The last rank ends in the middle. The others notice it long before the timeout of a collective, which is longer than that of the
 * test. */
static void killed(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	int last = world->id.world - 1;
	enum ct_status st = CT_OK;
	char name[32];

	for (int i = 0; st == CT_OK; i++) {
		CHECK(ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a) == CT_OK);
		if (world->id.rank == last && i == 3)
			raise(SIGKILL);
		st = ct_stream_sync(r.a, CT_FOREVER);
	}
	CHECK(st == CT_PEER_LOST);
	snprintf(name, sizeof(name), "rank %d ", last);
	CHECK(says(name) || world->id.world > 2);
	close_rig(&r);
}

static void test_killed(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 3; seed++) {
		play("shm", 2, NULL, 3600 * CT_SEC, killed, seed, 1, NULL);
		play("shm", 3, NULL, 3600 * CT_SEC, killed, seed, 1, NULL);
	}
}

/* Streams that are not ordered: ranks could disagree about which collective is first. */
static void unordered(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);

	if (world->id.rank == 0) {
		CHECK(ct_comm_post_allreduce(r.c, r.x, 10, CT_F32, CT_SUM, r.a) == CT_OK);
		CHECK(ct_comm_post_allreduce(r.c, r.x + 10, 20, CT_F32, CT_SUM, r.b) == CT_OK);
		CHECK(ct_device_sync(r.d, CT_FOREVER) == CT_BUG);
		CHECK(says("began in a stream while allreduce sum f32["));
	}
	CHECK(await_all(world->store, "end", world->id.world) == CT_OK);
	close_rig(&r);
}

static void test_unordered(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 3; seed++)
		play("shm", 2, NULL, LONG, unordered, seed, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_recorded),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_unordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
