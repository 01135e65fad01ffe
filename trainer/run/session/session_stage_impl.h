/* The part of a session that a stage of a pipeline needs. */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_STAGE_IMPL_H
#define CT_TRAINER_RUN_SESSION_SESSION_STAGE_IMPL_H

#include "trainer/run/session/session.h"

/* If the config requests a pipeline, creates s->pipe and replaces s->group by a communicator of the ranks with the same
 * stage. *co has the options of s->comm. */
enum ct_status ct__session_open_pipeline(struct ct_session *s, const char *backend,
					 const struct ct_comm_opts *co) CT_MUST_CHECK;

#endif
