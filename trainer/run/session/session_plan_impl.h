/* The part of a session that chooses the plan of the net (nn/net_plan.h). */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_PLAN_IMPL_H
#define CT_TRAINER_RUN_SESSION_SESSION_PLAN_IMPL_H

#include "trainer/run/session/session.h"

/* Collective. Rank 0 chooses the plan, and all ranks use it: sets s->net_plan, s->run.net_plan and s->plan.net.plan.
 * These stay empty if the engine of rank 0 has no plans. */
enum ct_status ct__session_agree_on_plan(struct ct_session *s, bool train) CT_MUST_CHECK;

#endif
