/* Who is late, and who does something else? gloo itself only sees that nothing arrives. A rank that waits long says in
 * the store which operations it issued last and reads what the others say. */
#ifndef CT_DIST_COMM_GLOO_DIAGNOSE_H
#define CT_DIST_COMM_GLOO_DIAGNOSE_H

#include "dist/comm/comm_impl.h"

#define CT_GLOO_HISTORY 16

struct ct_gloo_issue {
	int64_t number; /* of the collective; -1 - k for the k-th message */
	int64_t n;
	int32_t kind, dtype, op, root, tag, unused;
};

/* The poster adds, whoever waits or fails publishes. */
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
/* CT_MISMATCH when a rank that also waits has issued something else in w's place. final: the wait is over, so otherwise
 * it is CT_TIMEOUT naming the ranks that have not come to it. Else CT_OK. */
enum ct_status ct__gloo_diagnose(ct_comm *c, struct ct_gloo_history *h, const ct_work *w, bool final) CT_MUST_CHECK;

#endif
