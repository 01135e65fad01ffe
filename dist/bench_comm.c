#include "dist/bench_comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_ROUNDS 2000
#define MIN_ROUNDS 5
#define N_OPS 4
#define MAX_SIZES 24

struct bench {
	ct_comm *comm;
	char *a, *b; /* max bytes each */
	double us[MAX_ROUNDS];
	int64_t budget_ns;
};

static enum ct_status once(struct bench *b, int op, size_t bytes)
{
	size_t n = bytes / sizeof(float), size = (size_t)ct_comm_size(b->comm), part = n / size;
	ct_work *w;

	switch (op) {
	case 0:
		CT_TRY(ct_comm_allreduce(b->comm, b->a, n, CT_F32, CT_SUM, &w));
		break;
	case 1:
		CT_TRY(ct_comm_allgather(b->comm, b->b, b->a, part, CT_F32, &w));
		break;
	case 2:
		CT_TRY(ct_comm_broadcast(b->comm, b->a, n, CT_F32, 0, &w));
		break;
	default:
		CT_TRY(ct_comm_reduce_scatter(b->comm, b->a, b->b, part, CT_F32, CT_SUM, &w));
		break;
	}
	return ct_work_wait(w);
}

/* All ranks go on with rank 0's value, or with the largest. */
static enum ct_status agree(struct bench *b, double *v, bool largest)
{
	ct_work *w;

	CT_TRY(largest ? ct_comm_allreduce(b->comm, v, 1, CT_F64, CT_MAX, &w)
		       : ct_comm_broadcast(b->comm, v, 1, CT_F64, 0, &w));
	return ct_work_wait(w);
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static enum ct_status measure(struct bench *b, int op, size_t bytes, double *median_us, int *n_rounds)
{
	int64_t start;
	double rounds;

	for (int i = 0; i < 2; i++)
		CT_TRY(once(b, op, bytes));
	start = ct_now_ns();
	for (int i = 0; i < 3; i++)
		CT_TRY(once(b, op, bytes));
	rounds = (double)b->budget_ns * 3 / (double)(ct_now_ns() - start + 1);
	rounds = rounds < MIN_ROUNDS ? MIN_ROUNDS : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	CT_TRY(agree(b, &rounds, false));
	*n_rounds = (int)rounds;
	for (int i = 0; i < *n_rounds; i++) {
		start = ct_now_ns();
		CT_TRY(once(b, op, bytes));
		b->us[i] = (double)(ct_now_ns() - start) / 1e3;
	}
	qsort(b->us, (size_t)*n_rounds, sizeof(*b->us), rising);
	*median_us = b->us[*n_rounds / 2];
	return agree(b, median_us, true);
}

static enum ct_status measure_all(struct bench *b, size_t min, size_t max, struct ct_bench_comm_row *rows, int *n_rows)
{
	static const char *const names[N_OPS] = {"allreduce", "allgather", "broadcast", "reduce_scatter"};
	double n = ct_comm_size(b->comm), factor[N_OPS] = {2 * (n - 1) / n, (n - 1) / n, 1, (n - 1) / n};

	for (int op = 0; op < N_OPS; op++) {
		for (size_t bytes = min;; bytes = bytes <= max / 4 ? bytes * 4 : max) {
			struct ct_bench_comm_row *r = &rows[(*n_rows)++];

			r->op = names[op];
			r->bytes = bytes;
			CT_TRY(measure(b, op, bytes, &r->us, &r->rounds));
			r->algbw = (double)bytes / r->us / 1e3;
			r->busbw = r->algbw * factor[op];
			if (bytes >= max)
				break;
		}
	}
	return CT_OK;
}

/* Of the heap when the caller wants to know what that costs; freed by the caller. */
static enum ct_status alloc_buffers(struct bench *b, size_t bytes, bool private_buffers)
{
	void *p;

	if (private_buffers) {
		CT_TRY_ALLOC(b->a = ct_calloc_aligned(4096, bytes));
		CT_TRY_ALLOC(b->b = ct_calloc_aligned(4096, bytes));
		return CT_OK;
	}
	CT_TRY(ct_comm_mem_alloc(b->comm, bytes, &p));
	b->a = p;
	CT_TRY(ct_comm_mem_alloc(b->comm, bytes, &p));
	b->b = p;
	return CT_OK;
}

enum ct_status ct_bench_comm(ct_comm *c, const struct ct_bench_comm_opts *opts, struct ct_bench_comm_row **rows,
			     int *n_rows)
{
	size_t min = opts->min_bytes ? opts->min_bytes : 4096,
	       max = opts->max_bytes ? opts->max_bytes : (size_t)100 << 20;
	struct ct_bench_comm_row *all = NULL;
	struct bench *b;
	enum ct_status st;

	*rows = NULL;
	*n_rows = 0;
	if (min < sizeof(float) || max < min || max / min > (size_t)1 << (2 * (MAX_SIZES - 2)))
		return CT_FAIL(CT_USAGE, "sizes from %zu to %zu bytes", min, max);
	CT_TRY_ALLOC(b = CT_NEW(struct bench));
	b->comm = c;
	b->budget_ns = opts->budget_ns > 0 ? opts->budget_ns : 200 * CT_MS;
	CT_TRY_GOTO(alloc_buffers(b, max, opts->private_buffers), st, done);
	if (!(all = CT_NEW_ARRAY(struct ct_bench_comm_row, N_OPS * MAX_SIZES))) {
		st = CT_NOMEM;
		goto done;
	}
	CT_TRY_GOTO(measure_all(b, min, max, all, n_rows), st, done);
	*rows = all;
	all = NULL;
done:
	ct_free(all);
	if (opts->private_buffers) {
		ct_free_aligned(b->a);
		ct_free_aligned(b->b);
	}
	ct_free(b);
	return st;
}
