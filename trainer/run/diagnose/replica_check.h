/* Compares the state of all ranks that should have the same: weights, optimizer states, EMA weights and, if all ranks
 * compute the same ones, running statistics. A difference means that a rank has computed or stored wrong values, for
 * example because of a faulty memory, or that the hosts have different CPUs. Ranks exchange one fingerprint of 64 bits;
 * only if these differ, they exchange those of all parameters to find the first one that differs. */
#ifndef CT_TRAINER_RUN_DIAGNOSE_REPLICA_CHECK_H
#define CT_TRAINER_RUN_DIAGNOSE_REPLICA_CHECK_H

#include "trainer/run/session/session.h"

typedef struct ct_replica_check ct_replica_check;

/* Borrows the session. *out is NULL if there is nothing to compare: dist.check_weights=0, or a single replica. */
enum ct_status ct_replica_check_create(struct ct_session *s, ct_replica_check **out) CT_MUST_CHECK;
/* Logs how much time the checks took. NULL is allowed. */
void ct_replica_check_destroy(ct_replica_check *c);
/* Returns true if the state must be compared when this number of steps has been done. c may be NULL. */
bool ct_replica_check_due(const ct_replica_check *c, uint64_t step);
/* Compares the state after `step` steps. Collective; no posted step may be left. Fails with CT_MISMATCH on all ranks;
 * the message names the rank that differs from most others, and the parameter. */
enum ct_status ct_replica_check_run(ct_replica_check *c, uint64_t step) CT_MUST_CHECK;

#endif
