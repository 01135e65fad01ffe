/* Resuming: rank 0 finds and reads the checkpoint and broadcasts its values. Only rank 0 needs access to the file
 * system. */
#ifndef CT_TRAINER_LOOP_RESUME_H
#define CT_TRAINER_LOOP_RESUME_H

#include "trainer/loop/session.h"

/* Depends on train.resume. auto: the newest intact checkpoint of the run directory, or a start from scratch if there is
 * none. never: from scratch (ct_run_dir_prepare has moved an old run aside; nothing is deleted). must: as auto, but
 * CT_NOT_FOUND without a checkpoint. Otherwise: the path of a checkpoint. CT_CONFIG if the checkpoint is of another
 * config, model or data; the message names the keys that differ. A start from scratch loads model.weights
 * (trainer/checkpoint/model_weights.h). Afterwards all ranks have the parameters, buffers, optimizer state and position
 * of rank 0. */
enum ct_status ct_resume(struct ct_session *s) CT_MUST_CHECK;

#endif
