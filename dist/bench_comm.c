#include "dist/bench_comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_ROUNDS 2000
#define MIN_ROUNDS 5
#define N_OPS 4
#define MIN_BYTES 4096
#define MAX_BYTES ((size_t)100 << 20)
#define N_SIZES 9 /* 4 KiB, 16 KiB ... 64 MiB, 100 MiB */
#define BUDGET_NS (200 * CT_MS)

struct bench {
	ct_comm *comm;
	char *a, *b; /* MAX_BYTES each */
	int rounds;  /* 0: as many as BUDGET_NS allows */
	double us[MAX_ROUNDS];
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

/* Replaces *v on all ranks with rank 0's value, or with the largest value of all ranks. */
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

/* The number of rounds: as requested, or else as many as fit into the budget, estimated from a few rounds on rank 0. */
static enum ct_status choose_rounds(struct bench *b, int op, size_t bytes, int *out)
{
	int64_t start = ct_now_ns();
	double rounds;

	*out = b->rounds;
	if (b->rounds > 0)
		return CT_OK;
	for (int i = 0; i < 3; i++)
		CT_TRY(once(b, op, bytes));
	rounds = (double)BUDGET_NS * 3 / (double)(ct_now_ns() - start + 1);
	rounds = rounds < MIN_ROUNDS ? MIN_ROUNDS : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	CT_TRY(agree(b, &rounds, false));
	*out = (int)rounds;
	return CT_OK;
}

static enum ct_status measure(struct bench *b, int op, size_t bytes, double *median_us, int *n_rounds)
{
	int64_t start;

	for (int i = 0; i < 2; i++)
		CT_TRY(once(b, op, bytes));
	CT_TRY(choose_rounds(b, op, bytes, n_rounds));
	for (int i = 0; i < *n_rounds; i++) {
		start = ct_now_ns();
		CT_TRY(once(b, op, bytes));
		b->us[i] = (double)(ct_now_ns() - start) / 1e3;
	}
	qsort(b->us, (size_t)*n_rounds, sizeof(*b->us), rising);
	*median_us = b->us[*n_rounds / 2];
	return agree(b, median_us, true);
}

static enum ct_status measure_all(struct bench *b, struct ct_bench_comm_row *rows, int *n_rows)
{
	static const char *const names[N_OPS] = {"allreduce", "allgather", "broadcast", "reduce_scatter"};
	double n = ct_comm_size(b->comm), factor[N_OPS] = {2 * (n - 1) / n, (n - 1) / n, 1, (n - 1) / n};

	for (int op = 0; op < N_OPS; op++) {
		size_t bytes = MIN_BYTES;

		for (int i = 0; i < N_SIZES; i++, bytes = bytes <= MAX_BYTES / 4 ? bytes * 4 : MAX_BYTES) {
			struct ct_bench_comm_row *r = &rows[(*n_rows)++];

			r->op = names[op];
			r->bytes = bytes;
			CT_TRY(measure(b, op, bytes, &r->us, &r->rounds));
			r->algbw = (double)bytes / r->us / 1e3;
			r->busbw = r->algbw * factor[op];
		}
	}
	return CT_OK;
}

enum ct_status ct_bench_comm(ct_comm *c, int rounds, struct ct_bench_comm_row **rows, int *n_rows)
{
	struct ct_bench_comm_row *all = NULL;
	void *a, *b;
	struct bench *bench;
	enum ct_status st;

	*rows = NULL;
	*n_rows = 0;
	if (rounds < 0 || rounds > MAX_ROUNDS)
		return CT_FAIL(CT_USAGE, "the number of rounds is %d, but must be 1 to %d", rounds, MAX_ROUNDS);
	CT_TRY(ct_comm_mem_alloc(c, MAX_BYTES, &a));
	CT_TRY(ct_comm_mem_alloc(c, MAX_BYTES, &b));
	CT_TRY_ALLOC(bench = CT_NEW(struct bench));
	bench->comm = c;
	bench->a = a;
	bench->b = b;
	bench->rounds = rounds;
	if (!(all = CT_NEW_ARRAY(struct ct_bench_comm_row, N_OPS * N_SIZES))) {
		st = CT_NOMEM;
		goto done;
	}
	CT_TRY_GOTO(measure_all(bench, all, n_rows), st, done);
	*rows = all;
	all = NULL;
done:
	ct_free(all);
	ct_free(bench);
	return st;
}
