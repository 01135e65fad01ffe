/* Runs the tasks of a bound program. */
#ifndef CT_NN_ONEDNN_RUN_RUN_H
#define CT_NN_ONEDNN_RUN_RUN_H

#include "nn/onednn/program/program.h"

/* Runs the tasks with indices `begin` to `end` - 1. If profiling is on, adds the time of each task to seconds[node]. */
enum ct_status ct__onednn_run(struct onednn_program *p, int begin, int end, double *seconds) CT_MUST_CHECK;

#endif
