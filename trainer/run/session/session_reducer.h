/* The part of a session that sums gradients over ranks: their memory, the buckets and the reducer. For session.c only.
 */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_REDUCER_H
#define CT_TRAINER_RUN_SESSION_SESSION_REDUCER_H

#include "trainer/run/session/session.h"

/* Allocates the gradients and the step scalars, lets the net use them, and creates the reducer. May measure the
 * communicator, so all ranks must call it. */
enum ct_status ct_session_build_reducer(struct ct_session *s) CT_MUST_CHECK;
/* Frees the memory of the gradients. Call it after the reducer, the net and the arenas have been destroyed. */
void ct_session_release_reducer(struct ct_session *s);

#endif
