/* Moves the values of a model between the stages of the first replica and host memory of rank 0, for checkpoints. All
 * ranks call these functions; only those of the first replica take part. */
#ifndef CT_TRAINER_RUN_PIPELINE_GATHER_H
#define CT_TRAINER_RUN_PIPELINE_GATHER_H

#include "trainer/run/checkpoint/whole.h"
#include "trainer/run/pipeline/pipeline.h"

/* Copies the values of all stages to *w on rank 0, and initializes *w there if it is zeroed. If optim and ema are NULL,
 * only parameters and running statistics are copied. Waits for the posted work of the net. */
enum ct_status ct_pipeline_gather(const struct ct_pipeline *p, ct_net *net, ct_optim *optim, ct_ema *ema,
				  struct ct_whole *w) CT_MUST_CHECK;
/* Does the opposite. */
enum ct_status ct_pipeline_scatter(const struct ct_pipeline *p, ct_net *net, ct_optim *optim, ct_ema *ema,
				   const struct ct_whole *w) CT_MUST_CHECK;

#endif
