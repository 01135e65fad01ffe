/* Gradients that real ranks sum in 16-bit types, over each communicator: the sums have the same bits on all ranks. shm
 * rounds them once; gloo also rounds the sums of some of the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "dist/reducer.h"
#include "tests/dist/ranks.h"

enum { N = 1000 };

static enum ct_status convert(void *user, void *to, enum ct_dtype to_type, const void *from, enum ct_dtype from_type,
			      size_t n, ct_stream *s)
{
	(void)user;
	CHECK(s && (to_type == CT_F32) != (from_type == CT_F32));
	for (size_t i = 0; i < n; i++) {
		if (to_type == CT_BF16)
			((uint16_t *)to)[i] = ct_bf16_from_f32(((const float *)from)[i]);
		else if (to_type == CT_F16)
			((uint16_t *)to)[i] = ct_f16_from_f32(((const float *)from)[i]);
		else if (from_type == CT_BF16)
			((float *)to)[i] = ct_bf16_to_f32(((const uint16_t *)from)[i]);
		else
			((float *)to)[i] = ct_f16_to_f32(((const uint16_t *)from)[i]);
	}
	return CT_OK;
}

struct typed {
	const char *backend;
	const int *nodes;
	enum ct_dtype type;
	bool once;
};

static void train(struct ct_world *world, void *arg)
{
	const struct typed *t = arg;
	const int size = world->id.world, rank = world->id.rank;
	const struct ct_bucket one = {.n = N, .dtype = t->type, .n_slices = 1};
	const struct ct_comm_opts o = {.timeout_ns = 60 * CT_SEC};
	struct ct_reducer_opts ro = {.convert = convert, .buckets = &one, .n_buckets = 1};
	float sums[N], low[N], high[N];
	/* A number of f16 has 11 significant bits, one of bf16 has 8. */
	const float large = t->type == CT_BF16 ? 256 : 2048, unit = 1 / large;
	ct_device *device;
	ct_reducer *r;
	ct_work *w;
	ct_comm *c;

	CHECK(ct_comm_open(t->backend, world, &o, &c) == CT_OK);
	CHECK(ct_comm_mem_alloc(c, N * sizeof(uint16_t), &ro.memory[t->type]) == CT_OK);
	CHECK(ct_device_open("cpu", 0, &device) == CT_OK);
	CHECK(ct_stream_create(device, false, &ro.compute) == CT_OK);
	ro.memory[CT_F32] = sums;
	CHECK(ct_reducer_create(c, &ro, &r) == CT_OK);
	for (int i = 0; i < N; i++)
		sums[i] = (float)(i % 16 + 1) * (rank == i % size ? large : 1);
	ct_reducer_begin(r, true);
	CHECK(ct_reducer_ready(r, 0) == CT_OK);
	CHECK(ct_reducer_finish(r) == CT_OK);
	memcpy(low, sums, sizeof(sums));
	memcpy(high, sums, sizeof(sums));
	CHECK(ct_comm_allreduce(c, low, N, CT_F32, CT_MIN, &w) == CT_OK && ct_work_wait(w) == CT_OK);
	CHECK(ct_comm_allreduce(c, high, N, CT_F32, CT_MAX, &w) == CT_OK && ct_work_wait(w) == CT_OK);
	for (int i = 0; i < N; i++) {
		const float sum = (float)(i % 16 + 1) * (large + (float)size - 1), error = sums[i] / sum - 1;
		const float bound = (t->once ? 2 : (float)size + 1) * unit; /* the addends are rounded, too */

		CHECK(low[i] == high[i]);
		CHECK(error < bound && -error < bound);
		if (t->once && i == 0)
			CHECK(sums[i] == (size == 2 ? large : size == 3 ? large + 2 : large + 4));
	}
	ct_reducer_destroy(r);
	ct_stream_destroy(ro.compute);
	ct_device_close(device);
	ct_comm_close(c);
}

static void test_same_bits(void **state)
{
	static const int two_hosts[] = {0, 0, 1, 1};
	static const enum ct_dtype types[] = {CT_BF16, CT_F16};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		for (int size = 2; size <= 4; size++) {
			struct typed shm = {"shm", NULL, types[i], true}, gloo = {"gloo", NULL, types[i], false};

			assert_int_equal(run_ranks(size, NULL, train, &shm, NULL), 0);
			if (comm_built("gloo"))
				assert_int_equal(run_ranks(size, NULL, train, &gloo, NULL), 0);
		}
		if (comm_built("gloo")) {
			struct typed hier = {"hier", two_hosts, types[i], false};

			assert_int_equal(run_ranks(4, two_hosts, train, &hier, NULL), 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
