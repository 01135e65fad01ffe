/* Collectives of NCCL in streams, posted and recorded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_recorded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
