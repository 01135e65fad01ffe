/* The gradient reducer: posts the all-reduce (sum) of each bucket as soon as its last gradient is final, while backward continues;
 * buckets are sent in index order on every rank. It works on memory and slices and does not know the model. One thread.
 *
 * On a device whose work is done when posted, collectives are posted to the communicator and finish waits for them. On an asynchronous
 * device, "final" means final in the order of the compute stream: a bucket's all-reduce waits for an event recorded there, runs on a
 * stream of the reducer, and finish makes the compute stream wait for the last one; the host waits for nothing.
 *
 * After PyTorch's DDP Reducer (Li et al., VLDB 2020). */
#ifndef CT_DIST_REDUCER_H
#define CT_DIST_REDUCER_H

#include "base/device/device.h"
#include "dist/bucket.h"
#include "dist/comm/comm.h"

typedef struct ct_reducer ct_reducer;

struct ct_reducer_opts {
	ct_stream *compute; /* the stream to which backward is posted */
	/* By element type: the memory that buckets of the type are ranges of; NULL where there are none. Of ct_comm_mem_alloc for zero
	 * copy. */
	void *memory[CT_N_DTYPES];
	const struct ct_bucket *buckets; /* [n_buckets]; copied */
	int n_buckets;
};

/* Borrows comm, stream and memory. */
enum ct_status ct_reducer_create(ct_comm *c, const struct ct_reducer_opts *opts, ct_reducer **out) CT_MUST_CHECK;
/* Before ct_comm_close. */
void ct_reducer_destroy(ct_reducer *r);
/* sync false: an accumulation step without traffic (ready and finish do nothing). */
void ct_reducer_begin(ct_reducer *r, bool sync);
/* Slice i is final. Out-of-order slices are allowed; buckets are posted in order. Also pushes posted buckets along. A
 * slice that does not exist or is reported twice is CT_BUG. */
enum ct_status ct_reducer_ready(ct_reducer *r, int slice) CT_MUST_CHECK;
/* Work that is posted to the compute stream after this call finds the sums over ranks in all buckets. CT_BUG if a slice
 * was never ready. Errors name the bucket. */
enum ct_status ct_reducer_finish(ct_reducer *r) CT_MUST_CHECK;

#endif
