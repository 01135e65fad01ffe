/* Describes on the console what a run starts from (model.weights) and what it trains (model.freeze, optim.lr_factors).
 */
#ifndef CT_TRAINER_RUN_LOOP_FINE_TUNING_H
#define CT_TRAINER_RUN_LOOP_FINE_TUNING_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"

/* Returns the number of elements of all parameters that are not frozen. */
size_t ct_fine_tuning_params(const struct ct_session *s);
/* Prints a line for each of them that applies. Called by rank 0. */
void ct_fine_tuning_say(const struct ct_session *s, ct_metrics_log *m);

#endif
