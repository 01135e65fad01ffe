/* Resumes a run: rank 0 finds and reads the checkpoint and broadcasts its values. */
#ifndef CT_TRAINER_RUN_LOOP_RESUME_H
#define CT_TRAINER_RUN_LOOP_RESUME_H

#include "trainer/run/session/session.h"

/* Sets the initial state of training according to train.resume:
 * - auto: the newest valid checkpoint in the run directory, or a start from scratch if there is none.
 * - never: a start from scratch. ct_run_dir_prepare has already renamed the directory of an earlier run; nothing is
 *   deleted.
 * - must: like auto, but fails with CT_NOT_FOUND if there is no checkpoint.
 * - Any other value is the path of a checkpoint.
 * After a restart, by Slurm or by launch.restarts, the newest valid checkpoint is used in all cases, if this job has
 * saved one.
 * Fails with CT_CONFIG if the checkpoint was saved with another config, model or data; the message lists the keys that
 * differ. A start from scratch loads model.weights (trainer/run/checkpoint/model_weights.h). Afterwards, all ranks have
 * the parameters, buffers, optimizer state and position of rank 0. */
enum ct_status ct_resume(struct ct_session *s) CT_MUST_CHECK;
/* Replaces `precision: auto` by the precision of the checkpoint from which the run will continue, or, if there is none,
 * by the choice for this machine. Every rank calls it before it joins the others, which then compare their configs.
 * restarted: this is not the first start of the job, which may continue from what it has saved. */
enum ct_status ct_resume_settle(struct ct_config *c, bool restarted) CT_MUST_CHECK;

#endif
