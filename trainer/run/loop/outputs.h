/* What rank 0 writes to the run directory and prints when training starts. */
#ifndef CT_TRAINER_RUN_LOOP_OUTPUTS_H
#define CT_TRAINER_RUN_LOOP_OUTPUTS_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"

/* Checks that there is space for checkpoints, writes config.yaml and classes.txt, opens the metrics with their `run`
 * line, and prints the description of the run. Called by rank 0. *m is owned by the caller, also after a failure; it is
 * unchanged if the metrics were not opened. */
enum ct_status ct_outputs_open(struct ct_session *s, ct_metrics_log **m) CT_MUST_CHECK;

#endif
