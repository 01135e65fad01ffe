/* Resuming: rank 0 finds and reads the checkpoint, everybody gets its values by broadcast (only rank 0 needs the file
 * system). */
#ifndef CT_TRAINER_LOOP_RESUME_H
#define CT_TRAINER_LOOP_RESUME_H

#include "trainer/loop/session.h"

/* As train.resume says: auto (newest whole checkpoint of the run folder, or a fresh start), never (an old run in the
 * folder is moved aside, nothing is deleted), must, or a checkpoint's path. A checkpoint of another config, model or
 * data is CT_CONFIG naming the keys that differ. A fresh start takes model.weights (trainer/checkpoint/model_weights.h). Afterwards
 * all ranks hold rank 0's parameters, buffers, optimizer state and position. */
enum ct_status ct_resume(struct ct_session *s) CT_MUST_CHECK;

#endif
