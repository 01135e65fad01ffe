/* Convolutions that conv_winograd.h computes with fewer multiplications than oneDNN's direct ones. */
#include "nn/onednn/winograd/winograd.h"
#include "nn/onednn/onednn_impl.h"

#define BLOCK 16

static bool shape_of(const struct onednn_program *p, int id, struct ct_winograd_shape *s)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_window *w = &node->win;

	if (node->op != CT_OP_CONV2D || node->groups != 1 || w->r != w->s || w->stride_h != 1 || w->stride_w != 1 ||
	    w->dilation_h != 1 || w->dilation_w != 1)
		return false;
	const struct ct_shape in = ct__onednn_node(p, node->in[0])->shape;
	*s = (struct ct_winograd_shape){.n = p->base.n,
					.c = in.c,
					.k = node->shape.c,
					.h = in.h,
					.w = in.w,
					.pad_h = w->pad_h,
					.pad_w = w->pad_w,
					.taps = w->r,
					.bf16 = ct__onednn_type(p) == CT_DNNL_BF16};
	return true;
}

bool ct__onednn_winograd_fits(const struct onednn_program *p, int id)
{
	struct ct_winograd_shape s;

	if (!shape_of(p, id, &s) || !ct__winograd_usable(&s))
		return false;
	/* A program of few rows may have chosen another layout of the weights before. */
	const struct ct_node *node = ct__onednn_node(p, id);
	const ct_dnnl_desc *layout = ((const struct onednn_net *)p->base.net->impl)->layout[node->weight];
	return !layout || ct__dnnl_desc_is_blocked_weights(layout);
}

static enum ct_status emit(struct onednn_program *p, int id, enum ct_winograd_pass pass, struct onednn_task **out)
{
	struct ct_winograd_shape s;
	int scratch;

	CT_ASSERT(shape_of(p, id, &s));
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
	const ct_dnnl_desc **layout = &((struct onednn_net *)p->base.net->impl)->layout[node->weight], *x_desc, *y_desc;
	struct onednn_ref x;
	struct onednn_task *t;
	struct onednn_ref w = {ONEDNN_PARAM, node->weight}, bias = {ONEDNN_PARAM, node->bias};
	int dims[4], weights[4] = {node->shape.c, 0, node->win.r, node->win.s}, x_buffer;

	ct__onednn_dims(p, node->in[0], dims);
	weights[1] = dims[1];
	CT_TRY(ct__dnnl_blocked_weights(p->dnnl, weights, layout));
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, BLOCK, &v->src_desc));
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[0]].root, 4, dims, &x_desc, &x_buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(x_buffer), x_desc, v->src_desc, &x));
	v->src = x.id;
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__onednn_type(p), dims, BLOCK, &y_desc));
	if (v->folded_norm >= 0) {
		if (v->sum >= 0 && p->values[p->values[v->residual].root].desc != y_desc)
			v->sum = -1;
		ct__onednn_absorb(p, id);
		CT_TRY(ct__onednn_fold(p, id, *layout, *layout, &w, &bias));
	}
	CT_TRY(ct__onednn_own_folded(p, id, y_desc));
	CT_TRY(emit(p, id, CT_WINOGRAD_FORWARD, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, w);
	if (bias.id >= 0)
		ct__onednn_arg(p, t, CT_DNNL_BIAS, bias);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	return CT_OK;
}

enum ct_status ct__onednn_winograd_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int dx;

	CT_TRY(emit(p, id, CT_WINOGRAD_BACKWARD_WEIGHTS, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->grad);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	if (node->bias >= 0)
		ct__onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	CT_TRY(ct__onednn_slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].needs_grad)
		return CT_OK;
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->src_desc), &dx));
	CT_TRY(emit(p, id, CT_WINOGRAD_BACKWARD_DATA, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, v->grad);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->src_desc, false);
}

static float *at(const struct onednn_task *t, enum ct_dnnl_arg arg)
{
	for (int i = 0; i < t->n_args; i++) {
		if (t->args[i].arg == arg)
			return t->ptr[i];
	}
	return NULL;
}

void ct__onednn_winograd_run(const struct onednn_program *p, const struct onednn_task *t)
{
	struct ct_winograd op = {.threads = p->base.net->engine->threads,
				 .scratch = at(t, CT_DNNL_SCRATCHPAD),
				 .weights = at(t, CT_DNNL_WEIGHTS),
				 .x = at(t, CT_DNNL_SRC),
				 .bias = at(t, CT_DNNL_BIAS),
				 .y = at(t, CT_DNNL_DST),
				 .relu = p->values[t->node].fused_relu >= 0,
				 .sum = p->values[t->node].sum >= 0,
				 .dy = at(t, CT_DNNL_DIFF_DST),
				 .dx = at(t, CT_DNNL_DIFF_SRC),
				 .dw = at(t, CT_DNNL_DIFF_WEIGHTS),
				 .db = at(t, CT_DNNL_DIFF_BIAS)};

	CT_ASSERT(shape_of(p, t->node, &op.shape));
	switch ((enum ct_winograd_pass)t->n) {
	case CT_WINOGRAD_FORWARD:
		ct__winograd_forward(&op);
		break;
	case CT_WINOGRAD_BACKWARD_DATA:
		ct__winograd_backward_data(&op);
		break;
	case CT_WINOGRAD_BACKWARD_WEIGHTS:
		ct__winograd_backward_weights(&op);
		break;
	}
}
