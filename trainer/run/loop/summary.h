/* The summary of a run that ends without a failure. */
#ifndef CT_TRAINER_RUN_LOOP_SUMMARY_H
#define CT_TRAINER_RUN_LOOP_SUMMARY_H

#include "trainer/run/loop/meter.h"
#include "trainer/run/metrics/metrics.h"

/* Computes the digest of the weights and writes the `end` line. loss: of the last step. metrics is NULL on all ranks
 * but rank 0. Collective if there is a pipeline. */
enum ct_status ct_summary_write(const struct ct_session *s, const struct ct_meter *meter, double loss,
				enum ct_run_end end, ct_metrics_log *metrics) CT_MUST_CHECK;

#endif
