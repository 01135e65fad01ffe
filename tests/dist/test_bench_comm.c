/* `ctrain bench comm` with real ranks: its columns, and results that a damaged communicator makes wrong. */
#include "dist/bench_comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

#define MAX_ROWS 64

struct rows {
	struct ct_bench_comm_row at[MAX_ROWS];
	int n;
};

static void add_row(void *user, const struct ct_bench_comm_row *r)
{
	struct rows *rows = user;

	CHECK(rows->n < MAX_ROWS);
	rows->at[rows->n++] = *r;
}

/* ---- a communicator that damages the data of rank 0, and one whose barrier does nothing */

static struct ct_comm_ops damaged;
static enum ct_status (*real_post)(ct_comm *c, ct_work *w);

static enum ct_status damaging_post(ct_comm *c, ct_work *w)
{
	if (c->rank == 0 && w->dtype == CT_F32 && w->src && w->n > 0)
		((float *)(uintptr_t)w->src)[w->n - 1] = 1000;
	return real_post(c, w);
}

static enum ct_status post_without_barrier(ct_comm *c, ct_work *w)
{
	if (w->kind != CT_COMM_BARRIER)
		return real_post(c, w);
	atomic_store(&w->status, CT_OK);
	return CT_OK;
}

static void damage(ct_comm *c, enum ct_status (*post)(ct_comm *c, ct_work *w))
{
	damaged = *c->ops;
	real_post = damaged.post;
	damaged.post = post;
	c->ops = &damaged;
}

/* ---- correct communicators */

/* The share of the bytes that a link must carry, as nccl-tests' doc/PERFORMANCE.md lists it. */
static double factor(enum ct_bench_op op, double n)
{
	switch (op) {
	case CT_BENCH_ALLREDUCE:
		return 2 * (n - 1) / n;
	case CT_BENCH_ALLGATHER:
	case CT_BENCH_GATHER:
	case CT_BENCH_SCATTER:
	case CT_BENCH_REDUCE_SCATTER:
		return (n - 1) / n;
	default:
		return 1;
	}
}

static bool near(double a, double b)
{
	return a - b <= 1e-6 * b && b - a <= 1e-6 * b;
}

static void check_row(const struct ct_bench_comm_row *r, int size, size_t element)
{
	const bool parts = r->op >= CT_BENCH_ALLGATHER && r->op <= CT_BENCH_REDUCE_SCATTER;

	CHECK(r->wrong == 0 && r->us > 0);
	CHECK(r->bytes == r->count * element * (parts ? (size_t)size : 1));
	CHECK(near(r->algbw, (double)r->bytes / r->us / 1e3));
	if (r->op != CT_BENCH_BARRIER)
		CHECK(near(r->busbw, r->algbw * factor(r->op, size)));
}

/* The variant of a sweep is an element type and a reduction. With reductions other than sums, the root is the last
 * rank. */
static int variant_of(enum ct_dtype t, enum ct_redop op)
{
	return (int)t + CT_N_DTYPES * (int)op;
}

static void sweep(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	const enum ct_dtype t = (enum ct_dtype)(s->variant % CT_N_DTYPES);
	const enum ct_redop op = (enum ct_redop)(s->variant / CT_N_DTYPES);
	const int root = op == CT_SUM ? 0 : world->id.world - 1;
	ct_comm *c = open_comm(world, s);
	struct rows rows = {0};
	int64_t wrong = -1;
	struct ct_bench_comm_opts o = {.dtype = t,
				       .redop = op,
				       .root = root,
				       .min_bytes = 1,
				       .max_bytes = 100000,
				       .factor = 100,
				       .warmup = 1,
				       .iters = 3,
				       .row = add_row,
				       .user = &rows};

	CHECK(ct_bench_comm(c, world, &o, &wrong) == CT_OK);
	CHECK(wrong == 0);
	/* 1, 100 and 10,000 bytes, and the barrier. */
	CHECK(rows.n == (world->id.rank == 0 ? 3 * (CT_BENCH_N_OPS - 1) + 1 : 0));
	for (int i = 0; i < rows.n; i++) {
		CHECK(rows.at[i].op == (enum ct_bench_op)(i / 3));
		CHECK(rows.at[i].iters == 3);
		CHECK(rows.at[i].root == -1 || rows.at[i].root == root);
		check_row(&rows.at[i], world->id.world, ct_dtype_bytes(t));
	}
	ct_comm_close(c);
}

static void test_sweep(void **state)
{
	static const char *const backends[] = {"shm", "gloo", "hier"};

	(void)state;
	for (size_t b = 0; b < CT_ARRAY_LEN(backends); b++) {
		const bool hosts = strcmp(backends[b], "hier") == 0;

		if (b > 0 && !comm_built(backends[b]))
			continue;
		if (!hosts)
			play(backends[b], 2, NULL, LONG, sweep, CT_F32, 0, NULL);
		play(backends[b], 3, hosts ? two_hosts : NULL, LONG, sweep, CT_F32, 0, NULL);
		play(backends[b], 3, hosts ? two_hosts : NULL, LONG, sweep, CT_BF16, 0, NULL);
	}
	for (int t = 0; t < CT_N_DTYPES; t++)
		play("shm", 3, NULL, LONG, sweep, variant_of((enum ct_dtype)t, CT_SUM), 0, NULL);
	for (int op = CT_PROD; op <= CT_AVG; op++) {
		for (int t = 0; t < CT_N_DTYPES; t++)
			play("shm", 3, NULL, LONG, sweep, variant_of((enum ct_dtype)t, (enum ct_redop)op), 0, NULL);
		if (comm_built("gloo"))
			play("gloo", 3, NULL, LONG, sweep, variant_of(CT_F16, (enum ct_redop)op), 0, NULL);
	}
}

/* The iterations that fit into the budget, and a selection of operations. */
static void chosen(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct rows rows = {0};
	struct ct_bench_comm_opts o = {.ops[CT_BENCH_BARRIER] = true,
				       .ops[CT_BENCH_SCATTER] = true,
				       .min_bytes = 64,
				       .max_bytes = 64,
				       .factor = 2,
				       .row = add_row,
				       .user = &rows};

	CHECK(ct_bench_comm(c, world, &o, NULL) == CT_OK);
	CHECK(rows.n == (world->id.rank == 0 ? 2 : 0));
	if (rows.n > 0) {
		CHECK(rows.at[0].op == CT_BENCH_SCATTER && rows.at[1].op == CT_BENCH_BARRIER);
		CHECK(rows.at[0].iters >= 5 && rows.at[0].iters <= CT_BENCH_MAX_ITERS && rows.at[0].root == 0);
		CHECK(rows.at[1].bytes == 0 && rows.at[1].busbw == 0 && rows.at[1].root == -1);
	}
	rows.n = 0;
	o.step_bytes = 24;
	o.max_bytes = 111;
	CHECK(ct_bench_comm(c, world, &o, NULL) == CT_OK);
	if (world->id.rank == 0) /* two sizes, and the barrier */
		CHECK(rows.n == 3 && rows.at[0].bytes == 64 && rows.at[1].bytes == 88);
	o.root = 2;
	CHECK(ct_bench_comm(c, world, &o, NULL) == CT_USAGE && says("root 2"));
	o.root = 0;
	o.max_bytes = 63;
	CHECK(ct_bench_comm(c, world, &o, NULL) == CT_USAGE);
	ct_comm_close(c);
}

static void test_chosen(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, chosen, 0, 0, NULL);
}

static void alone(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct ct_bench_comm_opts o = {.min_bytes = 64, .max_bytes = 64, .factor = 2, .iters = 1};
	int64_t wrong = -1;

	CHECK(ct_bench_comm(c, world, &o, &wrong) == CT_OK && wrong == 0);
	o.ops[CT_BENCH_SENDRECV] = true;
	CHECK(ct_bench_comm(c, world, &o, &wrong) == CT_USAGE && says("at least 2 ranks"));
	ct_comm_close(c);
}

static void test_alone(void **state)
{
	(void)state;
	play("self", 1, NULL, LONG, alone, 0, 0, NULL);
}

/* ---- damaged communicators */

/* One element of rank 0's data is wrong: the last one, or that of the first part. */
static void damaged_data(struct ct_world *world, void *arg)
{
	static const bool everywhere[CT_BENCH_N_OPS] = {
		[CT_BENCH_ALLREDUCE] = true, [CT_BENCH_BROADCAST] = true, [CT_BENCH_ALLGATHER] = true};
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	struct rows rows = {0};
	int64_t wrong = 0;
	struct ct_bench_comm_opts o = {
		.min_bytes = 24, .max_bytes = 24000, .factor = 1000, .iters = 1, .row = add_row, .user = &rows};

	damage(c, damaging_post);
	CHECK(ct_bench_comm(c, world, &o, &wrong) == CT_OK);
	CHECK(wrong == 2 * (CT_BENCH_BARRIER - 3 + 3 * world->id.world));
	for (int i = 0; i < rows.n; i++) {
		const enum ct_bench_op op = rows.at[i].op;

		CHECK(rows.at[i].wrong == (op == CT_BENCH_BARRIER ? 0 : everywhere[op] ? world->id.world : 1));
	}
	ct_comm_close(c);
}

static void missing_barrier(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct ct_bench_comm_opts o = {
		.ops[CT_BENCH_BARRIER] = true, .min_bytes = 8, .max_bytes = 8, .factor = 2, .iters = 1};
	int64_t wrong = 0;

	damage(c, post_without_barrier);
	/* The first check may miss it if the other ranks do not run at that time. */
	for (int i = 0; i < 50 && wrong == 0; i++)
		CHECK(ct_bench_comm(c, world, &o, &wrong) == CT_OK);
	CHECK(wrong > 0);
	ct_comm_close(c);
}

static void test_damaged(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, damaged_data, 0, 0, NULL);
	play("shm", 3, NULL, LONG, damaged_data, 0, 0, NULL);
	play("shm", 3, NULL, LONG, missing_barrier, 0, 0, NULL);
	if (!comm_built("gloo"))
		return;
	play("gloo", 2, NULL, LONG, damaged_data, 0, 0, NULL);
	play("gloo", 3, NULL, LONG, damaged_data, 0, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sweep),
		cmocka_unit_test(test_chosen),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_damaged),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
