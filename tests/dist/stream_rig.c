#include "tests/dist/stream_rig.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { ROUNDS = 5, STAGE = 4096 };

void open_device(struct ct_world *w, const struct scene *s, struct rig *r)
{
	void *p;

	memset(r, 0, sizeof(*r));
	CHECK(ct_device_open(s->gpu ? "cuda" : "lazy", w->id.rank, &r->d) == CT_OK);
	CHECK(ct_stream_create(r->d, false, &r->a) == CT_OK);
	CHECK(ct_stream_create(r->d, true, &r->b) == CT_OK);
	CHECK(ct_event_create(r->d, false, &r->e) == CT_OK);
	CHECK(ct_device_mem_alloc(r->d, N * sizeof(float), true, &p) == CT_OK);
	r->x = p;
	CHECK(ct_device_host_alloc(r->d, N * sizeof(float), &p) == CT_OK);
	r->host = p;
}

enum ct_status open_comm_of(struct ct_world *w, const struct scene *s, struct rig *r)
{
	struct ct_comm_opts o = {.timeout_ns = s->timeout_ns, .device = r->d};

	CT_TRY(ct_comm_open(s->backend, w, &o, &r->c));
	return ct_comm_stage(r->c, r->d, STAGE);
}

struct rig open_rig(struct ct_world *w, const struct scene *s)
{
	char seed[16];
	struct rig r;

	snprintf(seed, sizeof(seed), "%d", s->variant);
	setenv(s->gpu ? "SOFT_GPU_SEED" : "CTRAIN_LAZY_SEED", seed, 1);
	open_device(w, s, &r);
	CHECK(open_comm_of(w, s, &r) == CT_OK);
	return r;
}

void close_rig(struct rig *r)
{
	ct_comm_close(r->c);
	ct_device_drain(r->d);
	ct_device_host_free(r->d, r->host);
	ct_device_mem_free(r->d, r->x);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
}

static void hand_over(struct rig *r, ct_stream *from, ct_stream *to)
{
	CHECK(ct_event_record(r->e, from) == CT_OK);
	CHECK(ct_stream_wait_event(to, r->e) == CT_OK);
}

/* ---- two sums on two streams */

static void post_sums(struct rig *r, int size)
{
	CHECK(ct_device_copy(r->d, r->x, r->host, N * sizeof(float), r->a) == CT_OK);
	hand_over(r, r->a, r->b);
	CHECK(ct_comm_post_allreduce(r->c, r->x, N, CT_F32, CT_SUM, r->b) == CT_OK);
	CHECK(ct_comm_post_broadcast(r->c, r->x, 10, CT_F32, size - 1, r->b) == CT_OK);
	hand_over(r, r->b, r->a);
	CHECK(ct_comm_post_allreduce(r->c, r->x, N, CT_F32, CT_SUM, r->a) == CT_OK);
	CHECK(ct_device_copy(r->d, r->host, r->x, N * sizeof(float), r->a) == CT_OK);
}

static void fill(struct rig *r, int rank, int round)
{
	for (int k = 0; k < N; k++)
		r->host[k] = (float)(rank + k % 100 + round);
}

static void check_sums(struct rig *r, int size, int round)
{
	CHECK(ct_stream_sync(r->a, CT_FOREVER) == CT_OK);
	for (int k = 0; k < N; k++)
		CHECK(r->host[k] == (float)(size * (size * (k % 100 + round) + size * (size - 1) / 2)));
}

void sums(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	uint64_t before = 0;

	for (int i = 0; i < ROUNDS; i++) {
		fill(&r, world->id.rank, i);
		post_sums(&r, world->id.world);
		check_sums(&r, world->id.world, i);
		if (i == 1)
			before = ct_mem_count();
	}
	CHECK(ct_mem_count() == before); /* nothing is allocated after the first times */
	close_rig(&r);
}

void recorded(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct rig r = open_rig(world, s);
	const int64_t first = ct_comm_seq(r.c);
	int size = world->id.world, one;
	int64_t n_each = 0;
	ct_comm_recorded *collectives;
	ct_recording *rec;
	ct_work *w;

	CHECK(ct_recording_begin(r.a) == CT_OK);
	post_sums(&r, size);
	CHECK(ct_recording_end(r.a, &rec) == CT_OK);
	CHECK(ct_comm_recorded_create(r.c, first, &collectives) == CT_OK);
	CHECK(ct_comm_seq(r.c) == first); /* recording a collective neither begins nor counts it */
	for (int i = 0; i < ROUNDS; i++) {
		fill(&r, world->id.rank, i);
		ct_comm_recorded_count(collectives);
		CHECK(ct_recording_post(rec, r.a) == CT_OK);
		check_sums(&r, size, i);
		one = 1; /* between the recorded ones, another one that is not recorded */
		CHECK(run(ct_comm_allreduce(r.c, &one, 1, CT_I32, CT_SUM, &w), &w) == CT_OK && one == size);
		if (i == 0)
			n_each = ct_comm_seq(r.c) - first;
		CHECK((size == 1 || n_each >= 4) && ct_comm_seq(r.c) - first == (i + 1) * n_each);
	}
	ct_comm_recorded_destroy(collectives);
	ct_recording_destroy(rec);
	close_rig(&r);
}
