/* Measures the collectives of an open communicator, with the message sizes and the definitions of bandwidth of
 * nccl-tests. algbw is bytes / time. busbw is algbw times the number of bytes that a link must carry per byte of the
 * operation: 2(n-1)/n for allreduce, (n-1)/n for allgather and reduce_scatter, 1 for broadcast
 * (github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md). */
#ifndef CT_DIST_BENCH_COMM_H
#define CT_DIST_BENCH_COMM_H

#include "dist/comm/comm.h"

struct ct_bench_comm_row {
	const char *op; /* "allreduce", "allgather", "broadcast", "reduce_scatter" */
	size_t bytes;   /* size of the complete vector; for allgather and reduce_scatter, of all ranks together */
	int rounds;
	double us;           /* largest of the median times of all ranks */
	double algbw, busbw; /* GB/s (1e9) */
};

/* Runs the benchmark for sizes from 4 KiB to 100 MiB, in steps of a factor of four. Vectors have fp32 elements and are
 * in memory from ct_comm_mem_alloc; reductions compute sums. Each operation is timed `rounds` times for each size; 0
 * means as often as 200 ms allow, but at least 5 and at most 2,000 times. Collective: all ranks must call it. *rows is
 * sorted by operation and size; the caller owns it (ct_free). */
enum ct_status ct_bench_comm(ct_comm *c, int rounds, struct ct_bench_comm_row **rows, int *n_rows) CT_MUST_CHECK;

#endif
