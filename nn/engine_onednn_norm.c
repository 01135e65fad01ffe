#include "nn/engine_onednn.h"

/* Rows lie one after the other in the layouts that we know; others are made plain. */
static enum ct_status with_whole_rows(struct onednn_program *p, int id, const struct onednn_value *x,
				      const ct_dnnl_desc **desc, int *buffer)
{
	const int *dims = ct_dnnl_desc_dims(x->desc), ndims = ct_dnnl_desc_ndims(x->desc);
	const ct_dnnl_desc *plain, *blocked[2] = {NULL, NULL};
	struct onednn_ref at;

	CT_TRY(ct_dnnl_plain(p->dnnl, ndims, dims, &plain));
	for (int i = 0; i < 2 && ndims == 4; i++)
		CT_TRY(ct_dnnl_blocked(p->dnnl, dims, i ? 16 : 8, &blocked[i]));
	*desc = x->desc == blocked[0] || x->desc == blocked[1] ? x->desc : plain;
	CT_TRY(ct_onednn_relayout(p, id, ONEDNN_BUF(x->buffer), x->desc, *desc, &at));
	*buffer = at.id;
	return CT_OK;
}

static enum ct_status scale_rows(struct onednn_program *p, int id, const ct_dnnl_desc *desc, int from, int to)
{
	struct onednn_task *t;

	CT_TRY(ct_onednn_task(p, ONEDNN_SCALE_ROWS, id, &t));
	t->n = ct_dnnl_desc_bytes(desc) / sizeof(float) / (size_t)p->base.n;
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, to);
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, from);
	ct_onednn_arg_buffer(p, t, CT_DNNL_OTHER, p->values[id].mask);
	return CT_OK;
}

enum ct_status ct_onednn_drop_path_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct_onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].root];
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int from;

	if (p->base.mode == CT_EVAL) {
		v->root = p->values[node->in[0]].root;
		return CT_OK;
	}
	CT_TRY(ct_onednn_buffer(p, (size_t)p->base.n * sizeof(float), &v->mask));
	CT_TRY(ct_onednn_task(p, ONEDNN_ROW_FACTORS, id, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->mask);
	CT_TRY(with_whole_rows(p, id, x, &desc, &from));
	CT_TRY(ct_onednn_own_result(p, id, desc));
	return scale_rows(p, id, desc, from, v->buffer);
}

enum ct_status ct_onednn_drop_path_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	int dx;

	CT_TRY(ct_onednn_in_place(p, v, &dx));
	CT_TRY(scale_rows(p, id, v->desc, v->grad, dx));
	return ct_onednn_give_grad(p, id, ct_onednn_node(p, id)->in[0], dx, v->desc, false);
}

struct rows {
	float *out;
	const float *in, *factor;
	size_t n;
};

static void scale_range(void *arg, int begin, int end)
{
	const struct rows *r = arg;

	for (int i = begin; i < end; i++) {
		const size_t at = (size_t)i * r->n;
		const float factor = r->factor[i];
		for (size_t j = 0; j < r->n; j++)
			r->out[at + j] = r->in[at + j] * factor;
	}
}

void ct_onednn_norm_run(struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct_onednn_node(p, t->node);

	if (t->kind == ONEDNN_ROW_FACTORS) {
		ct_drop_path_mask(p->base.net->opts.seed, p->batch->step, t->node, p->batch->first, node->p,
				  p->batch->n, t->ptr[0]);
	} else {
		struct rows rows = {t->ptr[0], t->ptr[1], t->ptr[2], t->n};
		ct_dnnl_parallel(p->base.n, scale_range, &rows);
	}
}
