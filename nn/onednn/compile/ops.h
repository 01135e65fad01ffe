/* Lowers the operations without weights: pooling, ReLU, sum, dropout, drop path and losses. Calls norm.h for norms. */
#ifndef CT_NN_ONEDNN_COMPILE_OPS_H
#define CT_NN_ONEDNN_COMPILE_OPS_H

#include "nn/onednn/program/program.h"

enum ct_status ct__onednn_op_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_op_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Appends the task that copies the gradient of the input to the caller. */
enum ct_status ct__onednn_input_gradient(struct onednn_program *p) CT_MUST_CHECK;

#endif
