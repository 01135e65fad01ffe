/* Measures and checks the operations of an open communicator in the way of nccl-tests
 * (github.com/NVIDIA/nccl-tests). algbw is bytes / time. busbw is algbw times the share of the bytes that each link
 * must carry, from doc/PERFORMANCE.md: 2(n-1)/n for allreduce; (n-1)/n for allgather and reduce_scatter; 1 for
 * broadcast and reduce. For gather and scatter (n-1)/n, and for sendrecv 1, from src/gather.cu, src/scatter.cu and
 * src/sendrecv.cu. */
#ifndef CT_DIST_BENCH_COMM_H
#define CT_DIST_BENCH_COMM_H

#include "dist/comm/comm.h"

enum ct_bench_op {
	CT_BENCH_ALLREDUCE,
	CT_BENCH_REDUCE,
	CT_BENCH_BROADCAST,
	CT_BENCH_ALLGATHER,
	CT_BENCH_GATHER,
	CT_BENCH_SCATTER,
	CT_BENCH_REDUCE_SCATTER,
	CT_BENCH_SENDRECV, /* rank r sends to rank r+1 and receives from rank r-1; needs at least 2 ranks */
	CT_BENCH_BARRIER,
	CT_BENCH_N_OPS
};
/* Returns "allreduce" ... "barrier", or NULL if i is past the end. */
const char *ct_bench_op_name(size_t i);

struct ct_bench_comm_row {
	enum ct_bench_op op;
	/* Size of the complete vector: for allgather, gather, scatter and reduce_scatter, of the parts of all ranks. */
	size_t bytes;
	size_t count; /* elements per rank, as in the call */
	int root;     /* -1: the operation has no root */
	bool reduces; /* it computes reductions */
	int iters;
	double us;           /* largest of the median times of all ranks */
	double algbw, busbw; /* GB/s (1e9); 0 for a barrier */
	int64_t wrong;       /* wrong elements of the results, over all ranks */
};

#define CT_BENCH_MAX_ITERS 2000

struct ct_bench_comm_opts {
	bool ops[CT_BENCH_N_OPS]; /* which operations; all false: all that this number of ranks permits */
	enum ct_dtype dtype;
	enum ct_redop redop;
	int root;
	/* Sizes of the vectors: min_bytes, min_bytes * factor ..., or min_bytes + step_bytes ... if step_bytes is not
	 * 0, up to max_bytes. Each rank has at least one element. */
	size_t min_bytes, max_bytes, step_bytes;
	int factor;
	int iters;  /* timed iterations; 0: as many as 200 ms allow, but at least 5 and at most CT_BENCH_MAX_ITERS */
	int warmup; /* iterations that are not timed */
	/* The device of the communicator; used if the vectors are in its memory (ct_comm_mem_is_on_device). */
	ct_device *device;
	/* Called on rank 0 after each measurement. */
	void (*row)(void *user, const struct ct_bench_comm_row *r);
	void *user;
};

/* Returns how much memory of the host the vectors of each of `size` ranks take up. The communicator may need more. */
size_t ct_bench_comm_host_bytes(const struct ct_bench_comm_opts *opts, int size);
/* Runs the benchmark. Vectors are in memory from ct_comm_mem_alloc. After the timed iterations of each size, every rank
 * fills its vectors with known values, runs the operation once more and compares every element of the result with the
 * value computed from the known ones. *wrong, which may be NULL, is the sum of the wrong elements of all rows. The
 * barrier is checked with the store: no rank may leave it before the last rank has entered it. Collective: all ranks
 * must call it with equal options. Fails with CT_USAGE if the options cannot be used with this number of ranks. */
enum ct_status ct_bench_comm(ct_comm *c, struct ct_world *world, const struct ct_bench_comm_opts *opts,
			     int64_t *wrong) CT_MUST_CHECK;

#endif
