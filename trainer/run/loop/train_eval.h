/* The evaluations during training: notes their results in the state of the run, and keeps the predictions of the best
 * one. */
#ifndef CT_TRAINER_RUN_LOOP_TRAIN_EVAL_H
#define CT_TRAINER_RUN_LOOP_TRAIN_EVAL_H

#include "trainer/run/evaluation/evaluate.h"
#include "trainer/run/metrics/metrics.h"

struct ct_train_eval {
	struct ct_session *s;       /* borrowed */
	ct_metrics_log *metrics;    /* borrowed; rank 0 only */
	struct ct_predictions best; /* rank 0: of the best evaluation of this process; n is 0 if there was none */
};

/* Collective. Evaluates after s->state.step and writes the result to the metrics. *best is true if it is better than
 * all earlier ones. `progress` is called as in ct_evaluate, on rank 0. */
enum ct_status ct_train_eval_run(struct ct_train_eval *e, void (*progress)(void *user, double done), void *user,
				 bool *best) CT_MUST_CHECK;
/* Returns whether the last evaluation has reached train.target_top1. */
bool ct_train_eval_reached_target(const struct ct_session *s);
/* Writes the predictions of the best evaluation to RUN/eval. A failure is only a warning, like a failure of the report,
 * which reads these files. */
void ct_train_eval_write(const struct ct_train_eval *e);
void ct_train_eval_release(struct ct_train_eval *e);

#endif
