/* Collectives that are posted to streams of GPUs and staged in pinned memory, on the software GPU: every type and
 * reduction, in parts, and recorded. nccl/test_comm_gpu.c tests ranks that end, stop or disagree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"
#include "dist/comm/comm.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { BYTES = 8 * 3000, STAGE = 4096 };

struct rig {
	ct_comm *c;
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e;
	unsigned char *x, *host, *want; /* [BYTES] device memory, pinned memory, heap memory */
};

static struct rig open_rig(struct ct_world *w, const struct scene *s)
{
	struct rig r = {.c = open_comm(w, s)};
	void *p;

	soft_gpu_set_seed((uint64_t)(s->variant * MAX_RANKS + w->id.rank));
	CHECK(ct__device_cuda_ops.open(0, &r.d) == CT_OK);
	CHECK(ct_stream_create(r.d, false, &r.a) == CT_OK);
	CHECK(ct_stream_create(r.d, true, &r.b) == CT_OK);
	CHECK(ct_event_create(r.d, false, &r.e) == CT_OK);
	CHECK(ct_device_mem_alloc(r.d, BYTES, true, &p) == CT_OK);
	r.x = p;
	CHECK(ct_device_host_alloc(r.d, BYTES, &p) == CT_OK);
	r.host = p;
	r.want = ct_calloc(1, BYTES);
	CHECK(r.want);
	CHECK(ct_comm_is_staged(r.c, r.d) == (w->id.world > 1));
	CHECK(ct_comm_stage(r.c, r.d, STAGE) == CT_OK);
	return r;
}

static void close_rig(struct rig *r)
{
	ct_comm_close(r->c);
	ct_free(r->want);
	ct_device_host_free(r->d, r->host);
	ct_device_mem_free(r->d, r->x);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
	CHECK(soft_gpu_live() == 0);
}

static void hand_over(struct rig *r, ct_stream *from, ct_stream *to)
{
	CHECK(ct_event_record(r->e, from) == CT_OK);
	CHECK(ct_stream_wait_event(to, r->e) == CT_OK);
}

/* Integers from 0 to 7, which differ between ranks. */
static void fill(struct rig *r, enum ct_dtype t, size_t n, unsigned key)
{
	static const uint16_t bf16[8] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
	static const uint16_t f16[8] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
	void *p = r->host;

	for (size_t i = 0; i < n; i++) {
		const unsigned v = (unsigned)(i * 7 + i / 11 + key * 5) % 8;

		switch (t) {
		case CT_F32:
			((float *)p)[i] = (float)v;
			break;
		case CT_F64:
			((double *)p)[i] = (double)v;
			break;
		case CT_I32:
			((int32_t *)p)[i] = (int32_t)v;
			break;
		case CT_I64:
			((int64_t *)p)[i] = (int64_t)v;
			break;
		case CT_BF16:
			((uint16_t *)p)[i] = bf16[v];
			break;
		case CT_F16:
			((uint16_t *)p)[i] = f16[v];
			break;
		default:
			((uint8_t *)p)[i] = (uint8_t)v;
		}
	}
	memcpy(r->want, p, n * ct_dtype_bytes(t));
}

static void upload(struct rig *r, size_t bytes, ct_stream *s)
{
	CHECK(ct_device_copy(r->d, r->x, r->host, bytes, s) == CT_OK);
}

/* Compares device memory with r->want. */
static void expect(struct rig *r, size_t bytes, ct_stream *s)
{
	CHECK(ct_device_copy(r->d, r->host, r->x, bytes, s) == CT_OK);
	CHECK(ct_stream_sync(s, CT_FOREVER) == CT_OK);
	CHECK(memcmp(r->host, r->want, bytes) == 0);
}

/* The results are those of the communicator's own collectives on host memory. */
static void equal_to_host(struct ct_world *world, void *arg)
{
	static const size_t sizes[] = {0, 1, 511, 3000};
	struct rig r = open_rig(world, arg);

	for (int t = 0; t < CT_N_DTYPES; t++) {
		for (int k = 0; k < 2 * CT_AVG; k++) {
			const size_t n = sizes[(t + k) % 4], bytes = n * ct_dtype_bytes((enum ct_dtype)t);
			const int root = k % world->id.world;
			ct_work *w;

			fill(&r, (enum ct_dtype)t, n, (unsigned)(world->id.rank + k));
			upload(&r, bytes, r.a);
			if (k < CT_AVG) {
				CHECK(run(ct_comm_allreduce(r.c, r.want, n, (enum ct_dtype)t, (enum ct_redop)k, &w), &w) == CT_OK);
				CHECK(ct_comm_post_allreduce(r.c, r.x, n, (enum ct_dtype)t, (enum ct_redop)k, r.a) == CT_OK);
			} else {
				CHECK(run(ct_comm_broadcast(r.c, r.want, n, (enum ct_dtype)t, root, &w), &w) == CT_OK);
				CHECK(ct_comm_post_broadcast(r.c, r.x, n, (enum ct_dtype)t, root, r.a) == CT_OK);
			}
			expect(&r, bytes, r.a);
		}
	}
	close_rig(&r);
}

static void test_equal_to_host(void **state)
{
	(void)state;
	play("self", 1, NULL, LONG, equal_to_host, 1, 0, NULL);
	play("shm", 2, NULL, LONG, equal_to_host, 1, 0, NULL);
	play("shm", 3, NULL, LONG, equal_to_host, 2, 0, NULL);
	if (!comm_built("gloo"))
		return;
	play("gloo", 3, NULL, LONG, equal_to_host, 3, 0, NULL);
	play("hier", 3, two_hosts, LONG, equal_to_host, 4, 0, NULL);
}

/* Sums on two streams, ordered by events. */
static void post_sums(struct rig *r)
{
	const size_t n = BYTES / sizeof(float);

	upload(r, BYTES, r->a);
	hand_over(r, r->a, r->b);
	CHECK(ct_comm_post_allreduce(r->c, r->x, n, CT_F32, CT_SUM, r->b) == CT_OK);
	hand_over(r, r->b, r->a);
	CHECK(ct_comm_post_allreduce(r->c, r->x, n, CT_F32, CT_SUM, r->a) == CT_OK);
}

/* Posted, then recorded and posted again with other input. Nothing is allocated after the first time. */
static void two_streams(struct ct_world *world, void *arg)
{
	struct rig r = open_rig(world, arg);
	const int size = world->id.world, rank = world->id.rank;
	const size_t n = BYTES / sizeof(float);
	ct_recording *recording = NULL;
	uint64_t before = 0;

	for (int i = 0; i < 8; i++) {
		if (i == 4) {
			CHECK(ct_recording_begin(r.a) == CT_OK);
			post_sums(&r);
			CHECK(ct_recording_end(r.a, &recording) == CT_OK);
		}
		if (i == 1 || i == 5)
			before = ct_mem_count();
		for (size_t k = 0; k < n; k++) {
			((float *)(void *)r.host)[k] = (float)(rank + (int)(k % 100) + i);
			((float *)(void *)r.want)[k] =
				(float)(size * (size * ((int)(k % 100) + i) + size * (size - 1) / 2));
		}
		if (recording)
			CHECK(ct_recording_post(recording, r.a) == CT_OK);
		else
			post_sums(&r);
		CHECK(ct_stream_sync(r.a, CT_FOREVER) == CT_OK); /* before the host memory is reused */
		expect(&r, BYTES, r.a);
		CHECK(i != 3 || ct_mem_count() == before);
	}
	CHECK(ct_mem_count() == before);
	ct_recording_destroy(recording);
	close_rig(&r);
}

static void test_two_streams(void **state)
{
	(void)state;
	for (int seed = 1; seed <= 4; seed++)
		play("shm", 2 + seed % 2, NULL, LONG, two_streams, seed, 0, NULL);
	if (comm_built("gloo"))
		play("gloo", 2, NULL, LONG, two_streams, 1, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_to_host),
		cmocka_unit_test(test_two_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
