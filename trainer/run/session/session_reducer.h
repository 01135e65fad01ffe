/* The part of a session that sums gradients over ranks: their memory, the buckets and the reducer. For session.c only.
 */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_REDUCER_H
#define CT_TRAINER_RUN_SESSION_SESSION_REDUCER_H

#include "trainer/run/session/session.h"

/* Allocates the gradients and the step scalars, lets the net use them, and creates the reducer. May measure the
 * communicator, so all ranks must call it. */
enum ct_status ct_session_build_reducer(struct ct_session *s) CT_MUST_CHECK;
/* Frees the buckets, the arenas and their memory on this device. Call it after the reducer and the net have been
 * destroyed. */
void ct_session_release_grad(ct_device *device, struct ct_session_grad *g);

#endif
