/* The table of operations. Nodes are lowered one by one, but a node that was fused is computed by another one. It then
 * has a root already, or a convolution has absorbed it, and nothing is appended for it. */
#include "nn/onednn/compile/drop_path.h"
#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/layer.h"
#include "nn/onednn/compile/norm_tasks.h"
#include "nn/onednn/compile/ops.h"

static enum ct_status input_forward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[0];
	const struct ct_net *net = p->base.net;
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int dims[4];

	(void)id;
	ct__onednn_dims(p, 0, dims);
	CT_TRY(ct__dnnl_plain_of(p->dnnl, ct__onednn_type(p), 4, dims, &desc));
	CT_TRY(ct__onednn_own_result(p, 0, desc));
	p->input = v->layout.buffer;
	/* A full batch of floats is read directly from the caller's memory. */
	if (p->base.mode == CT_TRAIN && net->opts.input == CT_INPUT_F32_NCHW && ct__onednn_type(p) == CT_DNNL_F32)
		p->buffers[v->layout.buffer].bytes = 0;
	CT_TRY(ct__onednn_task(p, ONEDNN_INPUT, 0, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	return CT_OK;
}

/* For the input, and for a flatten, whose users pass their gradients to its input. */
static enum ct_status no_backward(struct onednn_program *p, int id)
{
	(void)p;
	(void)id;
	return CT_OK;
}

#define TYPES (CT_IN(FP32) | CT_IN(BF16))
static const struct onednn_op op_input = {TYPES, input_forward, no_backward};
static const struct onednn_op op_linear = {TYPES, ct__onednn_layer_forward, ct__onednn_layer_backward};
static const struct onednn_op op_conv2d = {TYPES, ct__onednn_layer_forward, ct__onednn_layer_backward};
static const struct onednn_op op_batch_norm = {TYPES, ct__onednn_norm_forward, ct__onednn_norm_backward};
static const struct onednn_op op_relu = {TYPES, ct__onednn_relu_forward, ct__onednn_relu_backward};
static const struct onednn_op op_max_pool = {TYPES, ct__onednn_pool_forward, ct__onednn_pool_backward};
static const struct onednn_op op_avg_pool = {TYPES, ct__onednn_pool_forward, ct__onednn_pool_backward};
static const struct onednn_op op_global_avg_pool = {TYPES, ct__onednn_pool_forward, ct__onednn_pool_backward};
static const struct onednn_op op_add = {TYPES, ct__onednn_add_forward, ct__onednn_add_backward};
static const struct onednn_op op_flatten = {TYPES, ct__onednn_flatten_forward, no_backward};
static const struct onednn_op op_dropout = {TYPES, ct__onednn_dropout_forward, ct__onednn_dropout_backward};
static const struct onednn_op op_drop_path = {TYPES, ct__onednn_drop_path_forward, ct__onednn_drop_path_backward};
static const struct onednn_op op_softmax_cross_entropy = {TYPES, ct__onednn_loss_forward, ct__onednn_loss_backward};
static const struct onednn_op op_mse = {TYPES, ct__onednn_loss_forward, ct__onednn_loss_backward};
static const struct onednn_op op_output = {TYPES, ct__onednn_output_forward, ct__onednn_output_backward};

const struct onednn_op *ct__onednn_op(enum ct_op op)
{
#define ROW(ID, name) [CT_OP_##ID] = &op_##name,
	static const struct onednn_op *const rows[] = {CT_OPS(ROW)};

	return rows[op];
}

enum ct_status ct__onednn_op_forward(struct onednn_program *p, int id)
{
	if (p->values[id].layout.root >= 0 || p->values[id].fold.absorbed) /* another node computes it */
		return CT_OK;
	return ct__onednn_op(ct__onednn_node(p, id)->op)->forward(p, id);
}

enum ct_status ct__onednn_op_backward(struct onednn_program *p, int id)
{
	return p->values[id].gradient.needed ? ct__onednn_op(ct__onednn_node(p, id)->op)->backward(p, id) : CT_OK;
}
