/* Convolutions and linear layers choose the layouts of a program; other operations mostly keep those of their inputs.
 * Three specs are tried: with the stored input and weights, with an input in the layout of the plan (blocked: the one
 * that oneDNN prefers), and with weights in a layout that oneDNN prefers, too. The layout of the weights in the arenas
 * is chosen by the first program of a net and then fixed, so later programs may have to reorder weights. In bf16,
 * weights are converted in each pass anyway; there, the arena has the layout in which the backward pass writes
 * gradients. If no primitive can apply a ReLU, the ReLU becomes a separate node again. Logits are always fp32. kept.src
 * is the input as the primitive has read it, after a reorder, for the backward pass. */
#include "nn/onednn/compile/layer.h"

#include <string.h>

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/fold.h"
#include "nn/onednn/compile/weights_gemm.h"
#include "nn/onednn/compile/winograd.h"

/* Chooses a primitive for the layouts of the stored tensors, or else for the layouts that oneDNN prefers. A ReLU that
 * no implementation can fuse becomes a separate node again. */
static enum ct_status choose_layer(struct onednn_program *p, int id, struct ct_dnnl_spec spec,
				   const ct_dnnl_desc *any_src, const ct_dnnl_desc *any_weights,
				   const ct_dnnl_prim **out)
{
	struct ct_dnnl_spec specs[3];

	for (int i = 0; i < 3; i++)
		specs[i] = spec;
	specs[1].src = any_src;
	specs[2].src = any_src;
	specs[2].weights = any_weights;
	if (spec.relu) {
		CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, out));
		if (!*out) {
			p->values[id].fusion.relu = -1;
			spec.relu = 0;
			return choose_layer(p, id, spec, any_src, any_weights, out);
		}
	}
	return ct__onednn_choose(p, id, specs, 3, out);
}

/* Chooses the layout of the weights in the arena: the one that the forward pass reads or, if it reads a bfloat16 copy,
 * the one in which the backward pass writes the gradient. */
static enum ct_status choose_arena_layout(struct onednn_program *p, int id, const ct_dnnl_prim *prim,
					  const ct_dnnl_desc **out)
{
	const bool conv = ct__onednn_node(p, id)->op == CT_OP_CONV2D;
	struct ct_dnnl_spec spec = ct__onednn_layer_spec(p, id);
	const ct_dnnl_desc *weights, *dst;
	const ct_dnnl_prim *back = NULL;

	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_WEIGHTS, &weights));
	*out = weights;
	if (ct__dnnl_desc_type(weights) == CT_DNNL_F32)
		return CT_OK;
	if (ct__onednn_weights_gemm_computes(p, id))
		return ct__onednn_weights_gemm_layout(p, id, out);
	const int ndims = ct__dnnl_desc_ndims(weights), *dims = ct__dnnl_desc_dims(weights);
	spec.op = conv ? CT_DNNL_CONV_BACKWARD_WEIGHTS : CT_DNNL_LINEAR_BACKWARD_WEIGHTS;
	spec.forward = prim;
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_SRC, &spec.src));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DST, &dst));
	CT_TRY(ct__dnnl_any_of(p->dnnl, CT_DNNL_BF16, ct__dnnl_desc_ndims(dst), ct__dnnl_desc_dims(dst), &spec.dst));
	if (ct__dnnl_desc_type(dst) == CT_DNNL_BF16)
		spec.dst = dst;
	CT_TRY(ct__dnnl_any(p->dnnl, ndims, dims, &spec.weights));
	if (p->base.mode == CT_TRAIN)
		CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, &back));
	return back ? ct__dnnl_prim_desc(p->dnnl, back, CT_DNNL_DIFF_WEIGHTS, out)
		    : ct__dnnl_plain(p->dnnl, ndims, dims, out);
}

/* Appends the call of the primitive of a convolution or linear layer, with the reorders or the folding that it
 * needs. */
static enum ct_status emit_layer(struct onednn_program *p, int id, const ct_dnnl_prim *prim, int x,
				 const ct_dnnl_desc *x_desc)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc **layout = &ct__onednn_net(p)->layout[node->weight], *dst, *want;
	struct onednn_ref src, weights, bias = {node->bias >= 0 ? ONEDNN_PARAM : ONEDNN_NOTHING, node->bias};
	struct onednn_task *t;

	if (!*layout)
		CT_TRY(choose_arena_layout(p, id, prim, layout));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_SRC, ONEDNN_BUF(x), x_desc, &src));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DST, &dst));
	if (v->fold.norm >= 0) {
		CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_WEIGHTS, &want));
		CT_TRY(ct__onednn_fold(p, id, *layout, want, &weights, &bias));
		CT_TRY(ct__onednn_own_folded(p, id, dst));
	} else {
		CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_WEIGHTS, (struct onednn_ref){ONEDNN_PARAM, node->weight},
				      *layout, &weights));
		CT_TRY(ct__onednn_own_result(p, id, dst));
	}
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, src);
	ct__onednn_arg(p, t, CT_DNNL_WEIGHTS, weights);
	if (bias.where != ONEDNN_NOTHING)
		ct__onednn_arg(p, t, CT_DNNL_BIAS, bias);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	v->kept.prim = prim;
	v->kept.src = src.id;
	return ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_SRC, &v->kept.src_desc);
}

/* Use the layout of the arena, unless the weights are converted to another type anyway. */
static const ct_dnnl_desc *weights_layout(const struct onednn_program *p, int param, const ct_dnnl_desc *any)
{
	const ct_dnnl_desc *layout = ct__onednn_net(p)->layout[param];

	return layout && ct__dnnl_desc_type(any) == CT_DNNL_F32 ? layout : any;
}

static bool gives_logits(const struct onednn_program *p, int id)
{
	int user = p->values[id].fusion.user;

	while (user >= 0 && ct__onednn_node(p, user)->op == CT_OP_FLATTEN)
		user = p->values[user].fusion.user;
	return user >= 0 && user == ct_graph_loss(p->base.graph) && ct__onednn_node(p, user)->op != CT_OP_OUTPUT;
}

static enum ct_status lower_conv(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_window *w = &node->win;
	const enum ct_dnnl_type type = ct__onednn_type(p);
	const int k = node->shape.c, g = node->groups;
	struct ct_dnnl_spec spec = ct__onednn_layer_spec(p, id);
	const ct_dnnl_desc *any_src, *any_weights;
	const ct_dnnl_prim *prim;
	int dims[4], x;

	spec.inference = p->base.mode == CT_EVAL;
	spec.relu = p->values[id].fusion.relu >= 0;
	ct__onednn_dims(p, node->in[0], dims);
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[0]].layout.root, 4, dims, &spec.src, &x));
	CT_TRY(ct__onednn_image_layout(p, dims, &any_src));
	const int c = dims[1], grouped[5] = {g, k / g, c / g, w->r, w->s}, dense[4] = {k, c, w->r, w->s};
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, g > 1 ? 5 : 4, g > 1 ? grouped : dense, &any_weights));
	spec.weights = weights_layout(p, node->weight, any_weights);
	if (node->bias >= 0)
		CT_TRY(ct__dnnl_plain(p->dnnl, 1, &k, &spec.bias));
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__onednn_image_layout(p, dims, &spec.dst));
	const ct_dnnl_desc *x_desc = spec.src;
	if (p->values[id].fold.norm >= 0)
		CT_TRY(ct__onednn_choose_folded(p, id, &spec, any_src, any_weights, &prim));
	if (p->values[id].fold.norm < 0)
		CT_TRY(choose_layer(p, id, spec, any_src, any_weights, &prim));
	return emit_layer(p, id, prim, x, x_desc);
}

/* Decides whether a linear layer reads its input as [N,F] (flat) or, after a convolution, in the blocked layout in
 * which it is stored. In the second case, the weights are [K,C,H,W] in a matching layout, and the input need not be
 * copied to flatten it. The choice of the net's first program applies to all its programs. */
static enum ct_status linear_form(struct onednn_program *p, int id, bool *flat)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_net *net = ct__onednn_net(p);
	const ct_dnnl_desc *d = p->values[p->values[node->in[0]].layout.root].layout.desc;
	const int *x = ct__dnnl_desc_dims(d);
	const enum ct_dnnl_type type = ct__onednn_type(p);
	struct ct_dnnl_spec spec = {.op = CT_DNNL_LINEAR_FORWARD, .src = d};
	const ct_dnnl_prim *prim;

	*flat = ct__dnnl_desc_is_plain(d) || ct__dnnl_desc_ndims(d) == 2;
	if (net->layout[node->weight])
		*flat = ct__dnnl_desc_ndims(net->layout[node->weight]) == 2;
	if (*flat)
		return CT_OK;
	const int w[4] = {node->shape.c, x[1], x[2], x[3]}, y[2] = {x[0], node->shape.c};
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, 4, w, &spec.weights));
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, 2, y, &spec.dst));
	CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, &prim));
	*flat = !prim || ct__dnnl_prim_rank(prim) < 1;
	return CT_OK;
}

static enum ct_status lower_linear(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const enum ct_dnnl_type type = ct__onednn_type(p);
	const struct ct_shape s = ct__onednn_node(p, node->in[0])->shape;
	const int root = p->values[node->in[0]].layout.root, k = node->shape.c, n = p->base.n;
	struct ct_dnnl_spec spec = {.op = CT_DNNL_LINEAR_FORWARD,
				    .inference = p->base.mode == CT_EVAL,
				    .relu = p->values[id].fusion.relu >= 0};
	const ct_dnnl_desc *any_src, *any_weights;
	const ct_dnnl_prim *prim;
	bool flat;
	int x;

	CT_TRY(linear_form(p, id, &flat));
	int src[4] = {n, s.c * s.h * s.w, 1, 1}, weights[4] = {k, src[1], 1, 1}, dst[2] = {n, k}, ndims = flat ? 2 : 4;
	if (!flat) {
		memcpy(src, ct__dnnl_desc_dims(p->values[root].layout.desc), sizeof(src));
		memcpy(weights + 1, src + 1, 3 * sizeof(*src));
	}
	CT_TRY(ct__onednn_view(p, id, root, ndims, src, &spec.src, &x));
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, ndims, src, &any_src));
	CT_TRY(ct__dnnl_any_of(p->dnnl, type, ndims, weights, &any_weights));
	spec.weights = weights_layout(p, node->weight, any_weights);
	if (node->bias >= 0)
		CT_TRY(ct__dnnl_plain(p->dnnl, 1, &k, &spec.bias));
	CT_TRY(ct__dnnl_any_of(p->dnnl, gives_logits(p, id) ? CT_DNNL_F32 : type, 2, dst, &spec.dst));
	const ct_dnnl_desc *x_desc = spec.src;
	CT_TRY(choose_layer(p, id, spec, any_src, any_weights, &prim));
	return emit_layer(p, id, prim, x, x_desc);
}

enum ct_status ct__onednn_layer_forward(struct onednn_program *p, int id)
{
	if (ct__onednn_node(p, id)->op == CT_OP_LINEAR)
		return lower_linear(p, id);
	CT_TRY(ct__onednn_winograd_weights(p, id));
	return ct__onednn_winograd_computes(p, id, CT_CONV_FORWARD) ? ct__onednn_winograd_forward(p, id)
								    : lower_conv(p, id);
}
