#include "nn/onednn/onednn_impl.h"

#include <string.h>

/* Where a gradient of the same layout as the value `v` may go: over v's own gradient unless others read it. */
enum ct_status ct__onednn_in_place(struct onednn_program *p, struct onednn_value *v, int *out)
{
	*out = v->grad;
	if (v->grad_shared)
		return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->desc), out);
	v->grad_gone = true;
	return CT_OK;
}

/* dx = dy where y > 0, for the ReLU node `id` whose input's gradient has the same layout. */
static enum ct_status emit_relu(struct onednn_program *p, int id, int *dx)
{
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_RELU_FORWARD, .src = v->desc, .dst = v->desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dy = v->grad;

	CT_TRY(ct__onednn_prim(p, id, &spec, &spec.forward));
	spec.op = CT_DNNL_RELU_BACKWARD;
	spec.other = v->desc;
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_in_place(p, v, dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, *dx);
	return CT_OK;
}

static enum ct_status compile_relu(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *x = &p->values[node->in[0]];
	int dx;

	if (x->fused_relu != id) {
		CT_TRY(emit_relu(p, id, &dx));
		return ct__onednn_give_grad(p, id, node->in[0], dx, p->values[id].desc, false);
	}
	if (x->fused_pool >= 0)
		return CT_OK;
	if (ct__onednn_node(p, node->in[0])->op == CT_OP_BATCH_NORM || x->fused_norm >= 0) {
		/* The norm's own backward applies the ReLU. */
		x->grad = p->values[id].grad;
		x->grad_shared = p->values[id].grad_shared;
		x->grad2 = p->values[id].grad2;
		x->grad2_shared = p->values[id].grad2_shared;
		p->values[id].grad_gone = true;
		return CT_OK;
	}
	CT_TRY(emit_relu(p, id, &x->grad));
	x->grad_shared = false;
	return CT_OK;
}

static enum ct_status compile_pool(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_window w = node->win;
	struct onednn_task *t;
	const ct_dnnl_prim *prim;
	int dx;

	if (node->op == CT_OP_GLOBAL_AVG_POOL) {
		const int *dims = ct__dnnl_desc_dims(v->src_desc);
		w = (struct ct_window){dims[2], dims[3], 1, 1, 0, 0, 1, 1};
	}
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_POOL_BACKWARD,
					  .src = v->src_desc,
					  .dst = v->desc,
					  .average = node->op != CT_OP_MAX_POOL,
					  .kernel = {w.r, w.s},
					  .stride = {w.stride_h, w.stride_w},
					  .pad = {w.pad_h, w.pad_w},
					  .dilation = {w.dilation_h, w.dilation_w},
					  .forward = v->prim};
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->src_desc), &dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->grad);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	if (v->workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->src_desc, false);
}

static enum ct_status compile_add(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const bool both = p->values[node->in[0]].needs_grad && p->values[node->in[1]].needs_grad;

	for (int i = 0; i < 2; i++) {
		if (p->values[node->in[i]].needs_grad)
			CT_TRY(ct__onednn_give_grad(p, id, node->in[i], v->grad, v->desc, both || v->grad_shared));
	}
	return CT_OK;
}

static enum ct_status compile_dropout(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int dx, dy = v->grad;

	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(ct__onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct__dnnl_desc_bytes(v->desc) / ct__dnnl_type_bytes(ct__dnnl_desc_type(v->desc));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->mask);
	return ct__onednn_give_grad(p, id, ct__onednn_node(p, id)->in[0], dx, v->desc, false);
}

static enum ct_status compile_loss(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_shape s = ct__onednn_node(p, node->in[0])->shape;
	const int dims[2] = {p->base.n, s.c * s.h * s.w};
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	int grad;

	CT_TRY(ct__dnnl_plain(p->dnnl, 2, dims, &plain));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &grad));
	CT_TRY(ct__onednn_task(p, ONEDNN_LOSS_SCALE, id, &t));
	t->n = (size_t)dims[0] * (size_t)dims[1];
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, grad);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, p->dlogits);
	return ct__onednn_give_grad(p, id, node->in[0], grad, plain, false);
}

enum ct_status ct__onednn_backward_op(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);

	switch (node->op) {
	case CT_OP_BATCH_NORM:
		return ct__onednn_norm_backward(p, id);
	case CT_OP_RELU:
		return compile_relu(p, id);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return p->values[id].src >= 0 ? compile_pool(p, id) : CT_OK; /* else the norm's backward pass has it */
	case CT_OP_ADD:
		return p->values[id].fused_norm >= 0 ? ct__onednn_join_backward(p, id) : compile_add(p, id);
	case CT_OP_DROPOUT:
		return compile_dropout(p, id);
	case CT_OP_DROP_PATH:
		return ct__onednn_drop_path_backward(p, id);
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return compile_loss(p, id);
	default: /* input; flatten: its users give their gradients to the root */
		return CT_OK;
	}
}
