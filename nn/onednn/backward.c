#include "nn/onednn/onednn_impl.h"

#include <string.h>

static const ct_dnnl_desc *layout_of(const struct onednn_program *p, int param)
{
	return ((const struct onednn_net *)p->base.net->impl)->layout[param];
}

/* Sums a further user's gradient: into the new buffer, or into a fresh one when neither may be written. */
static enum ct_status add_grad(struct onednn_program *p, int node, struct onednn_value *v, int buffer, bool shared)
{
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_ADD, .src = v->desc, .other = v->desc, .dst = v->desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int sum = !shared ? buffer : v->grad;

	if (shared && v->grad_shared)
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->desc), &sum));
	CT_TRY(ct__onednn_prim(p, node, &spec, &prim));
	CT_TRY(ct__onednn_call(p, node, prim, &t));
	/* oneDNN promises to write over the first addend, not over the second. */
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, sum == buffer ? buffer : v->grad);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, sum == buffer ? v->grad : buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, sum);
	v->grad = sum;
	v->grad_shared = false;
	return CT_OK;
}

/* A gradient of input `in` of `node` lies in `buffer`: bring it into the layout of the input's root and add it there.
 * shared: somebody else's gradient is in the same buffer. */
enum ct_status ct__onednn_give_grad(struct onednn_program *p, int node, int in, int buffer, const ct_dnnl_desc *desc,
				    bool shared)
{
	struct onednn_value *v = &p->values[p->values[in].root];
	const int ndims = ct__dnnl_desc_ndims(desc), *dims = ct__dnnl_desc_dims(desc),
		  root_ndims = ct__dnnl_desc_ndims(v->desc);
	struct onednn_ref at = ONEDNN_BUF(buffer);
	const ct_dnnl_desc *plain;

	if (root_ndims != ndims || memcmp(dims, ct__dnnl_desc_dims(v->desc), (size_t)ndims * sizeof(*dims))) {
		const enum ct_dnnl_type type = ct__dnnl_desc_type(desc);
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ndims, dims, &plain));
		CT_TRY(ct__onednn_relayout(p, node, at, desc, plain, &at));
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, root_ndims, ct__dnnl_desc_dims(v->desc), &desc));
	}
	CT_TRY(ct__onednn_relayout(p, node, at, desc, v->desc, &at));
	shared = shared && at.id == buffer;
	if (v->grad >= 0 && v->grad2 < 0 && ct__onednn_norm_adds(p, p->values[in].root)) {
		v->grad2 = at.id;
		v->grad2_shared = shared;
		v->grad_gone = true;
		return CT_OK;
	}
	if (v->grad >= 0)
		return add_grad(p, node, v, at.id, shared);
	v->grad = at.id;
	v->grad_shared = shared;
	return CT_OK;
}

enum ct_status ct__onednn_slice_done(struct onednn_program *p, int id, int param)
{
	struct onednn_task *t;

	if (param < 0)
		return CT_OK;
	CT_TRY(ct__onednn_task(p, ONEDNN_SLICE_DONE, id, &t));
	t->n = (size_t)param;
	return CT_OK;
}

static struct ct_dnnl_spec layer_spec(const struct onednn_program *p, int id, enum ct_dnnl_op conv,
				      enum ct_dnnl_op linear)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = ct__onednn_layer_spec(p, id);

	spec.op = (int32_t)(node->op == CT_OP_CONV2D ? conv : linear);
	spec.src = v->src_desc;
	spec.weights = layout_of(p, node->weight);
	spec.dst = v->desc;
	spec.forward = v->prim;
	return spec;
}

static enum ct_status any_like(struct onednn_program *p, enum ct_dnnl_type type, const ct_dnnl_desc *d,
			       const ct_dnnl_desc **out)
{
	return ct__dnnl_any_of(p->dnnl, type, ct__dnnl_desc_ndims(d), ct__dnnl_desc_dims(d), out);
}

/* Gradients enter the products as bfloat16 where values do, also those of fp32 logits. */
static enum ct_status fit_gradient(struct onednn_program *p, struct ct_dnnl_spec *spec)
{
	const enum ct_dnnl_type type = ct__onednn_type(p);

	return ct__dnnl_desc_type(spec->dst) == type ? CT_OK : any_like(p, type, spec->dst, &spec->dst);
}

/* dw and db, straight into the gradient arena where the primitive can write the layout of the weights. */
static enum ct_status emit_weights(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec specs[2] = {
		layer_spec(p, id, CT_DNNL_CONV_BACKWARD_WEIGHTS, CT_DNNL_LINEAR_BACKWARD_WEIGHTS)};
	const ct_dnnl_desc *layout = specs[0].weights, *chosen;
	const struct onednn_ref arena = {ONEDNN_GRAD, node->weight};
	struct onednn_ref src, dst, dw = arena;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;

	if (node->bias >= 0)
		CT_TRY(ct__dnnl_plain(p->dnnl, 1, &node->shape.c, &specs[0].bias));
	CT_TRY(fit_gradient(p, &specs[0]));
	specs[1] = specs[0];
	CT_TRY(any_like(p, ct__onednn_type(p), specs[0].src, &specs[1].src));
	CT_TRY(any_like(p, CT_DNNL_F32, specs[0].weights, &specs[1].weights));
	CT_TRY(any_like(p, ct__onednn_type(p), specs[0].dst, &specs[1].dst));
	CT_TRY(ct__onednn_choose(p, id, specs, 2, &prim));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_SRC, ONEDNN_BUF(v->src), v->src_desc, &src));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, ONEDNN_BUF(v->grad), v->desc, &dst));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DIFF_WEIGHTS, &chosen));
	if (chosen != layout) {
		dw.where = ONEDNN_BUFFER;
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(chosen), &dw.id));
	}
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, src);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, dst);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, dw);
	if (node->bias >= 0)
		ct__onednn_arg(p, t, CT_DNNL_DIFF_BIAS, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	if (chosen != layout) {
		const struct ct_dnnl_spec spec = {.op = CT_DNNL_REORDER, .src = chosen, .dst = layout};
		CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
		CT_TRY(ct__onednn_call(p, id, prim, &t));
		ct__onednn_arg(p, t, CT_DNNL_SRC, dw);
		ct__onednn_arg(p, t, CT_DNNL_DST, arena);
	}
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

static enum ct_status emit_data(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec specs[3] = {layer_spec(p, id, CT_DNNL_CONV_BACKWARD_DATA, CT_DNNL_LINEAR_BACKWARD_DATA)};
	const ct_dnnl_desc *layout = specs[0].weights, *dx_desc;
	const enum ct_dnnl_type type = ct__onednn_type(p);
	struct onednn_ref dst, weights;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx;

	CT_TRY(fit_gradient(p, &specs[0]));
	specs[1] = specs[0];
	CT_TRY(any_like(p, type, specs[0].weights, &specs[1].weights));
	if (type != CT_DNNL_F32)
		specs[0].weights = specs[1].weights;
	specs[2] = specs[1];
	CT_TRY(any_like(p, type, specs[0].src, &specs[2].src));
	CT_TRY(any_like(p, type, specs[0].dst, &specs[2].dst));
	CT_TRY(ct__onednn_choose(p, id, specs, 3, &prim));
	CT_TRY(ct__onednn_fit(p, id, prim, CT_DNNL_DIFF_DST, ONEDNN_BUF(v->grad), v->desc, &dst));
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

static enum ct_status compile_node(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);

	if (!p->values[id].needs_grad)
		return CT_OK;
	if (node->op != CT_OP_LINEAR && node->op != CT_OP_CONV2D)
		return ct__onednn_backward_op(p, id);
	if (ct__onednn_winograd_fits(p, id))
		return ct__onednn_winograd_backward(p, id);
	CT_TRY(emit_weights(p, id));
	return p->values[node->in[0]].needs_grad ? emit_data(p, id) : CT_OK;
}

enum ct_status ct__onednn_compile_backward(struct onednn_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.graph) - 1; id > 0; id--) {
		CT_TRY(ct__onednn_recompute(p, id));
		CT_TRY(compile_node(p, id));
	}
	return CT_OK;
}
