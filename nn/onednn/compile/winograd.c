/* The kernels need blocked images and weights in [K/b,C/b,R,S,b c,b k]. If they compute any pass of a convolution, its
 * weights have this layout in the arena, and the gradient of the weights is written to it directly. The other passes
 * may be direct; tensors are reordered where these use another layout. In evaluation, folded weights have this layout,
 * too, so no reorder is needed. */
#include "nn/onednn/compile/winograd.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/fold.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/program/shapes.h"

/* The plan was made for full batches of one image size. Fewer rows may fill too few tiles, and other images fill them
 * in other ways. */
bool ct__onednn_winograd_computes(const struct onednn_program *p, int id, enum ct_conv_pass pass)
{
	const struct ct_net *net = p->base.net;
	struct ct_winograd_shape s;

	return ct_net_plan_method(&net->plan, ct__onednn_node(p, id)->name, pass) == CT_CONV_WINOGRAD &&
	       ct__onednn_winograd_shape(p, id, &s) && ct__winograd_possible(&s) &&
	       ((p->base.n >= net->opts.batch && p->base.graph == net->graph) || ct__winograd_usable(&s));
}

enum ct_status ct__onednn_winograd_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const ct_dnnl_desc **layout = &ct__onednn_net(p)->layout[node->weight];
	const int dims[4] = {node->shape.c, ct__onednn_node(p, node->in[0])->shape.c, node->win.r, node->win.s};

	if (*layout || !ct_net_plan_uses(&p->base.net->plan, node->name, CT_CONV_WINOGRAD))
		return CT_OK;
	return ct__dnnl_blocked_weights(p->dnnl, dims, ct__lanes(), layout);
}

static enum ct_status emit(struct onednn_program *p, int id, enum ct_conv_pass pass, struct onednn_task **out)
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
	const ct_dnnl_desc *layout = ct__onednn_net(p)->layout[node->weight], *x_desc, *y_desc;
	struct onednn_ref x;
	struct onednn_task *t;
	struct onednn_ref w = {ONEDNN_PARAM, node->weight}, bias = {ONEDNN_PARAM, node->bias};
	int dims[4], x_buffer;

	ct__onednn_dims(p, node->in[0], dims);
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
		CT_TRY(ct__onednn_fold(p, id, layout, layout, &w, &bias));
	}
	CT_TRY(ct__onednn_own_folded(p, id, y_desc));
	CT_TRY(emit(p, id, CT_CONV_FORWARD, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, w);
	if (bias.id >= 0)
		ct__onednn_arg(p, t, CT_DNNL_BIAS, bias);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	return CT_OK;
}

/* Gets a tensor of the convolution in the layout of the kernels. */
static enum ct_status blocked(struct onednn_program *p, int id, int of, int buffer, const ct_dnnl_desc *desc,
			      const ct_dnnl_desc **blocked_desc, int *out)
{
	struct onednn_ref at;
	int dims[4];

	ct__onednn_dims(p, of, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, ct__lanes(), blocked_desc));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, *blocked_desc, &at));
	*out = at.id;
	return CT_OK;
}

enum ct_status ct__onednn_winograd_backward_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int x, dy;

	CT_TRY(blocked(p, id, node->in[0], v->kept.src, v->kept.src_desc, &desc, &x));
	CT_TRY(blocked(p, id, id, v->gradient.buffer, v->layout.desc, &desc, &dy));
	CT_TRY(emit(p, id, CT_CONV_BACKWARD_WEIGHTS, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, x);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	if (node->bias >= 0)
		ct__onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

enum ct_status ct__onednn_winograd_backward_data(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int dims[4], dx, dy;

	CT_TRY(blocked(p, id, id, v->gradient.buffer, v->layout.desc, &desc, &dy));
	ct__onednn_dims(p, node->in[0], dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, ct__lanes(), &desc));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(desc), &dx));
	CT_TRY(emit(p, id, CT_CONV_BACKWARD_DATA, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	return ct__onednn_give_grad(p, id, node->in[0], dx, desc, false);
}
