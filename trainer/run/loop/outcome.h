/* The outcome of the update of a step: what the training loop reports, and whether training goes on. */
#ifndef CT_TRAINER_RUN_LOOP_OUTCOME_H
#define CT_TRAINER_RUN_LOOP_OUTCOME_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/step/step.h"

/* Fails with CT_NUMERIC if updates have stopped; the message names the step and the reason. */
enum ct_status ct_outcome_check(const struct ct_session *s, const struct ct_step_result *r) CT_MUST_CHECK;
/* Keeps the loss scale in the session's state, for checkpoints, and reports an update that was skipped. metrics is NULL
 * on all ranks but rank 0. */
void ct_outcome_note_scale(struct ct_session *s, ct_metrics_log *metrics, const struct ct_step_result *r);

#endif
