/* Finds out which rank is late or does something else. gloo itself only sees that nothing arrives. A rank that has
 * waited long writes its last operations to the store and reads those of the others. */
#ifndef CT_DIST_COMM_GLOO_DIAGNOSE_H
#define CT_DIST_COMM_GLOO_DIAGNOSE_H

#include "dist/comm/comm_impl.h"

#define CT_GLOO_HISTORY 16

struct ct_gloo_issue {
	int64_t number; /* of the collective; -1 - k for the k-th message */
	int64_t n;
	int32_t kind, dtype, op, root, tag, unused;
};

/* Posting an operation adds an entry; a wait or a failure publishes them. */
struct ct_gloo_history {
	pthread_mutex_t lock;
	struct ct_gloo_issue last[CT_GLOO_HISTORY]; /* ring */
	int64_t n_issued, n_collectives, n_messages;
	int64_t published; /* n_issued at the last publication */
	bool ready;
};

void ct__gloo_history_init(struct ct_gloo_history *h);
void ct__gloo_history_release(struct ct_gloo_history *h);
/* Notes a posted operation; returns its tag for gloo, equal on all ranks that issue the same as their k-th collective.
 */
uint32_t ct__gloo_history_add(struct ct_gloo_history *h, ct_work *w);
/* CT_MISMATCH when a rank that also waits has issued another operation in place of w. final: the wait is over, so
 * that the result is otherwise CT_TIMEOUT, which names the ranks that have not reached w. Else CT_OK. */
enum ct_status ct__gloo_diagnose(ct_comm *c, struct ct_gloo_history *h, const ct_work *w, bool final) CT_MUST_CHECK;

#endif
