/* Runs the tasks of a bound program. */
#ifndef CT_NN_ONEDNN_RUN_RUN_H
#define CT_NN_ONEDNN_RUN_RUN_H

#include "nn/onednn/program/program.h"

/* Runs the tasks with indices `begin` to `end` - 1. `begin` is 0 for the forward pass. */
enum ct_status ct__onednn_run(struct onednn_program *p, int begin, int end) CT_MUST_CHECK;

#endif
