/* Collectives posted to the streams of the device for tests: in stream order, one at a time, ended by a lost peer. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/dist/await_all.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"
#include "tests/dist/stream_rig.h"

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

static void test_recorded(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 5; seed++) {
		play("self", 1, NULL, LONG, recorded, seed, 0, NULL);
		play("shm", 2, NULL, LONG, recorded, seed, 0, NULL);
		play("shm", 3, NULL, LONG, recorded, seed, 0, NULL);
	}
}

/* The last rank ends in the middle. The others notice it long before the timeout of a collective, which is longer than
 * that of the test. */
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
