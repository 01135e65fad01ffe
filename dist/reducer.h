/* The gradient reducer: posts the all-reduce (sum) of each bucket the moment its last gradient is final, while backward
 * goes on; buckets go out in index order on every rank. Knows an arena and slices, nothing of the model. One thread.
 * After PyTorch's DDP Reducer (Li et al., VLDB 2020). */
#ifndef CT_DIST_REDUCER_H
#define CT_DIST_REDUCER_H

#include "dist/bucket.h"
#include "dist/comm/comm.h"

typedef struct ct_reducer ct_reducer;

/* Borrows comm and arena (of ct_comm_mem_alloc for zero copy); the buckets are copied. */
enum ct_status ct_reducer_create(ct_comm *c, float *arena, const struct ct_bucket *buckets, int n_buckets,
				 ct_reducer **out) CT_MUST_CHECK;
/* Before ct_comm_close. */
void ct_reducer_destroy(ct_reducer *r);
/* sync false: an accumulation step without traffic (ready and finish do nothing). */
void ct_reducer_begin(ct_reducer *r, bool sync);
/* Slice i is final. Out-of-order slices are allowed; buckets are posted in order. Also pushes posted buckets along. A
 * slice that does not exist or is reported twice is CT_BUG. */
enum ct_status ct_reducer_ready(ct_reducer *r, int slice) CT_MUST_CHECK;
/* Waits for all buckets: afterwards the arena holds sums over ranks. CT_BUG if a slice was never ready. Errors name the
 * bucket. */
enum ct_status ct_reducer_finish(ct_reducer *r) CT_MUST_CHECK;
/* Nanoseconds that finish blocked since the last call: what backward did not hide. */
int64_t ct_reducer_take_exposed_ns(ct_reducer *r);

#endif
