/* The kernels need blocked images and weights in [K/b,C/b,R,S,b c,b k]. All passes of a convolution use the same
 * weights, so either all or none of them are computed in this way. The choice depends on the shape, the processor and
 * the layout of the weights, which does not change between the two passes. The gradient of the weights has the layout
 * of the arena and is written to it directly. In evaluation, folded weights have this layout, too, so no reorder is
 * needed. */
#include "nn/onednn/compile/winograd.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/fold.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/program/shapes.h"

bool ct__onednn_winograd_fits(const struct onednn_program *p, int id)
{
	struct ct_winograd_shape s;

	if (!ct__onednn_winograd_shape(p, id, &s) || !ct__winograd_usable(&s))
		return false;
	/* An earlier program with too few rows may have chosen another layout for the weights. */
	const struct ct_node *node = ct__onednn_node(p, id);
	const ct_dnnl_desc *layout = ct__onednn_net(p)->layout[node->weight];
	return !layout || ct__dnnl_desc_is_blocked_weights(layout);
}

static enum ct_status emit(struct onednn_program *p, int id, enum ct_winograd_pass pass, struct onednn_task **out)
{
	struct ct_winograd_shape s;
	int scratch;

	CT_ASSERT(ct__onednn_winograd_shape(p, id, &s));
	CT_TRY(ct__onednn_buffer(p, ct__winograd_scratch_bytes(&s, pass, p->base.net->engine->threads), &scratch));
	CT_TRY(ct__onednn_task(p, ONEDNN_WINOGRAD, id, out));
	(*out)->n = (size_t)pass;
	ct__onednn_arg_buffer(p, *out, CT_DNNL_SCRATCHPAD, scratch);
	return CT_OK;
}

enum ct_status ct__onednn_winograd_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc **layout = &ct__onednn_net(p)->layout[node->weight], *x_desc, *y_desc;
	struct onednn_ref x;
	struct onednn_task *t;
	struct onednn_ref w = {ONEDNN_PARAM, node->weight}, bias = {ONEDNN_PARAM, node->bias};
	int dims[4], weights[4] = {node->shape.c, 0, node->win.r, node->win.s}, x_buffer;

	ct__onednn_dims(p, node->in[0], dims);
	weights[1] = dims[1];
	CT_TRY(ct__dnnl_blocked_weights(p->dnnl, weights, ct__lanes(), layout));
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, ct__lanes(), &v->kept.src_desc));
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[0]].layout.root, 4, dims, &x_desc, &x_buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(x_buffer), x_desc, v->kept.src_desc, &x));
	v->kept.src = x.id;
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, ct__lanes(), &y_desc));
	if (v->fold.norm >= 0) {
		if (v->fold.sum >= 0 && p->values[p->values[v->fold.residual].layout.root].layout.desc != y_desc)
			v->fold.sum = -1;
		ct__onednn_absorb(p, id);
		CT_TRY(ct__onednn_fold(p, id, *layout, *layout, &w, &bias));
	}
	CT_TRY(ct__onednn_own_folded(p, id, y_desc));
	CT_TRY(emit(p, id, CT_WINOGRAD_FORWARD, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, w);
	if (bias.id >= 0)
		ct__onednn_arg(p, t, CT_DNNL_BIAS, bias);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	return CT_OK;
}

static enum ct_status emit_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;

	CT_TRY(emit(p, id, CT_WINOGRAD_BACKWARD_WEIGHTS, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->gradient.buffer);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	if (node->bias >= 0)
		ct__onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

enum ct_status ct__onednn_winograd_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int dx;

	if (ct_graph_trains(p->base.graph, id))
		CT_TRY(emit_weights(p, id));
	if (!p->values[node->in[0]].gradient.needed)
		return CT_OK;
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->kept.src_desc), &dx));
	CT_TRY(emit(p, id, CT_WINOGRAD_BACKWARD_DATA, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->gradient.buffer);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->kept.src_desc, false);
}
