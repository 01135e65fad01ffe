/* The gradient reducer posts the all-reduce (sum) of each bucket as soon as all gradients of the bucket are final,
 * while the backward pass continues. Every rank posts buckets in the order of their indexes. The reducer knows only
 * memory and slices, not the model. For use by one thread.
 *
 * On a synchronous device, collectives are posted to the communicator, and ct_reducer_finish waits for them. On an
 * asynchronous device, a gradient is final when the work that has been posted to the compute stream so far is done. The
 * all-reduce of a bucket runs on a stream of the reducer, after an event that is recorded on the compute stream.
 * ct_reducer_finish makes the compute stream wait for the last all-reduce; the host does not wait.
 *
 * The design follows PyTorch's DDP Reducer (Li et al., VLDB 2020). */
#ifndef CT_DIST_REDUCER_H
#define CT_DIST_REDUCER_H

#include "base/device/device.h"
#include "dist/bucket.h"
#include "dist/comm/comm.h"

typedef struct ct_reducer ct_reducer;

struct ct_reducer_opts {
	ct_stream *compute; /* the stream to which the backward pass is posted */
	/* For each element type, the memory that contains the buckets of this type, or NULL if there are none. Memory
	 * from ct_comm_mem_alloc permits zero copy. */
	void *memory[CT_N_DTYPES];
	const struct ct_bucket *buckets; /* [n_buckets]; copied */
	int n_buckets;
};

/* Borrows comm, stream and memory. */
enum ct_status ct_reducer_create(ct_comm *c, const struct ct_reducer_opts *opts, ct_reducer **out) CT_MUST_CHECK;
/* Call it before ct_comm_close. */
void ct_reducer_destroy(ct_reducer *r);
/* Begins a step. If sync is false, this is an accumulation step without communication, in which ct_reducer_ready and
 * ct_reducer_finish do nothing. */
void ct_reducer_begin(ct_reducer *r, bool sync);
/* Reports that a slice is final, and makes progress on posted buckets. Slices may be reported in any order; buckets are
 * posted in order. A slice that does not exist or is reported twice is CT_BUG. */
enum ct_status ct_reducer_ready(ct_reducer *r, int slice) CT_MUST_CHECK;
/* After this call, work that is posted to the compute stream finds the sums over all ranks in the buckets. Fails with
 * CT_BUG if a slice has not been reported. Error messages name the bucket. */
enum ct_status ct_reducer_finish(ct_reducer *r) CT_MUST_CHECK;

#endif
