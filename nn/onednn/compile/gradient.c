/* The first user to pass a gradient determines the buffer; nothing is copied or set to zero. A further gradient is kept
 * as the second one, if the value's own backward pass reads two, or is added at once. A buffer can be the gradient of
 * two values, because a sum passes the same one to both addends. Such a buffer is `shared` and must not be written in
 * place. A conversion to another layout gives a new buffer, which is not shared. Whoever writes over a gradient sets
 * `gone`, so that tools do not read it. */
#include "nn/onednn/compile/gradient.h"

#include <string.h>

#include "nn/onednn/compile/emit.h"

/* Returns whether the backward pass of the root reads two gradients and adds them itself. This is true for norms
 * computed by ctrain's kernels. */
static bool adds_itself(const struct onednn_program *p, int root)
{
	const struct ct_node *node = ct__onednn_node(p, root);
	const int at = node->op == CT_OP_RELU && p->values[node->in[0]].fusion.relu == root ? node->in[0] : root;
	const struct onednn_value *v = &p->values[at];

	return v->fusion.norm >= 0 || (v->kept.norm == ONEDNN_NORM_OWN && v->fusion.join < 0);
}

/* Adds the gradient of a further user. The sum is written to one of the two buffers, or to a new one if neither may be
 * overwritten. */
static enum ct_status add_grad(struct onednn_program *p, int node, struct onednn_value *v, int buffer, bool shared)
{
	const struct ct_dnnl_spec spec = {
		.op = CT_DNNL_ADD, .src = v->layout.desc, .other = v->layout.desc, .dst = v->layout.desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int sum = !shared ? buffer : v->gradient.buffer;

	if (shared && v->gradient.shared)
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->layout.desc), &sum));
	CT_TRY(ct__onednn_prim(p, node, &spec, &prim));
	CT_TRY(ct__onednn_call(p, node, prim, &t));
	/* oneDNN may compute a sum in place of its first addend, but not of its second. */
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, sum == buffer ? buffer : v->gradient.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, sum == buffer ? v->gradient.buffer : buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, sum);
	v->gradient.buffer = sum;
	v->gradient.shared = false;
	return CT_OK;
}

enum ct_status ct__onednn_give_grad(struct onednn_program *p, int node, int in, int buffer, const ct_dnnl_desc *desc,
				    bool shared)
{
	struct onednn_value *v = &p->values[p->values[in].layout.root];
	const int ndims = ct__dnnl_desc_ndims(desc), *dims = ct__dnnl_desc_dims(desc),
		  root_ndims = ct__dnnl_desc_ndims(v->layout.desc);
	struct onednn_ref at = ONEDNN_BUF(buffer);
	const ct_dnnl_desc *plain;

	if (root_ndims != ndims || memcmp(dims, ct__dnnl_desc_dims(v->layout.desc), (size_t)ndims * sizeof(*dims))) {
		const enum ct_dnnl_type type = ct__dnnl_desc_type(desc);

		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ndims, dims, &plain));
		CT_TRY(ct__onednn_relayout(p, node, at, desc, plain, &at));
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, root_ndims, ct__dnnl_desc_dims(v->layout.desc), &desc));
	}
	CT_TRY(ct__onednn_relayout(p, node, at, desc, v->layout.desc, &at));
	shared = shared && at.id == buffer;
	if (v->gradient.buffer >= 0 && v->gradient.second < 0 && adds_itself(p, p->values[in].layout.root)) {
		v->gradient.second = at.id;
		v->gradient.second_shared = shared;
		v->gradient.gone = true;
		return CT_OK;
	}
	if (v->gradient.buffer >= 0)
		return add_grad(p, node, v, at.id, shared);
	v->gradient.buffer = at.id;
	v->gradient.shared = shared;
	return CT_OK;
}

enum ct_status ct__onednn_slice_done(struct onednn_program *p, int id, int param)
{
	struct onednn_task *t;

	if (param < 0 || !ct_graph_trains(p->base.graph, id))
		return CT_OK;
	CT_TRY(ct__onednn_task(p, ONEDNN_SLICE_DONE, id, &t));
	t->n = (size_t)param;
	return CT_OK;
}

enum ct_status ct__onednn_param_grad(struct onednn_program *p, int id, int param, struct onednn_ref *out)
{
	*out = (struct onednn_ref){ONEDNN_GRAD, param};
	if (ct_graph_trains(p->base.graph, id))
		return CT_OK;
	out->where = ONEDNN_BUFFER;
	return ct__onednn_buffer(p, ct_graph_param(p->base.graph, param)->n * sizeof(float), &out->id);
}

enum ct_status ct__onednn_in_place(struct onednn_program *p, struct onednn_value *v, int *out)
{
	*out = v->gradient.buffer;
	if (v->gradient.shared)
		return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->layout.desc), out);
	v->gradient.gone = true;
	return CT_OK;
}
