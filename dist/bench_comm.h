/* Times collectives over an open communicator, in the sizes and with the bandwidths of nccl-tests: algbw = bytes /
 * time, busbw = algbw times what a link must carry per byte for that operation (2(n-1)/n for allreduce, (n-1)/n for
 * allgather and reduce_scatter, 1 for broadcast; github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md). */
#ifndef CT_DIST_BENCH_COMM_H
#define CT_DIST_BENCH_COMM_H

#include "dist/comm/comm.h"

struct ct_bench_comm_row {
	const char *op; /* "allreduce", "allgather", "broadcast", "reduce_scatter" */
	size_t bytes;   /* of the complete vector; allgather, reduce_scatter: of all ranks together */
	int rounds;
	double us;           /* median, of the slowest rank */
	double algbw, busbw; /* GB/s (1e9) */
};

/* fp32, sum, 4 KiB to 100 MiB in steps of four, in memory of ct_comm_mem_alloc. rounds: how often each operation of
 * each size is timed; 0: as often as 200 ms allow, 5 to 2,000 times. Collective. Returns owned (ct_free): rows ordered
 * by operation and size. */
enum ct_status ct_bench_comm(ct_comm *c, int rounds, struct ct_bench_comm_row **rows, int *n_rows) CT_MUST_CHECK;

#endif
