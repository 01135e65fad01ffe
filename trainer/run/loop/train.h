/* The training loop of one worker. */
#ifndef CT_TRAINER_RUN_LOOP_TRAIN_H
#define CT_TRAINER_RUN_LOOP_TRAIN_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"

/* Trains until the last step of the plan, until the target accuracy is reached, or until a signal arrives. After a
 * signal, saves a checkpoint and fails with CT_INTERRUPTED. metrics is NULL except on rank 0. start_ns is the start
 * of the job on the ct_now_ns clock, for startup_seconds. signals is the descriptor from ct_signals_open. *end is
 * set even if the call fails. */
enum ct_status ct_train(struct ct_session *s, ct_metrics_log *metrics, int64_t start_ns, int signals,
			enum ct_run_end *end) CT_MUST_CHECK;

#endif
