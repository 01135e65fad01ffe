/* What a run decides from its evaluations: to reduce the learning rate (schedule.name=plateau), and to stop early
 * (train.early_stop). The state is in ct_train_state, and is the same on all ranks. */
#ifndef CT_TRAINER_RUN_LOOP_PATIENCE_H
#define CT_TRAINER_RUN_LOOP_PATIENCE_H

#include "trainer/run/evaluation/evaluate.h"
#include "trainer/run/metrics/metrics.h"

/* Notes the result of an evaluation after s->state.step. metrics: NULL on ranks other than 0. */
void ct_patience_note(struct ct_session *s, const struct ct_eval_result *r, ct_metrics_log *metrics);
/* Returns the learning rate of a step after the latest evaluation. */
double ct_patience_lr(const struct ct_session *s, uint64_t step);
/* Returns whether the run stops early. */
bool ct_patience_is_over(const struct ct_session *s);

#endif
