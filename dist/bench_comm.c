/* Each iteration posts one operation and waits for it. The median of a rank is not disturbed by single slow iterations,
 * and the largest median of all ranks counts, since an operation is as slow as its slowest rank. All ranks must run the
 * same operations, so a number of iterations that is estimated is that of rank 0, for all of them.
 *
 * Results are checked after the measurement, with vectors that are filled again, because the timed iterations have
 * changed them. To check the barrier, the last rank enters it late: it waits until the others are about to enter, and
 * then for the key that the first rank sets which has left. Such a key must not appear. */
#include "dist/bench_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/bench_values_impl.h"

#define MIN_ITERS 5
#define SHORT_BYTES 8192
#define BUDGET_NS (200 * CT_MS)
#define ANSWER_NS (60 * CT_SEC)

struct bench {
	ct_comm *comm;
	struct ct_world *world;
	const struct ct_bench_comm_opts *opts;
	struct ct__bench_values values;
	void *a, *b;           /* source and destination; operations with one vector use a */
	void *host_a, *host_b; /* the same vectors, or pinned memory for their values if they are on a device */
	ct_stream *stream;     /* of the device, or NULL */
	double us[CT_BENCH_MAX_ITERS];
};

/* What nccl-tests defines for an operation. */
static const struct shape {
	const char *name;
	bool in_parts; /* the vector consists of one part per rank, and count is the length of a part */
	bool in_place;
	bool reduces;
	bool rooted;
	/* A link carries (a n + b) / n of the bytes. */
	int a, b;
} shapes[CT_BENCH_N_OPS] = {
	[CT_BENCH_ALLREDUCE] = {"allreduce", .in_place = true, .reduces = true, .a = 2, .b = -2},
	[CT_BENCH_REDUCE] = {"reduce", .in_place = true, .reduces = true, .rooted = true, .a = 1},
	[CT_BENCH_BROADCAST] = {"broadcast", .in_place = true, .rooted = true, .a = 1},
	[CT_BENCH_ALLGATHER] = {"allgather", .in_parts = true, .a = 1, .b = -1},
	[CT_BENCH_GATHER] = {"gather", .in_parts = true, .rooted = true, .a = 1, .b = -1},
	[CT_BENCH_SCATTER] = {"scatter", .in_parts = true, .rooted = true, .a = 1, .b = -1},
	[CT_BENCH_REDUCE_SCATTER] = {"reduce_scatter", .in_parts = true, .reduces = true, .a = 1, .b = -1},
	[CT_BENCH_SENDRECV] = {"sendrecv", .a = 1},
	[CT_BENCH_BARRIER] = {.name = "barrier"},
};

const char *ct_bench_op_name(size_t i)
{
	return i < CT_BENCH_N_OPS ? shapes[i].name : NULL;
}

/* The receive of a long message is posted before its send, so that its data need not be buffered. For a short message,
 * the send is first, so that it is transferred while the receive is posted. */
static enum ct_status exchange(struct bench *b, size_t n)
{
	const int size = b->values.size, to = (b->values.rank + 1) % size, from = (b->values.rank + size - 1) % size;
	const enum ct_dtype t = b->opts->dtype;
	ct_work *in = NULL, *out;

	if (n * ct_dtype_bytes(t) > SHORT_BYTES)
		CT_TRY(ct_comm_recv(b->comm, b->b, n, t, from, 0, &in));
	CT_TRY(ct_comm_send(b->comm, b->a, n, t, to, 0, &out));
	if (!in)
		CT_TRY(ct_comm_recv(b->comm, b->b, n, t, from, 0, &in));
	CT_TRY(ct_work_wait(in));
	return ct_work_wait(out);
}

/* Runs the operation once, with n elements per rank. */
static enum ct_status once(struct bench *b, enum ct_bench_op op, size_t n)
{
	const enum ct_dtype t = b->opts->dtype;
	const enum ct_redop redop = b->opts->redop;
	const int root = b->opts->root;
	ct_work *w = NULL;

	switch (op) {
	case CT_BENCH_ALLREDUCE:
		CT_TRY(ct_comm_allreduce(b->comm, b->a, n, t, redop, &w));
		break;
	case CT_BENCH_REDUCE:
		CT_TRY(ct_comm_reduce(b->comm, b->a, n, t, redop, root, &w));
		break;
	case CT_BENCH_BROADCAST:
		CT_TRY(ct_comm_broadcast(b->comm, b->a, n, t, root, &w));
		break;
	case CT_BENCH_ALLGATHER:
		CT_TRY(ct_comm_allgather(b->comm, b->a, b->b, n, t, &w));
		break;
	case CT_BENCH_GATHER:
		CT_TRY(ct_comm_gather(b->comm, b->a, b->b, n, t, root, &w));
		break;
	case CT_BENCH_SCATTER:
		CT_TRY(ct_comm_scatter(b->comm, b->a, b->b, n, t, root, &w));
		break;
	case CT_BENCH_REDUCE_SCATTER:
		CT_TRY(ct_comm_reduce_scatter(b->comm, b->a, b->b, n, t, redop, &w));
		break;
	case CT_BENCH_SENDRECV:
		return exchange(b, n);
	case CT_BENCH_BARRIER:
	case CT_BENCH_N_OPS:
		CT_TRY(ct_comm_barrier(b->comm, &w));
		break;
	}
	return ct_work_wait(w);
}

/* Replaces *v on all ranks with rank 0's value, or with the largest value, or the sum, of all ranks. */
static enum ct_status agree_first(struct bench *b, double *v)
{
	ct_work *w;

	CT_TRY(ct_comm_broadcast(b->comm, v, 1, CT_F64, 0, &w));
	return ct_work_wait(w);
}

static enum ct_status agree(struct bench *b, void *v, enum ct_dtype t, enum ct_redop op)
{
	ct_work *w;

	CT_TRY(ct_comm_allreduce(b->comm, v, 1, t, op, &w));
	return ct_work_wait(w);
}

/* ---- time */

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The number of iterations: as requested, or else as many as fit into the budget, estimated from a few iterations on
 * rank 0. */
static enum ct_status choose_iters(struct bench *b, enum ct_bench_op op, size_t n, int *out)
{
	int64_t start = ct_now_ns();
	double iters;

	*out = b->opts->iters;
	if (*out > 0)
		return CT_OK;
	for (int i = 0; i < 3; i++)
		CT_TRY(once(b, op, n));
	iters = (double)BUDGET_NS * 3 / (double)(ct_now_ns() - start + 1);
	iters = iters < MIN_ITERS ? MIN_ITERS : iters > CT_BENCH_MAX_ITERS ? CT_BENCH_MAX_ITERS : iters;
	CT_TRY(agree_first(b, &iters));
	*out = (int)iters;
	return CT_OK;
}

static enum ct_status measure(struct bench *b, enum ct_bench_op op, size_t n, int *iters, double *median_us)
{
	for (int i = 0; i < b->opts->warmup; i++)
		CT_TRY(once(b, op, n));
	CT_TRY(choose_iters(b, op, n, iters));
	for (int i = 0; i < *iters; i++) {
		const int64_t start = ct_now_ns();

		CT_TRY(once(b, op, n));
		b->us[i] = (double)(ct_now_ns() - start) / 1e3;
	}
	qsort(b->us, (size_t)*iters, sizeof(*b->us), rising);
	*median_us = b->us[*iters / 2];
	return agree(b, median_us, CT_F64, CT_MAX);
}

/* ---- results */

static enum ct_status copy(struct bench *b, void *dst, const void *src, size_t bytes)
{
	CT_TRY(ct_device_copy(b->opts->device, dst, src, bytes, b->stream));
	return ct_stream_sync(b->stream, ct_deadline_in(ANSWER_NS));
}

static enum ct_status check_vectors(struct bench *b, enum ct_bench_op op, size_t n, size_t bytes, int64_t *wrong)
{
	const bool in_place = shapes[op].in_place;
	void *dst = in_place ? b->a : b->b, *host_dst = in_place ? b->host_a : b->host_b;

	ct__bench_fill(&b->values, op, n, b->host_a, host_dst);
	if (b->stream) {
		CT_TRY(copy(b, b->a, b->host_a, bytes));
		CT_TRY(copy(b, b->b, b->host_b, bytes));
	}
	CT_TRY(once(b, op, n));
	if (b->stream)
		CT_TRY(copy(b, host_dst, dst, bytes));
	*wrong = ct__bench_count_wrong(&b->values, op, n, host_dst);
	return CT_OK;
}

/* The number of the collective, which is equal on all ranks, makes the keys unique. */
static const char *key_of(const struct bench *b, int rank, char key[64])
{
	snprintf(key, 64, "bench/barrier/%lld/%d", (long long)ct_comm_seq(b->comm), rank);
	return key;
}

/* Waits until all other ranks are about to enter the barrier, and then until one of them has left it, which must not
 * happen. */
static enum ct_status enter_last(struct bench *b, const char *left, int64_t *wrong)
{
	char key[64], *value;
	enum ct_status st;
	size_t len;

	for (int q = 0; q < b->values.rank; q++) {
		CT_TRY(ct_store_get(b->world->store, key_of(b, q, key), ct_deadline_in(ANSWER_NS), &value, &len));
		ct_free(value);
	}
	st = ct_store_get(b->world->store, left, ct_deadline_in(BUDGET_NS), &value, &len);
	*wrong = st == CT_OK;
	if (st == CT_OK)
		ct_free(value);
	if (st == CT_TIMEOUT)
		ct_error_clear();
	return st == CT_TIMEOUT ? CT_OK : st;
}

/* No rank may leave the barrier before the last rank has entered it. */
static enum ct_status check_barrier(struct bench *b, int64_t *wrong)
{
	const int last = b->values.size - 1;
	char key[64], left[64];

	*wrong = 0;
	if (last == 0)
		return once(b, CT_BENCH_BARRIER, 0);
	key_of(b, -1, left); /* set by the first rank that has left */
	if (b->values.rank == last)
		CT_TRY(enter_last(b, left, wrong));
	else
		CT_TRY(ct_store_set(b->world->store, key_of(b, b->values.rank, key), "", 0));
	CT_TRY(once(b, CT_BENCH_BARRIER, 0));
	return b->values.rank == last ? CT_OK : ct_store_set(b->world->store, left, "", 0);
}

static enum ct_status run_row(struct bench *b, enum ct_bench_op op, size_t bytes, int64_t *total)
{
	const struct shape *s = &shapes[op];
	const double n = b->values.size;
	const size_t parts = s->in_parts ? (size_t)b->values.size : 1, element = ct_dtype_bytes(b->opts->dtype);
	struct ct_bench_comm_row r = {.op = op, .root = s->rooted ? b->opts->root : -1, .reduces = s->reduces};

	if (op != CT_BENCH_BARRIER) {
		r.count = bytes / element / parts;
		r.count = r.count > 0 ? r.count : 1;
		r.bytes = r.count * parts * element;
	}
	CT_TRY(measure(b, op, r.count, &r.iters, &r.us));
	CT_TRY(op == CT_BENCH_BARRIER ? check_barrier(b, &r.wrong) : check_vectors(b, op, r.count, r.bytes, &r.wrong));
	CT_TRY(agree(b, &r.wrong, CT_I64, CT_SUM));
	r.algbw = (double)r.bytes / r.us / 1e3;
	r.busbw = r.algbw * (s->a * n + s->b) / n;
	*total += r.wrong;
	if (b->values.rank == 0 && b->opts->row)
		b->opts->row(b->opts->user, &r);
	return CT_OK;
}

/* Returns the size after `bytes`, or 0 after the last one. */
static size_t next_size(const struct ct_bench_comm_opts *o, size_t bytes)
{
	if (o->step_bytes > 0)
		return o->max_bytes - bytes < o->step_bytes ? 0 : bytes + o->step_bytes;
	return bytes > o->max_bytes / (size_t)o->factor ? 0 : bytes * (size_t)o->factor;
}

static enum ct_status run_all(struct bench *b, int64_t *wrong)
{
	const struct ct_bench_comm_opts *o = b->opts;
	bool all = true;

	for (int op = 0; op < CT_BENCH_N_OPS; op++)
		all = all && !o->ops[op];
	for (int op = 0; op < CT_BENCH_N_OPS; op++) {
		if (all ? op == CT_BENCH_SENDRECV && b->values.size == 1 : !o->ops[op])
			continue;
		for (size_t bytes = o->min_bytes; bytes > 0; bytes = op == CT_BENCH_BARRIER ? 0 : next_size(o, bytes))
			CT_TRY(run_row(b, (enum ct_bench_op)op, bytes, wrong));
	}
	return CT_OK;
}

static enum ct_status check_opts(const ct_comm *c, const struct ct_bench_comm_opts *o)
{
	if (o->iters < 0 || o->iters > CT_BENCH_MAX_ITERS || o->warmup < 0)
		return CT_FAIL(CT_USAGE, "the number of iterations must be 1 to %d", CT_BENCH_MAX_ITERS);
	if (o->root < 0 || o->root >= ct_comm_size(c))
		return CT_FAIL(CT_USAGE, "root %d: the ranks are 0 to %d", o->root, ct_comm_size(c) - 1);
	if (o->min_bytes < 1 || o->min_bytes > o->max_bytes || (o->step_bytes == 0 && o->factor < 2))
		return CT_FAIL(CT_USAGE, "sizes from %zu to %zu bytes with factor %d are not a valid range",
			       o->min_bytes, o->max_bytes, o->factor);
	if (o->ops[CT_BENCH_SENDRECV] && ct_comm_size(c) == 1)
		return CT_FAIL(CT_USAGE, "sendrecv needs at least 2 ranks");
	return CT_OK;
}

static size_t vector_bytes(const struct ct_bench_comm_opts *o, int size)
{
	const size_t least = (size_t)size * ct_dtype_bytes(o->dtype);

	return o->max_bytes > least ? o->max_bytes : least;
}

/* Vectors on a device have copies on the host. */
size_t ct_bench_comm_host_bytes(const struct ct_bench_comm_opts *opts, int size)
{
	return 2 * vector_bytes(opts, size);
}

/* Allocates the vectors, which ct_comm_close frees, and what is needed to access them. */
static enum ct_status alloc_vectors(struct bench *b, size_t bytes)
{
	CT_TRY(ct_comm_mem_alloc(b->comm, bytes, &b->a));
	CT_TRY(ct_comm_mem_alloc(b->comm, bytes, &b->b));
	b->host_a = b->a;
	b->host_b = b->b;
	if (!ct_comm_mem_is_on_device(b->comm)) {
		memset(b->a, 0, bytes); /* pages that were never written are all the same page */
		return CT_OK;
	}
	b->host_a = b->host_b = NULL;
	CT_TRY(ct_device_host_alloc(b->opts->device, bytes, &b->host_a));
	CT_TRY(ct_device_host_alloc(b->opts->device, bytes, &b->host_b));
	return ct_stream_create(b->opts->device, false, &b->stream);
}

static void release_vectors(struct bench *b)
{
	if (!ct_comm_mem_is_on_device(b->comm))
		return;
	ct_stream_destroy(b->stream);
	ct_device_host_free(b->opts->device, b->host_b);
	ct_device_host_free(b->opts->device, b->host_a);
}

enum ct_status ct_bench_comm(ct_comm *c, struct ct_world *world, const struct ct_bench_comm_opts *opts, int64_t *wrong)
{
	int64_t total = 0;
	enum ct_status st;
	struct bench *b;

	CT_TRY(check_opts(c, opts));
	CT_TRY_ALLOC(b = CT_NEW(struct bench));
	b->comm = c;
	b->world = world;
	b->opts = opts;
	b->values = (struct ct__bench_values){ct_comm_rank(c), ct_comm_size(c), opts->dtype, opts->redop, opts->root};
	st = alloc_vectors(b, vector_bytes(opts, b->values.size));
	if (st == CT_OK)
		st = run_all(b, &total);
	release_vectors(b);
	ct_free(b);
	if (wrong)
		*wrong = total;
	return st;
}
