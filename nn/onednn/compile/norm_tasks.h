/* Lowers batch norm together with the operations that are computed in the same pass over the data. */
#ifndef CT_NN_ONEDNN_COMPILE_NORM_TASKS_H
#define CT_NN_ONEDNN_COMPILE_NORM_TASKS_H

#include "nn/onednn/program/program.h"

enum ct_status ct__onednn_norm_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_norm_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Lower a sum together with the norm that is fused into it. */
enum ct_status ct__onednn_join_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_join_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
