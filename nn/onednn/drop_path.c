#include "nn/onednn/onednn_impl.h"

#include "nn/onednn/norm_kernels.h"

/* Rows lie one after the other in the layouts that we know; others are made plain fp32. */
static enum ct_status with_whole_rows(struct onednn_program *p, int id, const struct onednn_value *x,
				      const ct_dnnl_desc **desc, int *buffer)
{
	const int *dims = ct__dnnl_desc_dims(x->desc), ndims = ct__dnnl_desc_ndims(x->desc);
	const ct_dnnl_desc *plain, *blocked = NULL;
	struct onednn_ref at;

	const enum ct_dnnl_type type = ct__dnnl_desc_type(x->desc);
	CT_TRY(ct__dnnl_plain(p->dnnl, ndims, dims, &plain));
	if (ndims == 4 && ct__norm_usable())
		CT_TRY(ct__dnnl_blocked_of(p->dnnl, type, dims, CT_NORM_POOL_BLOCK, &blocked));
	*desc = x->desc == blocked ? blocked : plain;
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(x->buffer), x->desc, *desc, &at));
	*buffer = at.id;
	return CT_OK;
}

static enum ct_status scale_rows(struct onednn_program *p, int id, const ct_dnnl_desc *desc, int from, int to)
{
	struct onednn_task *t;

	CT_TRY(ct__onednn_task(p, ONEDNN_SCALE_ROWS, id, &t));
	t->n = ct__dnnl_desc_bytes(desc) / ct__dnnl_type_bytes(ct__dnnl_desc_type(desc)) / (size_t)p->base.n;
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, to);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, from);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, p->values[id].mask);
	return CT_OK;
}

enum ct_status ct__onednn_drop_path_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int from;

	if (p->base.mode == CT_EVAL) {
		v->root = p->values[node->in[0]].root;
		return CT_OK;
	}
	CT_TRY(ct__onednn_buffer(p, (size_t)p->base.n * sizeof(float), &v->mask));
	CT_TRY(ct__onednn_task(p, ONEDNN_ROW_FACTORS, id, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->mask);
	if (p->values[node->in[0]].fused_add >= 0)
		return CT_OK; /* norm, drop path and sum are one */
	CT_TRY(with_whole_rows(p, id, &p->values[p->values[node->in[0]].root], &desc, &from));
	CT_TRY(ct__onednn_own_result(p, id, desc));
	return scale_rows(p, id, desc, from, v->buffer);
}

enum ct_status ct__onednn_drop_path_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	int dx;

	if (p->values[ct__onednn_node(p, id)->in[0]].fused_add >= 0)
		return CT_OK;
	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(scale_rows(p, id, v->desc, v->grad, dx));
	return ct__onednn_give_grad(p, id, ct__onednn_node(p, id)->in[0], dx, v->desc, false);
}
