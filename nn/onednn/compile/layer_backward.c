/* The gradient of the weights comes first and is reported before that of the input is computed, so that it can be
 * summed over ranks in the meantime. It is written directly to the gradient arena if a primitive can do so in the
 * layout of the arena; otherwise a reorder follows, before the slice is reported. The input is read as the forward pass
 * has read it (kept.src), unless a primitive for another layout is faster. A convolution whose forward pass is computed
 * by Winograd filtering has no primitive that oneDNN could take as a hint, so one is described. */
#include "nn/onednn/compile/layer.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/compile/weights_gemm.h"
#include "nn/onednn/compile/winograd.h"

static const ct_dnnl_desc *layout_of(const struct onednn_program *p, int param)
{
	return ct__onednn_net(p)->layout[param];
}

static struct ct_dnnl_spec layer_spec(const struct onednn_program *p, int id, enum ct_dnnl_op conv,
				      enum ct_dnnl_op linear)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = ct__onednn_layer_spec(p, id);

	spec.op = (int32_t)(node->op == CT_OP_CONV2D ? conv : linear);
	spec.src = v->kept.src_desc;
	spec.weights = layout_of(p, node->weight);
	spec.dst = v->layout.desc;
	spec.forward = v->kept.prim;
	return spec;
}

static enum ct_status need_hint(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = ct__onednn_layer_spec(p, id);

	if (v->kept.prim)
		return CT_OK;
	spec.src = v->kept.src_desc;
	spec.dst = v->layout.desc;
	CT_TRY(ct__onednn_any_like(p, ct__onednn_type(p), layout_of(p, node->weight), &spec.weights));
	if (node->bias >= 0)
		CT_TRY(ct__dnnl_plain(p->dnnl, 1, &node->shape.c, &spec.bias));
	return ct__onednn_prim(p, id, &spec, &v->kept.prim);
}

/* In bf16, all gradients that are multiplied are converted to bfloat16, even the fp32 gradient of the logits. */
static enum ct_status fit_gradient(struct onednn_program *p, struct ct_dnnl_spec *spec)
{
	const enum ct_dnnl_type type = ct__onednn_type(p);

	return ct__dnnl_desc_type(spec->dst) == type ? CT_OK : ct__onednn_any_like(p, type, spec->dst, &spec->dst);
}

/* Without AVX-512, oneDNN 2.6.3 computes wrong gradients of the weights of 1x1 convolutions in NHWC that skip pixels
 * (jit_1x1:avx2; found by tests/nn/test_conformance.c). */
static bool is_wrong_in_nhwc(const struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_window *w = &node->win;

	return node->op == CT_OP_CONV2D && p->base.net->plan.layout == CT_LAYOUT_NHWC && !ct__dnnl_has_avx512() &&
	       w->r == 1 && w->s == 1 && (w->stride_h > 1 || w->stride_w > 1);
}

/* Appends the reorder of a gradient of weights from `dw` to the arena, if its layout there is another one. */
static enum ct_status store_weights(struct onednn_program *p, int id, struct onednn_ref dw, const ct_dnnl_desc *desc)
{
	const int weight = ct__onednn_node(p, id)->weight;
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_REORDER, .src = desc, .dst = layout_of(p, weight)};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;

	if (spec.src == spec.dst)
		return CT_OK;
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, dw);
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_GRAD, weight});
	return CT_OK;
}

/* Gets where the gradient of weights is computed in the layout `desc`: in the arena, or in a buffer. */
static enum ct_status place_of_weights(struct onednn_program *p, int id, const ct_dnnl_desc *desc,
				       struct onednn_ref *out)
{
	const int weight = ct__onednn_node(p, id)->weight;

	*out = (struct onednn_ref){ONEDNN_GRAD, weight};
	if (desc == layout_of(p, weight))
		return CT_OK;
	out->where = ONEDNN_BUFFER;
	return ct__onednn_buffer(p, ct__dnnl_desc_bytes(desc), &out->id);
}

/* Computes dw and db. The primitive writes directly to the gradient arena if it supports the layout of the weights
 * there. Otherwise a reorder follows. */
static enum ct_status emit_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *chosen;
	struct ct_dnnl_spec specs[2];
	struct onednn_ref src, dst, dw;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;

	CT_TRY(need_hint(p, id));
	specs[0] = layer_spec(p, id, CT_DNNL_CONV_BACKWARD_WEIGHTS, CT_DNNL_LINEAR_BACKWARD_WEIGHTS);
	if (node->bias >= 0)
		CT_TRY(ct__dnnl_plain(p->dnnl, 1, &node->shape.c, &specs[0].bias));
	CT_TRY(fit_gradient(p, &specs[0]));
	specs[1] = specs[0];
	CT_TRY(ct__onednn_any_like(p, ct__onednn_type(p), specs[0].src, &specs[1].src));
	CT_TRY(ct__onednn_any_like(p, CT_DNNL_F32, specs[0].weights, &specs[1].weights));
	CT_TRY(ct__onednn_any_like(p, ct__onednn_type(p), specs[0].dst, &specs[1].dst));
	const int skip = is_wrong_in_nhwc(p, id);
	CT_TRY(ct__onednn_choose(p, id, specs + skip, 2 - skip, &prim));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_SRC, ONEDNN_BUF(v->kept.src), v->kept.src_desc, &src));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, ONEDNN_BUF(v->gradient.buffer), v->layout.desc, &dst));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DIFF_WEIGHTS, &chosen));
	CT_TRY(place_of_weights(p, id, chosen, &dw));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, src);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, dst);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, dw);
	if (node->bias >= 0)
		ct__onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	CT_TRY(store_weights(p, id, dw, chosen));
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

static enum ct_status emit_weights_gemm(struct onednn_program *p, int id)
{
	const ct_dnnl_desc *desc;
	struct onednn_ref dw;

	CT_TRY(ct__onednn_weights_gemm_layout(p, id, &desc));
	CT_TRY(place_of_weights(p, id, desc, &dw));
	CT_TRY(ct__onednn_weights_gemm(p, id, dw));
	CT_TRY(store_weights(p, id, dw, desc));
	return ct__onednn_slice_done(p, id, ct__onednn_node(p, id)->weight);
}

static enum ct_status emit_data(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *layout = layout_of(p, node->weight), *dx_desc;
	struct ct_dnnl_spec specs[3];
	const enum ct_dnnl_type type = ct__onednn_type(p);
	struct onednn_ref dst, weights;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx;

	CT_TRY(need_hint(p, id));
	specs[0] = layer_spec(p, id, CT_DNNL_CONV_BACKWARD_DATA, CT_DNNL_LINEAR_BACKWARD_DATA);
	CT_TRY(fit_gradient(p, &specs[0]));
	specs[1] = specs[0];
	CT_TRY(ct__onednn_any_like(p, type, specs[0].weights, &specs[1].weights));
	if (type != CT_DNNL_F32)
		specs[0].weights = specs[1].weights;
	specs[2] = specs[1];
	CT_TRY(ct__onednn_any_like(p, type, specs[0].src, &specs[2].src));
	CT_TRY(ct__onednn_any_like(p, type, specs[0].dst, &specs[2].dst));
	CT_TRY(ct__onednn_choose(p, id, specs, 3, &prim));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, ONEDNN_BUF(v->gradient.buffer), v->layout.desc, &dst));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_WEIGHTS, (struct onednn_ref){ONEDNN_PARAM, node->weight}, layout,
			      &weights));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DIFF_SRC, &dx_desc));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(dx_desc), &dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, dst);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, weights);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	return ct__onednn_give_grad(p, id, node->in[0], dx, dx_desc, false);
}

enum ct_status ct__onednn_layer_backward(struct onednn_program *p, int id)
{
	if (ct_graph_trains(p->base.graph, id)) {
		if (ct__onednn_weights_gemm_computes(p, id))
			CT_TRY(emit_weights_gemm(p, id));
		else if (ct__onednn_winograd_computes(p, id, CT_CONV_BACKWARD_WEIGHTS))
			CT_TRY(ct__onednn_winograd_backward_weights(p, id));
		else
			CT_TRY(emit_weights(p, id));
	}
	if (!p->values[ct__onednn_node(p, id)->in[0]].gradient.needed)
		return CT_OK;
	return ct__onednn_winograd_computes(p, id, CT_CONV_BACKWARD_DATA) ? ct__onednn_winograd_backward_data(p, id)
									  : emit_data(p, id);
}
