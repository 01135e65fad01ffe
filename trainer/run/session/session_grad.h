/* The gradients of a session and their sums over ranks: memory, buckets and reducer. session_reducer.h creates and
 * frees them. */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_GRAD_H
#define CT_TRAINER_RUN_SESSION_SESSION_GRAD_H

#include "base/device/arena.h"
#include "dist/reducer.h"
#include "trainer/plan/run_plan.h"

/* Step scalars. They are summed over all ranks together with the gradients of the last bucket, so a step needs no
 * additional all-reduce. They are fp32, regardless of the type of the gradients. */
enum ct_scalar {
	CT_SCALAR_LOSS,
	CT_SCALAR_STOP, /* STOP, SAVE and REGROUP: requests of ranks to stop, to save, and to stop because a node can be
			   added */
	CT_SCALAR_SAVE,
	CT_SCALAR_REGROUP,
	CT_SCALAR_BAD,        /* unreadable samples of the epoch so far */
	CT_SCALAR_UNRECORDED, /* ranks that cannot record steps */
	CT_SCALAR_UNCOMPARED, /* ranks without memory to compare a recorded step */
	/* The results of the update, which are not summed: they are written after the reduction, and read together with
	 * the sums. */
	CT_SCALAR_UPDATE = 8,
	CT_SCALAR_N = 16
};
_Static_assert(CT_SCALAR_UPDATE + CT_UPDATE_RESULTS <= CT_SCALAR_N, "the results of an update are among the scalars");

enum { CT_BUCKET_TIMES = 8 };

/* The size of the buckets, and how it was chosen. */
struct ct_bucket_choice {
	size_t bytes;
	struct ct_allreduce_time times[CT_BUCKET_TIMES]; /* [n_times] the measurement, if there was one */
	int n_times;
	double seconds; /* duration of the measurement */
	bool resumed;   /* bytes comes from the checkpoint instead */
};

/* The session owns all of it. Without training, all fields are zero. */
struct ct_session_grad {
	ct_arena *arena;   /* of the gradients; its slices are those of the net */
	ct_arena *scalars; /* [CT_SCALAR_N], follow the gradients in memory, so that one bucket contains both, unless
			      there is a pipeline */
	ct_arena *half;    /* the buckets that are summed in another type than fp32; NULL: there are none */
	bool writes_half;  /* the backward pass writes their gradients to `half` */
	/* The memory of `arena` and `scalars`, and of `half`; NULL: it belongs to the communicator. */
	void *memory, *half_memory;
	struct ct_bucket *buckets; /* [n_buckets] */
	int n_buckets;
	struct ct_bucket_choice choice; /* of their size */
	ct_reducer *reducer;
};

#endif
