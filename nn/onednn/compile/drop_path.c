/* A task draws one factor for each row, which the backward pass uses, too. If the norm before the drop path is fused
 * into the sum after it, the norm's kernels apply the factors, and there is nothing else to do in either direction.
 * Otherwise the rows are scaled by a separate task. */
#include "nn/onednn/compile/drop_path.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/kernels/norm_kernels.h"

/* Makes each row of the value contiguous. Rows are contiguous in plain, blocked and NHWC layouts; other layouts, and
 * NHWC rows that do not fill vectors, are reordered to plain fp32. */
static enum ct_status with_whole_rows(struct onednn_program *p, int id, const struct onednn_value *x,
				      const ct_dnnl_desc **desc, int *buffer)
{
	const int *dims = ct__dnnl_desc_dims(x->layout.desc), ndims = ct__dnnl_desc_ndims(x->layout.desc);
	const ct_dnnl_desc *plain, *blocked = NULL, *nhwc = NULL;
	struct onednn_ref at;

	const enum ct_dnnl_type type = ct__dnnl_desc_type(x->layout.desc);
	CT_TRY(ct__dnnl_plain(p->dnnl, ndims, dims, &plain));
	if (ndims == 4 && ct__norm_usable(type == CT_DNNL_BF16))
		CT_TRY(ct__dnnl_blocked_of(p->dnnl, type, dims, ct__lanes(), &blocked));
	if (blocked && dims[1] * dims[2] * dims[3] % ct__lanes() == 0)
		CT_TRY(ct__dnnl_nhwc_of(p->dnnl, type, dims, &nhwc));
	*desc = x->layout.desc == blocked || x->layout.desc == nhwc ? x->layout.desc : plain;
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(x->layout.buffer), x->layout.desc, *desc, &at));
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
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, p->values[id].kept.mask);
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
		v->layout.root = p->values[node->in[0]].layout.root;
		return CT_OK;
	}
	CT_TRY(ct__onednn_buffer(p, (size_t)p->base.n * sizeof(float), &v->kept.mask));
	CT_TRY(ct__onednn_task(p, ONEDNN_ROW_FACTORS, id, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->kept.mask);
	if (p->values[node->in[0]].fusion.join >= 0)
		return CT_OK; /* the sum computes it together with the norm */
	CT_TRY(with_whole_rows(p, id, &p->values[p->values[node->in[0]].layout.root], &desc, &from));
	CT_TRY(ct__onednn_own_result(p, id, desc));
	return scale_rows(p, id, desc, from, v->layout.buffer);
}

enum ct_status ct__onednn_drop_path_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	int dx;

	if (p->values[ct__onednn_node(p, id)->in[0]].fusion.join >= 0)
		return CT_OK;
	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(scale_rows(p, id, v->layout.desc, v->gradient.buffer, dx));
	return ct__onednn_give_grad(p, id, ct__onednn_node(p, id)->in[0], dx, v->layout.desc, false);
}
