#include "nn/engine_onednn.h"

#include <string.h>

#define BUFFER(i) ((struct onednn_ref){ ONEDNN_BUFFER, (i) })

static const struct ct_node *node_at(const struct onednn_program *p, int id)
{
	return ct_graph_node(p->base.net->graph, id);
}

static const ct_dnnl_desc *layout_of(const struct onednn_program *p, int param)
{
	return ((const struct onednn_net *)p->base.net->impl)->layout[param];
}

/* Sums a further user's gradient: into the new buffer, or into a fresh one when neither may be written. */
static enum ct_status add_grad(struct onednn_program *p, int node, struct onednn_value *v, int buffer, bool shared)
{
	const struct ct_dnnl_spec spec = { .op = CT_DNNL_ADD, .src = v->desc, .other = v->desc, .dst = v->desc };
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int sum = !shared ? buffer : v->grad;

	if (shared && v->grad_shared)
		CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(v->desc), &sum));
	CT_TRY(ct_onednn_prim(p, node, &spec, &prim));
	CT_TRY(ct_onednn_call(p, node, prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, v->grad);
	ct_onednn_arg_buffer(p, t, CT_DNNL_OTHER, buffer);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, sum);
	v->grad = sum;
	v->grad_shared = false;
	return CT_OK;
}

/* A gradient of input `in` of `node` lies in `buffer`: bring it into the layout of the input's root and add it there.
 * shared: somebody else's gradient is in the same buffer. */
static enum ct_status give_grad(struct onednn_program *p, int node, int in, int buffer, const ct_dnnl_desc *desc, bool shared)
{
	struct onednn_value *v = &p->values[p->values[in].root];
	const int ndims = ct_dnnl_desc_ndims(desc), *dims = ct_dnnl_desc_dims(desc), root_ndims = ct_dnnl_desc_ndims(v->desc);
	struct onednn_ref at = BUFFER(buffer);
	const ct_dnnl_desc *plain;

	if (root_ndims != ndims || memcmp(dims, ct_dnnl_desc_dims(v->desc), (size_t)ndims * sizeof(*dims))) {
		CT_TRY(ct_dnnl_plain(p->dnnl, ndims, dims, &plain));
		CT_TRY(ct_onednn_relayout(p, node, at, desc, plain, &at));
		CT_TRY(ct_dnnl_plain(p->dnnl, root_ndims, ct_dnnl_desc_dims(v->desc), &desc));
	}
	CT_TRY(ct_onednn_relayout(p, node, at, desc, v->desc, &at));
	shared = shared && at.id == buffer;
	if (v->grad >= 0)
		return add_grad(p, node, v, at.id, shared);
	v->grad = at.id;
	v->grad_shared = shared;
	return CT_OK;
}

/* Where a gradient of the same layout as the value `v` may go: over v's own gradient unless others read it. */
static enum ct_status in_place(struct onednn_program *p, struct onednn_value *v, int *out)
{
	*out = v->grad;
	if (v->grad_shared)
		return ct_onednn_buffer(p, ct_dnnl_desc_bytes(v->desc), out);
	v->grad_gone = true;
	return CT_OK;
}

static enum ct_status slice_done(struct onednn_program *p, int id, int param)
{
	struct onednn_task *t;

	if (param < 0)
		return CT_OK;
	CT_TRY(ct_onednn_task(p, ONEDNN_SLICE_DONE, id, &t));
	t->n = (size_t)param;
	return CT_OK;
}

/* dx = dy where y > 0, for the ReLU node `id` whose input's gradient has the same layout. */
static enum ct_status emit_relu(struct onednn_program *p, int id, int *dx)
{
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = { .op = CT_DNNL_RELU_FORWARD, .src = v->desc, .dst = v->desc };
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dy = v->grad;

	CT_TRY(ct_onednn_prim(p, id, &spec, &spec.forward));
	spec.op = CT_DNNL_RELU_BACKWARD;
	spec.other = v->desc;
	CT_TRY(ct_onednn_prim(p, id, &spec, &prim));
	CT_TRY(in_place(p, v, dx));
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, *dx);
	return CT_OK;
}

static enum ct_status compile_relu(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *x = &p->values[node->in[0]];
	int dx;

	if (x->fused_relu != id) {
		CT_TRY(emit_relu(p, id, &dx));
		return give_grad(p, id, node->in[0], dx, p->values[id].desc, false);
	}
	if (node_at(p, node->in[0])->op == CT_OP_BATCH_NORM) {
		/* The norm's own backward applies the ReLU. */
		x->grad = p->values[id].grad;
		x->grad_shared = p->values[id].grad_shared;
		p->values[id].grad_gone = true;
		return CT_OK;
	}
	CT_TRY(emit_relu(p, id, &x->grad));
	x->grad_shared = false;
	return CT_OK;
}

static struct ct_dnnl_spec layer_spec(const struct onednn_program *p, int id, enum ct_dnnl_op conv, enum ct_dnnl_op linear)
{
	const struct ct_node *node = node_at(p, id);
	const struct ct_window *w = &node->win;
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = { .op = (int32_t)linear,
				     .src = v->src_desc,
				     .weights = layout_of(p, node->weight),
				     .dst = v->desc,
				     .forward = v->prim };

	if (node->op == CT_OP_CONV2D) {
		spec.op = (int32_t)conv;
		memcpy(spec.stride, (int32_t[]){ w->stride_h, w->stride_w }, sizeof(spec.stride));
		memcpy(spec.pad, (int32_t[]){ w->pad_h, w->pad_w }, sizeof(spec.pad));
		memcpy(spec.dilation, (int32_t[]){ w->dilation_h, w->dilation_w }, sizeof(spec.dilation));
	}
	return spec;
}

static enum ct_status any_like(struct onednn_program *p, const ct_dnnl_desc *d, const ct_dnnl_desc **out)
{
	return ct_dnnl_any(p->dnnl, ct_dnnl_desc_ndims(d), ct_dnnl_desc_dims(d), out);
}

/* dw and db, straight into the gradient arena where the primitive can write the layout of the weights. */
static enum ct_status emit_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec specs[2] = { layer_spec(p, id, CT_DNNL_CONV_BACKWARD_WEIGHTS, CT_DNNL_LINEAR_BACKWARD_WEIGHTS) };
	const ct_dnnl_desc *layout = specs[0].weights, *chosen;
	const struct onednn_ref arena = { ONEDNN_GRAD, node->weight };
	struct onednn_ref src, dst, dw = arena;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;

	if (node->bias >= 0)
		CT_TRY(ct_dnnl_plain(p->dnnl, 1, &node->shape.c, &specs[0].bias));
	specs[1] = specs[0];
	CT_TRY(any_like(p, specs[0].src, &specs[1].src));
	CT_TRY(any_like(p, specs[0].weights, &specs[1].weights));
	CT_TRY(any_like(p, specs[0].dst, &specs[1].dst));
	CT_TRY(ct_onednn_choose(p, id, specs, 2, &prim));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_SRC, BUFFER(v->src), v->src_desc, &src));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, BUFFER(v->grad), v->desc, &dst));
	CT_TRY(ct_dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DIFF_WEIGHTS, &chosen));
	if (chosen != layout) {
		dw.where = ONEDNN_BUFFER;
		CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(chosen), &dw.id));
	}
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg(p, t, CT_DNNL_SRC, src);
	ct_onednn_arg(p, t, CT_DNNL_DIFF_DST, dst);
	ct_onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, dw);
	if (node->bias >= 0)
		ct_onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ ONEDNN_GRAD, node->bias });
	if (chosen != layout) {
		const struct ct_dnnl_spec spec = { .op = CT_DNNL_REORDER, .src = chosen, .dst = layout };
		CT_TRY(ct_onednn_prim(p, id, &spec, &prim));
		CT_TRY(ct_onednn_call(p, id, prim, &t));
		ct_onednn_arg(p, t, CT_DNNL_SRC, dw);
		ct_onednn_arg(p, t, CT_DNNL_DST, arena);
	}
	CT_TRY(slice_done(p, id, node->weight));
	return slice_done(p, id, node->bias);
}

static enum ct_status emit_data(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec specs[3] = { layer_spec(p, id, CT_DNNL_CONV_BACKWARD_DATA, CT_DNNL_LINEAR_BACKWARD_DATA) };
	const ct_dnnl_desc *layout = specs[0].weights, *dx_desc;
	struct onednn_ref dst, weights;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx;

	specs[1] = specs[0];
	CT_TRY(any_like(p, specs[0].weights, &specs[1].weights));
	specs[2] = specs[1];
	CT_TRY(any_like(p, specs[0].src, &specs[2].src));
	CT_TRY(any_like(p, specs[0].dst, &specs[2].dst));
	CT_TRY(ct_onednn_choose(p, id, specs, 3, &prim));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, BUFFER(v->grad), v->desc, &dst));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_WEIGHTS, (struct onednn_ref){ ONEDNN_PARAM, node->weight }, layout, &weights));
	CT_TRY(ct_dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DIFF_SRC, &dx_desc));
	CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(dx_desc), &dx));
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg(p, t, CT_DNNL_DIFF_DST, dst);
	ct_onednn_arg(p, t, CT_DNNL_WEIGHTS, weights);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	return give_grad(p, id, node->in[0], dx, dx_desc, false);
}

static enum ct_status compile_norm(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	const struct ct_dnnl_spec spec = { .op = CT_DNNL_NORM_BACKWARD,
					   .src = v->desc,
					   .dst = v->desc,
					   .other = v->desc,
					   .relu = v->fused_relu >= 0,
					   .eps = node->eps,
					   .forward = v->prim };
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx, dy = v->grad;

	CT_TRY(ct_onednn_prim(p, id, &spec, &prim));
	CT_TRY(in_place(p, v, &dx));
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct_onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct_onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	ct_onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ ONEDNN_PARAM, node->weight });
	if (ct_dnnl_prim_bytes(prim, CT_DNNL_SHIFT)) /* 2.x counts it among the inputs */
		ct_onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ ONEDNN_PARAM, node->bias });
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct_onednn_arg(p, t, CT_DNNL_DIFF_SCALE, (struct onednn_ref){ ONEDNN_GRAD, node->weight });
	ct_onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, (struct onednn_ref){ ONEDNN_GRAD, node->bias });
	if (v->workspace >= 0)
		ct_onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	CT_TRY(slice_done(p, id, node->weight));
	CT_TRY(slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].needs_grad)
		return CT_OK;
	return give_grad(p, id, node->in[0], dx, v->desc, false);
}

static enum ct_status compile_pool(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_window w = node->win;
	struct onednn_task *t;
	const ct_dnnl_prim *prim;
	int dx;

	if (node->op == CT_OP_GLOBAL_AVG_POOL) {
		const int *dims = ct_dnnl_desc_dims(v->src_desc);
		w = (struct ct_window){ dims[2], dims[3], 1, 1, 0, 0, 1, 1 };
	}
	const struct ct_dnnl_spec spec = { .op = CT_DNNL_POOL_BACKWARD,
					   .src = v->src_desc,
					   .dst = v->desc,
					   .average = node->op != CT_OP_MAX_POOL,
					   .kernel = { w.r, w.s },
					   .stride = { w.stride_h, w.stride_w },
					   .pad = { w.pad_h, w.pad_w },
					   .dilation = { w.dilation_h, w.dilation_w },
					   .forward = v->prim };
	CT_TRY(ct_onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(v->src_desc), &dx));
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->grad);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	if (v->workspace >= 0)
		ct_onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	return give_grad(p, id, node->in[0], dx, v->src_desc, false);
}

static enum ct_status compile_add(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_value *v = &p->values[id];
	const bool both = p->values[node->in[0]].needs_grad && p->values[node->in[1]].needs_grad;

	for (int i = 0; i < 2; i++) {
		if (p->values[node->in[i]].needs_grad)
			CT_TRY(give_grad(p, id, node->in[i], v->grad, v->desc, both || v->grad_shared));
	}
	return CT_OK;
}

static enum ct_status compile_dropout(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int dx, dy = v->grad;

	CT_TRY(in_place(p, v, &dx));
	CT_TRY(ct_onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct_dnnl_desc_bytes(v->desc) / sizeof(float);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct_onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->mask);
	return give_grad(p, id, node_at(p, id)->in[0], dx, v->desc, false);
}

static enum ct_status compile_loss(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct ct_shape s = node_at(p, node->in[0])->shape;
	const int dims[2] = { p->base.n, s.c * s.h * s.w };
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	int grad;

	CT_TRY(ct_dnnl_plain(p->dnnl, 2, dims, &plain));
	CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(plain), &grad));
	CT_TRY(ct_onednn_task(p, ONEDNN_LOSS_SCALE, id, &t));
	t->n = (size_t)dims[0] * (size_t)dims[1];
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, grad);
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, p->dlogits);
	return give_grad(p, id, node->in[0], grad, plain, false);
}

static enum ct_status compile_node(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);

	if (!p->values[id].needs_grad)
		return CT_OK;
	switch (node->op) {
	case CT_OP_LINEAR:
	case CT_OP_CONV2D:
		CT_TRY(emit_weights(p, id));
		return p->values[node->in[0]].needs_grad ? emit_data(p, id) : CT_OK;
	case CT_OP_BATCH_NORM:
		return compile_norm(p, id);
	case CT_OP_RELU:
		return compile_relu(p, id);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return compile_pool(p, id);
	case CT_OP_ADD:
		return compile_add(p, id);
	case CT_OP_DROPOUT:
		return compile_dropout(p, id);
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return compile_loss(p, id);
	case CT_OP_INPUT:
	case CT_OP_FLATTEN: /* its users give their gradients to the root */
	case CT_N_OPS:
		break;
	}
	return CT_OK;
}

enum ct_status ct_onednn_compile_backward(struct onednn_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.net->graph) - 1; id > 0; id--)
		CT_TRY(compile_node(p, id));
	return CT_OK;
}
