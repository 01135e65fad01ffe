/* Finds out which rank is late or has issued a different operation; gloo itself only detects that no data arrives. A
 * rank that has waited for a long time writes its latest operations to the store and reads those of the other ranks. */
#ifndef CT_DIST_COMM_GLOO_DIAGNOSE_H
#define CT_DIST_COMM_GLOO_DIAGNOSE_H

#include "dist/comm/comm_impl.h"

#define CT_GLOO_HISTORY 16

struct ct_gloo_issue {
	int64_t number; /* number of the collective, or -1 - k for message k */
	int64_t n;
	int32_t kind, dtype, op, root, tag, unused;
};

/* The latest operations of this rank. Posting an operation adds an entry; a long wait or a failure publishes all
 * entries. */
struct ct_gloo_history {
	pthread_mutex_t lock;
	struct ct_gloo_issue last[CT_GLOO_HISTORY]; /* ring */
	int64_t n_issued, n_collectives, n_messages;
	int64_t published; /* n_issued when the history was last published */
	bool ready;
};

void ct__gloo_history_init(struct ct_gloo_history *h);
void ct__gloo_history_release(struct ct_gloo_history *h);
/* Records a posted operation and returns its tag for gloo. Ranks that issue the same operation as their k-th collective
 * get the same tag. */
uint32_t ct__gloo_history_add(struct ct_gloo_history *h, ct_work *w);
/* Returns CT_MISMATCH if another waiting rank has issued a different operation in place of w. Otherwise, returns CT_OK
 * if `final` is false. If `final` is true because the deadline has passed, returns CT_TIMEOUT with a message that names
 * the ranks that have not reached w. */
enum ct_status ct__gloo_diagnose(ct_comm *c, struct ct_gloo_history *h, const ct_work *w, bool final) CT_MUST_CHECK;

#endif
