/* The kinds of tasks that are implemented outside run.c. */
#ifndef CT_NN_ONEDNN_RUN_RUN_IMPL_H
#define CT_NN_ONEDNN_RUN_RUN_IMPL_H

#include "nn/onednn/program/program.h"

/* run_norm.c: batch norm in all implementations except oneDNN's, and drop path. */
enum ct_status ct__onednn_run_norm(struct onednn_program *p, const struct onednn_task *t) CT_MUST_CHECK;
void ct__onednn_run_norm_pool(const struct onednn_program *p, const struct onednn_task *t);
/* fold.c */
void ct__onednn_run_fold(struct onednn_program *p, const struct onednn_task *t);

#endif
