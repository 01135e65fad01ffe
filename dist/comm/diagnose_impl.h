/* Finds out which rank is late or has issued a different operation, for back ends whose library (gloo, MPI) only detects
 * that no data arrives. A rank that has waited for a long time writes its latest operations to the store and reads those
 * of the other ranks. */
#ifndef CT_DIST_COMM_DIAGNOSE_IMPL_H
#define CT_DIST_COMM_DIAGNOSE_IMPL_H

#include "dist/comm/comm_impl.h"

#define CT_COMM_HISTORY 16

struct ct_comm_issue {
	int64_t number; /* number of the collective, or -1 - k for message k */
	int64_t n;
	int32_t kind, dtype, op, root, tag, unused;
};

/* The latest operations of this rank. Posting an operation adds an entry; a long wait or a failure publishes all
 * entries. */
struct ct_comm_history {
	pthread_mutex_t lock;
	struct ct_comm_issue last[CT_COMM_HISTORY]; /* ring */
	int64_t n_issued, n_collectives, n_messages;
	int64_t published; /* n_issued when the history was last published */
	bool ready;
};

void ct__comm_history_init(struct ct_comm_history *h);
void ct__comm_history_release(struct ct_comm_history *h);
/* Records a posted operation and returns its tag. Ranks that issue the same operation as their k-th collective get the
 * same tag. Uses ct_work.scratch[5]. */
uint32_t ct__comm_history_add(struct ct_comm_history *h, ct_work *w);
/* Returns CT_MISMATCH if another waiting rank has issued a different operation in place of w. Otherwise, returns CT_OK
 * if `final` is false. If `final` is true because the deadline has passed, returns CT_TIMEOUT with a message that names
 * the ranks that have not reached w. */
enum ct_status ct__comm_diagnose(ct_comm *c, struct ct_comm_history *h, const ct_work *w, bool final) CT_MUST_CHECK;

#endif
