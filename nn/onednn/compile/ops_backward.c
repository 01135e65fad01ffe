/* The backward pass of operations without weights. Each function takes the gradient of its node, which is complete by
 * then, and passes one to each input that needs it. It works in place unless the gradient is shared. A ReLU needs only
 * its output, so its input is not kept. If the ReLU was fused into a norm or a join, its gradient moves there, and the
 * norm's tasks apply the ReLU. A sum passes one buffer to both addends, and marks it as shared. */
#include "nn/onednn/compile/ops.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/compile/norm_tasks.h"

/* Computes dx = dy where y > 0 for the ReLU `id`, whose input has the same layout. */
static enum ct_status emit_relu(struct onednn_program *p, int id, int *dx)
{
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_RELU_FORWARD, .src = v->layout.desc, .dst = v->layout.desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dy = v->gradient.buffer;

	CT_TRY(ct__onednn_prim(p, id, &spec, &spec.forward));
	spec.op = CT_DNNL_RELU_BACKWARD;
	spec.other = v->layout.desc;
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_in_place(p, v, dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, *dx);
	return CT_OK;
}

enum ct_status ct__onednn_relu_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *x = &p->values[node->in[0]];
	int dx;

	if (x->fusion.relu != id) {
		CT_TRY(emit_relu(p, id, &dx));
		return ct__onednn_give_grad(p, id, node->in[0], dx, p->values[id].layout.desc, false);
	}
	if (x->fusion.pool >= 0)
		return CT_OK;
	if (ct__onednn_node(p, node->in[0])->op == CT_OP_BATCH_NORM || x->fusion.norm >= 0) {
		/* The backward pass of the norm applies the ReLU. */
		x->gradient.buffer = p->values[id].gradient.buffer;
		x->gradient.shared = p->values[id].gradient.shared;
		x->gradient.second = p->values[id].gradient.second;
		x->gradient.second_shared = p->values[id].gradient.second_shared;
		p->values[id].gradient.gone = true;
		return CT_OK;
	}
	CT_TRY(emit_relu(p, id, &x->gradient.buffer));
	x->gradient.shared = false;
	return CT_OK;
}

enum ct_status ct__onednn_pool_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_window w = node->win;
	struct onednn_task *t;
	const ct_dnnl_prim *prim;
	int dx;

	if (v->kept.src < 0) /* the backward pass of the norm computes it */
		return CT_OK;
	if (node->op == CT_OP_GLOBAL_AVG_POOL) {
		const int *dims = ct__dnnl_desc_dims(v->kept.src_desc);

		w = (struct ct_window){dims[2], dims[3], 1, 1, 0, 0, 1, 1};
	}
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_POOL_BACKWARD,
					  .src = v->kept.src_desc,
					  .dst = v->layout.desc,
					  .average = node->op != CT_OP_MAX_POOL,
					  .kernel = {w.r, w.s},
					  .stride = {w.stride_h, w.stride_w},
					  .pad = {w.pad_h, w.pad_w},
					  .dilation = {w.dilation_h, w.dilation_w},
					  .forward = v->kept.prim};
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->kept.src_desc), &dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->gradient.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	if (v->kept.workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.workspace);
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->kept.src_desc, false);
}

enum ct_status ct__onednn_add_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const bool both = p->values[node->in[0]].gradient.needed && p->values[node->in[1]].gradient.needed;

	if (v->fusion.norm >= 0)
		return ct__onednn_join_backward(p, id);
	for (int i = 0; i < 2; i++) {
		if (p->values[node->in[i]].gradient.needed)
			CT_TRY(ct__onednn_give_grad(p, id, node->in[i], v->gradient.buffer, v->layout.desc,
						    both || v->gradient.shared));
	}
	return CT_OK;
}

enum ct_status ct__onednn_dropout_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int dx, dy = v->gradient.buffer;

	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(ct__onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct__dnnl_desc_bytes(v->layout.desc) / ct__dnnl_type_bytes(ct__dnnl_desc_type(v->layout.desc));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->kept.mask);
	return ct__onednn_give_grad(p, id, ct__onednn_node(p, id)->in[0], dx, v->layout.desc, false);
}

enum ct_status ct__onednn_loss_backward(struct onednn_program *p, int id)
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

enum ct_status ct__onednn_output_backward(struct onednn_program *p, int id)
{
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	int dims[4], grad;

	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_plain(p->dnnl, 4, dims, &plain));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &grad));
	CT_TRY(ct__onednn_task(p, ONEDNN_OUTPUT_GRADIENT, id, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, grad);
	t->n = ct__dnnl_desc_bytes(plain) / sizeof(float);
	return ct__onednn_give_grad(p, id, ct__onednn_node(p, id)->in[0], grad, plain, false);
}

enum ct_status ct__onednn_input_gradient(struct onednn_program *p)
{
	const struct onednn_value *v = &p->values[0];
	const ct_dnnl_desc *plain;
	struct onednn_ref grad;
	struct onednn_task *t;
	int dims[4];

	ct__onednn_dims(p, 0, dims);
	CT_TRY(ct__dnnl_plain(p->dnnl, 4, dims, &plain));
	CT_TRY(ct__onednn_relayout(p, 0, ONEDNN_BUF(v->gradient.buffer), v->layout.desc, plain, &grad));
	CT_TRY(ct__onednn_task(p, ONEDNN_INPUT_GRADIENT, 0, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, grad);
	t->n = ct__dnnl_desc_bytes(plain) / sizeof(float);
	return CT_OK;
}
