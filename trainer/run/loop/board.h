/* What TensorBoard shows besides curves: images, histograms of weights and gradients, and hyperparameters. Rank 0
 * writes it, unless log.tensorboard is false. A failure is only a warning. */
#ifndef CT_TRAINER_RUN_LOOP_BOARD_H
#define CT_TRAINER_RUN_LOOP_BOARD_H

#include "trainer/run/evaluation/predictions.h"
#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"

/* Call it at the end of an epoch, when no posted step is left. metrics is NULL on all ranks but rank 0. In a pipeline,
 * no rank has all weights, so nothing is written. */
void ct_board_epoch(struct ct_session *s, ct_metrics_log *metrics);
/* Writes the worst mistakes of an evaluation. */
void ct_board_mistakes(const struct ct_session *s, ct_metrics_log *metrics, const struct ct_predictions *p);

#endif
