/* Two tensors have the same layout if the pointers to their descriptors are equal (dnnl/desc.c), so a reorder is
 * appended only if they differ. ct__onednn_choose takes the first of the best specs; callers therefore begin with the
 * layouts of the stored tensors, and a reorder is paid only for a faster implementation. The result of fused nodes
 * belongs to the last of them: the others have no root, since their values are never stored. Scratchpads are buffers
 * like all others, so they share memory with values, and running a task allocates nothing. */
#include "nn/onednn/compile/emit.h"

#include <string.h>

enum ct_status ct__onednn_prim(struct onednn_program *p, int node, const struct ct_dnnl_spec *spec,
			       const ct_dnnl_prim **out)
{
	CT_TRY(ct__dnnl_prim_get(p->dnnl, spec, out));
	if (*out)
		return CT_OK;
	const struct ct_node *n = ct_graph_node(p->base.graph, node);
	CT_FAIL(CT_UNSUPPORTED, "%s: %s has no implementation of this %s", n->name, ct__dnnl_version(),
		ct_op_name(n->op));
	return ct_error_hint("use the engine \"ref\", which supports every operation but is slow");
}

enum ct_status ct__onednn_choose(struct onednn_program *p, int node, const struct ct_dnnl_spec *specs, int n,
				 const ct_dnnl_prim **out)
{
	const ct_dnnl_prim *prim, *best = NULL;

	for (int i = 0; i < n && (!best || ct__dnnl_prim_rank(best) < 2); i++) {
		CT_TRY(ct__dnnl_prim_get(p->dnnl, &specs[i], &prim));
		if (prim && (!best || ct__dnnl_prim_rank(prim) > ct__dnnl_prim_rank(best)))
			best = prim;
	}
	*out = best;
	return best ? CT_OK : ct__onednn_prim(p, node, &specs[0], out);
}

enum ct_status ct__onednn_call(struct onednn_program *p, int node, const ct_dnnl_prim *prim, struct onednn_task **out)
{
	size_t scratch = ct__dnnl_prim_bytes(prim, CT_DNNL_SCRATCHPAD);

	CT_TRY(ct__onednn_task(p, ONEDNN_CALL, node, out));
	(*out)->prim = prim;
	if (scratch) {
		int buffer;

		CT_TRY(ct__onednn_buffer(p, scratch, &buffer));
		ct__onednn_arg_buffer(p, *out, CT_DNNL_SCRATCHPAD, buffer);
	}
	return CT_OK;
}

enum ct_status ct__onednn_relayout(struct onednn_program *p, int node, struct onednn_ref from,
				   const ct_dnnl_desc *from_desc, const ct_dnnl_desc *to_desc, struct onednn_ref *out)
{
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_REORDER, .src = from_desc, .dst = to_desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int buffer;

	*out = from;
	if (from_desc == to_desc)
		return CT_OK;
	p->base.reorders += from.where == ONEDNN_BUFFER && ct__dnnl_desc_type(from_desc) == ct__dnnl_desc_type(to_desc);
	CT_TRY(ct__onednn_prim(p, node, &spec, &prim));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(to_desc), &buffer));
	CT_TRY(ct__onednn_call(p, node, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, from);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, buffer);
	*out = (struct onednn_ref){ONEDNN_BUFFER, buffer};
	return CT_OK;
}

enum ct_status ct__onednn_fit(struct onednn_program *p, int node, const ct_dnnl_prim *prim, enum ct_dnnl_arg arg,
			      struct onednn_ref from, const ct_dnnl_desc *from_desc, struct onednn_ref *out)
{
	const ct_dnnl_desc *want;

	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, arg, &want));
	return ct__onednn_relayout(p, node, from, from_desc, want, out);
}

enum ct_status ct__onednn_view(struct onednn_program *p, int node, int root, int ndims, const int *dims,
			       const ct_dnnl_desc **desc, int *buffer)
{
	const ct_dnnl_desc *d = p->values[root].layout.desc, *plain;
	struct onednn_ref at = {ONEDNN_BUFFER, p->values[root].layout.buffer};

	if (ct__dnnl_desc_ndims(d) != ndims || memcmp(ct__dnnl_desc_dims(d), dims, (size_t)ndims * sizeof(*dims))) {
		const enum ct_dnnl_type type = ct__dnnl_desc_type(d);

		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ct__dnnl_desc_ndims(d), ct__dnnl_desc_dims(d), &plain));
		CT_TRY(ct__onednn_relayout(p, node, at, d, plain, &at));
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ndims, dims, &d));
	}
	*desc = d;
	*buffer = at.id;
	return CT_OK;
}

enum ct_status ct__onednn_view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc,
				       int *buffer)
{
	int root = p->values[id].layout.root, dims[4];
	const ct_dnnl_desc *d = p->values[root].layout.desc;

	ct__onednn_dims(p, id, dims);
	bool same = ct__dnnl_desc_ndims(d) == 4 && !memcmp(ct__dnnl_desc_dims(d), dims, sizeof(dims));
	return ct__onednn_view(p, node, root, !same && dims[2] * dims[3] == 1 ? 2 : 4, dims, desc, buffer);
}

enum ct_status ct__onednn_own_result(struct onednn_program *p, int id, const ct_dnnl_desc *desc)
{
	struct onednn_value *v = &p->values[id];
	int owner = ct__onednn_owner(p, id);

	v->layout.desc = desc;
	v->layout.root = -1;
	p->values[owner].layout.root = owner;
	p->values[owner].layout.desc = desc;
	return ct__onednn_buffer(p, ct__dnnl_desc_bytes(desc), &p->values[owner].layout.buffer);
}

struct onednn_ref ct__onednn_buffer_or_nothing(int buffer)
{
	return buffer >= 0 ? ONEDNN_BUF(buffer) : (struct onednn_ref){ONEDNN_NOTHING, 0};
}

struct ct_dnnl_spec ct__onednn_layer_spec(const struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_window *w = &node->win;

	if (node->op != CT_OP_CONV2D)
		return (struct ct_dnnl_spec){.op = CT_DNNL_LINEAR_FORWARD};
	return (struct ct_dnnl_spec){.op = CT_DNNL_CONV_FORWARD,
				     .stride = {w->stride_h, w->stride_w},
				     .pad = {w->pad_h, w->pad_w},
				     .dilation = {w->dilation_h, w->dilation_w}};
}

enum ct_status ct__onednn_any_like(struct onednn_program *p, enum ct_dnnl_type type, const ct_dnnl_desc *d,
				   const ct_dnnl_desc **out)
{
	return ct__dnnl_any_of(p->dnnl, type, ct__dnnl_desc_ndims(d), ct__dnnl_desc_dims(d), out);
}

enum ct_status ct__onednn_image_layout(struct onednn_program *p, const int dims[4], const ct_dnnl_desc **out)
{
	const enum ct_dnnl_type type = ct__onednn_type(p);

	return p->base.net->plan.layout == CT_LAYOUT_NHWC ? ct__dnnl_nhwc_of(p->dnnl, type, dims, out)
							  : ct__dnnl_any_of(p->dnnl, type, 4, dims, out);
}
