/* Collectives that are posted to streams of GPUs and staged in pinned memory, on the software GPU: every type and
 * reduction, also in parts. nccl/test_gpu_stream.c tests several streams and recordings, and nccl/test_comm_gpu.c ranks
 * that end, stop or disagree. */
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
#include "tests/dist/elements.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { BYTES = 8 * 3000, STAGE = 4096 };

struct rig {
	ct_comm *c;
	ct_device *d;
	ct_stream *stream;
	unsigned char *x, *host, *want; /* [BYTES] device memory, pinned memory, heap memory */
};

static struct rig open_rig(struct ct_world *w, const struct scene *s)
{
	struct rig r = {.c = open_comm(w, s)};
	void *p;

	soft_gpu_set_seed((uint64_t)(s->variant * MAX_RANKS + w->id.rank));
	CHECK(ct__device_cuda_ops.open(0, &r.d) == CT_OK);
	CHECK(ct_stream_create(r.d, false, &r.stream) == CT_OK);
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
	ct_stream_destroy(r->stream);
	ct_device_close(r->d);
	CHECK(soft_gpu_live() == 0);
}

/* Integers from 0 to 7, which differ between ranks. */
static void fill(struct rig *r, enum ct_dtype t, size_t n, unsigned key)
{
	for (size_t i = 0; i < n; i++)
		put(r->host, t, i, (double)((i * 7 + i / 11 + key * 5) % 8));
	memcpy(r->want, r->host, n * ct_dtype_bytes(t));
}

static void upload(struct rig *r, size_t bytes)
{
	CHECK(ct_device_copy(r->d, r->x, r->host, bytes, r->stream) == CT_OK);
}

/* Compares device memory with r->want. */
static void expect(struct rig *r, size_t bytes)
{
	CHECK(ct_device_copy(r->d, r->host, r->x, bytes, r->stream) == CT_OK);
	CHECK(ct_stream_sync(r->stream, CT_FOREVER) == CT_OK);
	CHECK(memcmp(r->host, r->want, bytes) == 0);
}

/* One all-reduce, or a broadcast if op is past the last reduction. The result is that of the communicator's own
 * collective on host memory. */
static void compare(struct rig *r, enum ct_dtype t, size_t n, int op, struct ct_world *world)
{
	const size_t bytes = n * ct_dtype_bytes(t);
	const int root = (int)n % world->id.world;
	ct_work *w;

	fill(r, t, n, (unsigned)(world->id.rank + op));
	upload(r, bytes);
	if (op <= CT_AVG) {
		CHECK(run(ct_comm_allreduce(r->c, r->want, n, t, (enum ct_redop)op, &w), &w) == CT_OK);
		CHECK(ct_comm_post_allreduce(r->c, r->x, n, t, (enum ct_redop)op, r->stream) == CT_OK);
	} else {
		CHECK(run(ct_comm_broadcast(r->c, r->want, n, t, root, &w), &w) == CT_OK);
		CHECK(ct_comm_post_broadcast(r->c, r->x, n, t, root, r->stream) == CT_OK);
	}
	expect(r, bytes);
}

static void equal_to_host(struct ct_world *world, void *arg)
{
	static const size_t sizes[] = {0, 1, 511, 3000};
	struct rig r = open_rig(world, arg);

	for (int t = 0; t < CT_N_DTYPES; t++) {
		for (int op = CT_SUM; op <= CT_AVG + 1; op++) {
			for (size_t k = 0; k < CT_ARRAY_LEN(sizes); k++)
				compare(&r, (enum ct_dtype)t, sizes[k], op, world);
		}
	}
	close_rig(&r);
}

static void test_equal_to_host(void **state)
{
	(void)state;
	play("self", 1, NULL, LONG, equal_to_host, 1, 0, NULL);
	play("shm", 2, NULL, LONG, equal_to_host, 1, 0, NULL);
	play("shm", 4, NULL, LONG, equal_to_host, 2, 0, NULL);
	if (!comm_built("gloo"))
		return;
	play("gloo", 3, NULL, LONG, equal_to_host, 3, 0, NULL);
	play("hier", 3, two_hosts, LONG, equal_to_host, 4, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_to_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
