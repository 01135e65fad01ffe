/* The gradient reducer sums gradients over ranks. It posts the all-reduce (sum) of each bucket as soon as all gradients
 * of the bucket are final, while the backward pass continues. Every rank posts buckets in the order of their indexes.
 * The reducer knows only memory and slices, not the model. Only one thread may use it.
 *
 * On a synchronous device, collectives are posted to the communicator, and ct_reducer_finish waits for them. On an
 * asynchronous device, a gradient is final when the work that has been posted to the compute stream so far is done. The
 * all-reduce of a bucket runs on a stream of the reducer, after an event that is recorded on the compute stream.
 * ct_reducer_finish makes the compute stream wait for the last all-reduce; the host does not wait.
 *
 * Gradients are fp32. To send fewer bytes, a bucket may be summed in another type: the reducer converts the gradients
 * to this type before the all-reduce, unless they have been computed in it, and converts the sums back after it. Both
 * conversions run on the stream of the all-reduce. All ranks get the same bits, because the sums that they convert are
 * the same. This is like the fp16_compress_hook of PyTorch's DDP.
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
	/* memory[CT_F32]: the gradients. For each other type of buckets, the memory in which these are summed; a bucket
	 * has the same offset, in elements, as in the gradients. NULL if there are no buckets of this type. Memory from
	 * ct_comm_mem_alloc permits zero copy. */
	void *memory[CT_N_DTYPES];
	/* Posts a conversion of n elements to s. Needed if there are buckets of other types than CT_F32. */
	enum ct_status (*convert)(void *user, void *to, enum ct_dtype to_type, const void *from,
				  enum ct_dtype from_type, size_t n, ct_stream *s);
	void *user;
	bool converted; /* gradients of other types than CT_F32 are in the memory of their type, and not in
			   memory[CT_F32] */
	const struct ct_bucket *buckets; /* [n_buckets]; copied */
	int n_buckets;
};

/* Creates a reducer, which borrows the communicator, the stream and the memory. */
enum ct_status ct_reducer_create(ct_comm *c, const struct ct_reducer_opts *opts, ct_reducer **out) CT_MUST_CHECK;
/* Must be called before ct_comm_close. */
void ct_reducer_destroy(ct_reducer *r);
/* Begins a step. If sync is false, this is an accumulation step without communication, in which ct_reducer_ready and
 * ct_reducer_finish do nothing. */
void ct_reducer_begin(ct_reducer *r, bool sync);
/* Reports that a slice is final, and makes progress on posted buckets. Slices may be reported in any order; buckets are
 * posted in order. Fails with CT_BUG if the slice does not exist or has already been reported. */
enum ct_status ct_reducer_ready(ct_reducer *r, int slice) CT_MUST_CHECK;
/* Makes s wait for the buckets that have been posted so far. Call it before a collective of the same communicator is
 * posted to s, so that collectives have the same order on all ranks. Has no effect on a synchronous device. */
enum ct_status ct_reducer_join(ct_reducer *r, ct_stream *s) CT_MUST_CHECK;
/* Ends a step. For work that is posted to the compute stream after this call, the buckets contain the sums over all
 * ranks. Fails with CT_BUG if a slice has not been reported. Error messages name the bucket. */
enum ct_status ct_reducer_finish(ct_reducer *r) CT_MUST_CHECK;

/* Adds up when this rank has reached its buckets, to find the rank for which others wait. A rank reaches a bucket when
 * all of its gradients are final. The time is measured from the end of the last bucket of the previous step, when all
 * ranks have just met, so that their clocks need not agree. Stores the sums over all steps since the last call, in
 * seconds, in reached_s [n_buckets], and that of the wait after the last bucket was reached in *wait_s. Returns the
 * number of these steps. On an asynchronous device, it is 0. */
uint64_t ct_reducer_take_times(ct_reducer *r, double *reached_s, double *wait_s);

#endif
