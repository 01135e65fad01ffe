/* Functions outside norm_tasks.c that lower norms. */
#ifndef CT_NN_ONEDNN_COMPILE_NORM_IMPL_H
#define CT_NN_ONEDNN_COMPILE_NORM_IMPL_H

#include "nn/onednn/program/program.h"

/* norm_library.c: norms computed by oneDNN's primitives. */
enum ct_status ct__onednn_norm_library_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_library_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Appends the task that updates the running statistics with the batch statistics. */
enum ct_status ct__onednn_running_statistics(struct onednn_program *p, int id) CT_MUST_CHECK;
/* norm_pool.c: norm, ReLU and max pool computed by kernels/norm_pool.h. */
enum ct_status ct__onednn_norm_pool_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_pool_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
