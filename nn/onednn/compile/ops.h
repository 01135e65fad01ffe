/* The table of operations, and the functions that lower the operations without weights: pooling, ReLU, sum, dropout and
 * losses. layer.h, norm_tasks.h and drop_path.h declare the others. */
#ifndef CT_NN_ONEDNN_COMPILE_OPS_H
#define CT_NN_ONEDNN_COMPILE_OPS_H

#include "nn/onednn/program/program.h"

/* How the engine computes an operation. Each function appends the tasks of node `id`. */
struct onednn_op {
	unsigned precisions; /* struct ct_engine_ops.computes */
	enum ct_status (*forward)(struct onednn_program *p, int id);
	enum ct_status (*backward)(struct onednn_program *p, int id);
};
const struct onednn_op *ct__onednn_op(enum ct_op op); /* op.c: one row for each operation */

/* Append the tasks that compute node `id`, or its part of the gradients. Do nothing if another node computes them. */
enum ct_status ct__onednn_op_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_op_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
/* Appends the task that copies the gradient of the input to the caller. */
enum ct_status ct__onednn_input_gradient(struct onednn_program *p) CT_MUST_CHECK;

enum ct_status ct__onednn_relu_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_relu_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_pool_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_pool_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_add_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_add_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_flatten_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_dropout_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_dropout_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_loss_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_loss_backward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_output_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_output_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
