/* Norms that norm.c leaves to other files. */
#ifndef CT_NN_ONEDNN_COMPILE_NORM_IMPL_H
#define CT_NN_ONEDNN_COMPILE_NORM_IMPL_H

#include "nn/onednn/program/program.h"

/* norm_library.c: by oneDNN's primitives */
enum ct_status ct__onednn_norm_library_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_library_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Appends the update of the running statistics by those of the batch. */
enum ct_status ct__onednn_running_statistics(struct onednn_program *p, int id) CT_MUST_CHECK;
/* norm_pool.c: norm, ReLU and max pool by kernels/norm_pool.h. done: false when layout or processor do not suit it. */
enum ct_status ct__onednn_norm_pool_forward(struct onednn_program *p, int id, bool *done) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_pool_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
