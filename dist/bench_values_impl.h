/* Known values for `ctrain bench comm`. The value at index i of a rank's vector is a small integer that depends on the
 * rank and on i, so that reductions over all ranks are exact in every element type: sums are at most 255, products
 * at most 128, and for averages all ranks have the same values. For dist/bench_*.c only. */
#ifndef CT_DIST_BENCH_VALUES_IMPL_H
#define CT_DIST_BENCH_VALUES_IMPL_H

#include "dist/bench_comm.h"

struct ct__bench_values {
	int rank, size;
	enum ct_dtype dtype;
	enum ct_redop redop;
	int root;
};

/* Fills the source and destination of an operation with `count` elements per rank: the source with this rank's values,
 * the rest with other bytes. If the operation works in place, src == dst. */
void ct__bench_fill(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, void *src, void *dst);
/* Returns the number of elements of the result in dst that are wrong on this rank. */
int64_t ct__bench_count_wrong(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, const void *dst);

#endif
