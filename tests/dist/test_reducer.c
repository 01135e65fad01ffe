/* The reducer over a communicator that records what is posted, delays completion and fails on request; then over a real
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "dist/reducer.h"
#include "tests/dist/ranks.h"

/* ---- the mock: multiplies by ten when an operation completes, `delay` progress calls after it was posted */

#define MAX_EVENTS 256

struct mock {
	struct ct_comm base;
	struct ct_world world;
	ct_work *queue[MAX_EVENTS];
	int left[MAX_EVENTS];
	int n_posted, n_done, delay, fail_at; /* fail_at: which post's wait fails, -1 none */
	void *posted_buf[MAX_EVENTS];
	size_t posted_n[MAX_EVENTS];
};

static enum ct_status mock_post(ct_comm *c, ct_work *w)
{
	struct mock *m = (struct mock *)c;

	assert_int_equal(w->kind, CT_COMM_ALLREDUCE);
	assert_int_equal(w->op, CT_SUM);
	m->queue[m->n_posted] = w;
	m->left[m->n_posted] = m->delay;
	m->posted_buf[m->n_posted] = w->dst;
	m->posted_n[m->n_posted] = w->n;
	m->n_posted++;
	return CT_OK;
}

static void complete(struct mock *m)
{
	ct_work *w = m->queue[m->n_done++];
	float *x = w->dst;
	uint16_t *half = w->dst;

	for (size_t i = 0; i < w->n; i++) {
		if (w->dtype == CT_F32)
			x[i] *= 10;
		else
			half[i] = ct_bf16_from_f32(10 * ct_bf16_to_f32(half[i]));
	}
	atomic_store(&w->status, CT_OK);
}

static enum ct_status mock_progress(ct_comm *c)
{
	struct mock *m = (struct mock *)c;

	for (int i = m->n_done; i < m->n_posted; i++)
		m->left[i]--;
	while (m->n_done < m->n_posted && m->left[m->n_done] <= 0)
		complete(m);
	return CT_OK;
}

static enum ct_status mock_test(ct_comm *c, ct_work *w)
{
	(void)c;
	return (enum ct_status)atomic_load(&w->status);
}

static enum ct_status mock_wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	struct mock *m = (struct mock *)c;

	(void)deadline_ns;
	if (atomic_load(&c->dead))
		return ct_error_restore(&c->error);
	while (atomic_load(&w->status) == CT_INPROGRESS) {
		if (m->n_done == m->fail_at)
			return CT_FAIL(CT_PEER_LOST, "rank 1 ended");
		complete(m);
	}
	return CT_OK;
}

static void mock_abort(ct_comm *c)
{
	(void)c;
}

static const struct ct_comm_ops mock_ops = {
	.name = "mock",
	.post = mock_post,
	.test = mock_test,
	.wait = mock_wait,
	.progress = mock_progress,
	.abort = mock_abort,
};

#define N_SLICES 12
#define N_BUCKETS 5

static const struct ct_bucket buckets[N_BUCKETS] = {
	{.offset = 0, .n = 10, .dtype = CT_F32, .first_slice = 0, .n_slices = 2},
	{.offset = 16, .n = 30, .dtype = CT_F32, .first_slice = 2, .n_slices = 3},
	{.offset = 48, .n = 5, .dtype = CT_F32, .first_slice = 5, .n_slices = 1},
	{.offset = 64, .n = 20, .dtype = CT_F32, .first_slice = 6, .n_slices = 4},
	{.offset = 96, .n = 9, .dtype = CT_F32, .first_slice = 10, .n_slices = 2},
};

struct fixture {
	struct mock m;
	float arena[128];
	ct_device *device;
	ct_stream *stream;
	ct_reducer *r;
};

static enum ct_status create(struct fixture *f, const struct ct_bucket *b, int n, ct_reducer **out)
{
	struct ct_reducer_opts o = {.compute = f->stream, .memory[CT_F32] = f->arena, .buckets = b, .n_buckets = n};

	return ct_reducer_create(&f->m.base, &o, out);
}

static int setup(void **state)
{
	struct ct_comm_opts o = {0};
	struct fixture *f = ct_calloc(1, sizeof(*f));

	if (!f)
		return -1;
	f->m.world.id = (struct ct_identity){.world = 1};
	f->m.fail_at = -1;
	if (ct__comm_init(&f->m.base, &mock_ops, &f->m.world, &o) != CT_OK ||
	    ct_device_open("cpu", 0, &f->device) != CT_OK || ct_stream_create(f->device, false, &f->stream) != CT_OK ||
	    create(f, buckets, N_BUCKETS, &f->r) != CT_OK)
		return -1;
	for (int i = 0; i < 128; i++)
		f->arena[i] = 1;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ct_reducer_destroy(f->r);
	ct__comm_release(&f->m.base);
	ct_stream_destroy(f->stream);
	ct_device_close(f->device);
	ct_free(f);
	return 0;
}

static void check_step(struct fixture *f, int first_post)
{
	assert_int_equal(f->m.n_posted, first_post + N_BUCKETS);
	for (int b = 0; b < N_BUCKETS; b++) {
		assert_ptr_equal(f->m.posted_buf[first_post + b], f->arena + buckets[b].offset);
		assert_int_equal(f->m.posted_n[first_post + b], buckets[b].n);
	}
}

/* Each bucket goes out with its last slice, while later slices are not ready. */
static void test_posts_early(void **state)
{
	struct fixture *f = *state;
	int expect = 0;

	f->m.delay = 1000;
	ct_reducer_begin(f->r, true);
	for (int i = 0; i < N_SLICES; i++) {
		if (i == buckets[expect].first_slice + buckets[expect].n_slices)
			expect++;
		assert_int_equal(f->m.n_posted, expect);
		assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
	}
	assert_int_equal(f->m.n_done, 0);
	assert_int_equal(ct_reducer_finish(f->r), CT_OK);
	check_step(f, 0);
	for (int b = 0; b < N_BUCKETS; b++) {
		for (size_t i = 0; i < buckets[b].n; i++)
			assert_true(f->arena[buckets[b].offset + i] == 10);
	}
	assert_true(f->arena[10] == 1);
}

/* Readiness in any order, buckets in index order, on many shuffles and with and without delay. */
static void test_order_of_posts(void **state)
{
	struct fixture *f = *state;
	uint32_t seed = 1;

	for (int round = 0; round < 40; round++) {
		int order[N_SLICES];
		int first = f->m.n_posted;

		f->m.delay = round % 4;
		for (int i = 0; i < N_SLICES; i++)
			order[i] = i;
		for (int i = N_SLICES - 1; i > 0; i--) {
			int j, t = order[i];

			seed = seed * 1664525u + 1013904223u;
			j = (int)((seed >> 8) % (uint32_t)(i + 1));
			order[i] = order[j];
			order[j] = t;
		}
		ct_reducer_begin(f->r, true);
		for (int i = 0; i < N_SLICES; i++)
			assert_int_equal(ct_reducer_ready(f->r, order[i]), CT_OK);
		assert_int_equal(ct_reducer_finish(f->r), CT_OK);
		check_step(f, first);
	}
}

static void test_accumulation_is_silent(void **state)
{
	struct fixture *f = *state;

	for (int step = 0; step < 3; step++) {
		ct_reducer_begin(f->r, false);
		for (int i = 0; i < N_SLICES; i++)
			assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
		assert_int_equal(ct_reducer_finish(f->r), CT_OK);
	}
	assert_int_equal(f->m.n_posted, 0);
	assert_true(f->arena[0] == 1);
	ct_reducer_begin(f->r, true);
	for (int i = 0; i < N_SLICES; i++)
		assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
	assert_int_equal(ct_reducer_finish(f->r), CT_OK);
	check_step(f, 0);
}

/* A step allocates nothing. */
static void test_no_allocation(void **state)
{
	struct fixture *f = *state;
	uint64_t before = ct_mem_count();

	for (int step = 0; step < 5; step++) {
		ct_reducer_begin(f->r, true);
		for (int i = 0; i < N_SLICES; i++)
			assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
		assert_int_equal(ct_reducer_finish(f->r), CT_OK);
	}
	assert_true(ct_mem_count() == before);
}

static void test_failure_names_bucket(void **state)
{
	struct fixture *f = *state;

	f->m.delay = 1000;
	f->m.fail_at = 3;
	ct_reducer_begin(f->r, true);
	for (int i = 0; i < N_SLICES; i++)
		assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
	assert_int_equal(ct_reducer_finish(f->r), CT_PEER_LOST);
	assert_non_null(
		strstr(ct_error_message(), "gradient bucket 3 of 5 (slices 6 to 9, 20 elements): rank 1 ended"));
	/* The next step fails when it posts. */
	ct_reducer_begin(f->r, true);
	assert_int_equal(ct_reducer_ready(f->r, 0), CT_OK);
	assert_int_equal(ct_reducer_ready(f->r, 1), CT_PEER_LOST);
	assert_non_null(strstr(ct_error_message(), "gradient bucket 0 of 5"));
}

static void test_wrong_slices(void **state)
{
	struct fixture *f = *state;
	struct ct_bucket hole[2] = {buckets[0], buckets[2]};
	ct_reducer *r;

	ct_reducer_begin(f->r, true);
	assert_int_equal(ct_reducer_ready(f->r, -1), CT_BUG);
	assert_int_equal(ct_reducer_ready(f->r, N_SLICES), CT_BUG);
	for (int i = 0; i < N_SLICES; i++) {
		if (i != 7)
			assert_int_equal(ct_reducer_ready(f->r, i), CT_OK);
	}
	assert_int_equal(ct_reducer_ready(f->r, 3), CT_BUG);
	assert_int_equal(f->m.n_posted, 3);
	assert_int_equal(ct_reducer_finish(f->r), CT_BUG);
	assert_non_null(strstr(ct_error_message(), "bucket 3 of 5"));
	assert_non_null(strstr(ct_error_message(), "slice 7 has not been reported"));
	assert_int_equal(create(f, hole, 2, &r), CT_BUG);
	assert_null(r);
}

static void test_no_memory(void **state)
{
	struct fixture *f = *state;
	ct_reducer *r;

	for (uint64_t n = 1;; n++) {
		enum ct_status st;

		ct_mem_fail_after(n);
		st = create(f, buckets, N_BUCKETS, &r);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			break;
		assert_int_equal(st, CT_NOMEM);
		assert_null(r);
	}
	ct_reducer_destroy(r);
	ct_reducer_destroy(NULL);
}

/* ---- buckets of several types */

struct halves {
	uint16_t memory[128];
	int n_to, n_from;
};

static enum ct_status convert(void *user, void *to, enum ct_dtype to_type, const void *from, enum ct_dtype from_type,
			      size_t n, ct_stream *s)
{
	struct halves *h = user;

	assert_non_null(s);
	assert_int_equal(to_type + from_type, CT_F32 + CT_BF16);
	for (size_t i = 0; i < n; i++) {
		if (to_type == CT_BF16)
			((uint16_t *)to)[i] = ct_bf16_from_f32(((const float *)from)[i]);
		else
			((float *)to)[i] = ct_bf16_to_f32(((const uint16_t *)from)[i]);
	}
	*(to_type == CT_BF16 ? &h->n_to : &h->n_from) += 1;
	return CT_OK;
}

static void run_step(ct_reducer *r, bool sync, int n_slices)
{
	ct_reducer_begin(r, sync);
	for (int i = 0; i < n_slices; i++)
		assert_int_equal(ct_reducer_ready(r, i), CT_OK);
	assert_int_equal(ct_reducer_finish(r), CT_OK);
}

/* Each bucket is converted once in each direction, and not in accumulation steps. The last bucket has no slices. */
static void test_other_types(void **state)
{
	static const struct ct_bucket typed[] = {
		{.offset = 0, .n = 10, .dtype = CT_BF16, .first_slice = 0, .n_slices = 2},
		{.offset = 16, .n = 30, .dtype = CT_BF16, .first_slice = 2, .n_slices = 1},
		{.offset = 48, .n = 5, .dtype = CT_F32, .first_slice = 3, .n_slices = 1},
		{.offset = 64, .n = 4, .dtype = CT_F32, .first_slice = 4, .n_slices = 0},
	};
	struct fixture *f = *state;
	struct halves h = {0};
	struct ct_reducer_opts o = {.compute = f->stream,
				    .memory = {[CT_F32] = f->arena, [CT_BF16] = h.memory},
				    .user = &h,
				    .buckets = typed,
				    .n_buckets = 4};
	const float x = 1.0f / 3, rounded = ct_bf16_to_f32(ct_bf16_from_f32(x));
	ct_reducer *r;

	assert_int_equal(ct_reducer_create(&f->m.base, &o, &r), CT_BUG); /* no conversion */
	o.convert = convert;
	o.memory[CT_BF16] = NULL;
	assert_int_equal(ct_reducer_create(&f->m.base, &o, &r), CT_BUG); /* no memory */
	o.memory[CT_BF16] = h.memory;
	assert_int_equal(ct_reducer_create(&f->m.base, &o, &r), CT_OK);
	for (int i = 0; i < 128; i++)
		f->arena[i] = x;
	for (int step = 0; step < 2; step++)
		run_step(r, false, 4);
	assert_int_equal(f->m.n_posted + h.n_to + h.n_from, 0);
	f->m.delay = 1000;
	run_step(r, true, 4);
	assert_int_equal(f->m.n_posted, 4);
	assert_ptr_equal(f->m.posted_buf[1], h.memory + 16);
	assert_ptr_equal(f->m.posted_buf[3], f->arena + 64);
	assert_int_equal(h.n_to, 2);
	assert_int_equal(h.n_from, 2);
	for (int i = 0; i < 68; i++) {
		const bool half = i < 10 || (i >= 16 && i < 46), sum = (i >= 48 && i < 53) || i >= 64;

		assert_true(f->arena[i] == (half ? ct_bf16_to_f32(ct_bf16_from_f32(10 * rounded)) : sum ? 10 * x : x));
	}
	ct_reducer_destroy(r);
}

/* ---- with real ranks: the sums, over several steps, with readiness in another order on every rank */

static void train(struct ct_world *world, void *arg)
{
	struct ct_comm_opts o = {.timeout_ns = 60 * CT_SEC};
	struct ct_reducer_opts ro = {0};
	struct ct_bucket_slice slices[40];
	size_t at = 0;
	ct_device *device;
	int n_buckets, rank = world->id.rank, size = world->id.world;
	struct ct_bucket *plan;
	ct_reducer *r;
	ct_comm *c;
	float *x;

	for (int i = 0; i < 40; i++) {
		slices[i] = (struct ct_bucket_slice){at, (size_t)(i * 397 % 5000 + 1), CT_F32};
		at += (slices[i].n + 15) & ~(size_t)15;
	}
	CHECK(ct_bucket_plan(slices, 40, 16 << 10, 64 << 10, &plan, &n_buckets) == CT_OK);
	CHECK(n_buckets > 3);
	CHECK(ct_comm_open(arg, world, &o, &c) == CT_OK);
	CHECK(ct_comm_mem_alloc(c, at * sizeof(float), (void **)&x) == CT_OK);
	CHECK(ct_device_open("cpu", 0, &device) == CT_OK);
	CHECK(ct_stream_create(device, false, &ro.compute) == CT_OK);
	ro.memory[CT_F32] = x;
	ro.buckets = plan;
	ro.n_buckets = n_buckets;
	CHECK(ct_reducer_create(c, &ro, &r) == CT_OK);
	for (int step = 0; step < 10; step++) {
		ct_reducer_begin(r, true);
		for (int k = 0; k < 40; k++) {
			int i = (k * 7 + rank * step) % 40;

			for (size_t j = 0; j < slices[i].n; j++)
				x[slices[i].offset + j] = (float)(rank + step + (int)(j % 100));
			CHECK(ct_reducer_ready(r, i) == CT_OK);
		}
		CHECK(ct_reducer_finish(r) == CT_OK);
		for (int i = 0; i < 40; i++) {
			for (size_t j = 0; j < slices[i].n; j++)
				CHECK(x[slices[i].offset + j] ==
				      (float)(size * (step + (int)(j % 100)) + size * (size - 1) / 2));
		}
	}
	ct_reducer_destroy(r);
	ct_stream_destroy(ro.compute);
	ct_device_close(device);
	ct_comm_close(c);
	ct_free(plan);
}

static void test_real_ranks(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(1, NULL, train, "auto", NULL), 0);
	for (int size = 2; size <= 4; size++)
		assert_int_equal(run_ranks(size, NULL, train, "auto", NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_posts_early, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order_of_posts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_accumulation_is_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_allocation, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failure_names_bucket, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_slices, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_types, setup, teardown),
		cmocka_unit_test(test_real_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
