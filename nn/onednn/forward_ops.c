#include "nn/onednn/onednn_impl.h"

#include <string.h>

enum ct_status ct__onednn_view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc,
				       int *buffer)
{
	int root = p->values[id].root, dims[4];
	const ct_dnnl_desc *d = p->values[root].desc;

	ct__onednn_dims(p, id, dims);
	bool same = ct__dnnl_desc_ndims(d) == 4 && !memcmp(ct__dnnl_desc_dims(d), dims, sizeof(dims));
	return ct__onednn_view(p, node, root, !same && dims[2] * dims[3] == 1 ? 2 : 4, dims, desc, buffer);
}

static enum ct_status compile_pool(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct ct_window w = node->win;
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *dst;
	struct onednn_task *t;
	int dims[4];

	ct__onednn_dims(p, node->in[0], dims);
	if (node->op == CT_OP_GLOBAL_AVG_POOL)
		w = (struct ct_window){dims[2], dims[3], 1, 1, 0, 0, 1, 1};
	struct ct_dnnl_spec spec = {.op = CT_DNNL_POOL_FORWARD,
				    .inference = p->base.mode == CT_EVAL,
				    .average = node->op != CT_OP_MAX_POOL,
				    .kernel = {w.r, w.s},
				    .stride = {w.stride_h, w.stride_w},
				    .pad = {w.pad_h, w.pad_w},
				    .dilation = {w.dilation_h, w.dilation_w}};
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[0]].root, 4, dims, &v->src_desc, &v->src));
	spec.src = v->src_desc;
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_any_of(p->dnnl, ct__dnnl_desc_type(spec.src), 4, dims, &spec.dst));
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, v->prim, CT_DNNL_DST, &dst));
	CT_TRY(ct__onednn_own_result(p, id, dst));
	if (ct__dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE), &v->workspace));
	CT_TRY(ct__onednn_call(p, id, v->prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	if (v->workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	return CT_OK;
}

static enum ct_status compile_relu(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].root];
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_RELU_FORWARD, .src = x->desc, .dst = x->desc};
	struct onednn_task *t;

	CT_TRY(ct__onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(ct__onednn_own_result(p, id, x->desc));
	CT_TRY(ct__onednn_call(p, id, v->prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, x->buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	return CT_OK;
}

static enum ct_status compile_add(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_ADD, .relu = v->fused_relu >= 0};
	const ct_dnnl_desc *a_desc, *b_desc;
	struct onednn_ref b;
	struct onednn_task *t;
	int a_buffer, b_buffer;

	CT_TRY(ct__onednn_view_natural(p, id, node->in[0], &a_desc, &a_buffer));
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[1]].root, ct__dnnl_desc_ndims(a_desc),
			       ct__dnnl_desc_dims(a_desc), &b_desc, &b_buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(b_buffer), b_desc, a_desc, &b));
	spec.src = spec.other = spec.dst = a_desc;
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(ct__onednn_own_result(p, id, a_desc));
	CT_TRY(ct__onednn_call(p, id, v->prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, a_buffer);
	ct__onednn_arg(p, t, CT_DNNL_OTHER, b);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	return CT_OK;
}

static enum ct_status compile_dropout(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].root];
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	struct onednn_ref mask;
	int drawn;

	if (p->base.mode == CT_EVAL) {
		v->root = p->values[node->in[0]].root;
		return CT_OK;
	}
	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(x->desc), ct__dnnl_desc_dims(x->desc), &plain));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &drawn));
	CT_TRY(ct__onednn_task(p, ONEDNN_DROPOUT_MASK, id, &t));
	t->n = (size_t)node->shape.c * (size_t)node->shape.h * (size_t)node->shape.w;
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, drawn);
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(drawn), plain, x->desc, &mask));
	v->mask = mask.id;
	CT_TRY(ct__onednn_own_result(p, id, x->desc));
	CT_TRY(ct__onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct__dnnl_desc_bytes(x->desc) / ct__dnnl_type_bytes(ct__dnnl_desc_type(x->desc));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, x->buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->mask);
	return CT_OK;
}

static enum ct_status compile_loss(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_shape s = ct__onednn_node(p, node->in[0])->shape;
	const int root = p->values[node->in[0]].root, dims[2] = {p->base.n, s.c * s.h * s.w};
	const ct_dnnl_desc *desc, *plain;
	struct onednn_ref logits;
	struct onednn_task *t;
	int buffer;

	CT_TRY(ct__dnnl_plain(p->dnnl, 2, dims, &plain));
	CT_TRY(ct__onednn_view(p, id, root, 2, dims, &desc, &buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, plain, &logits));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &p->dlogits));
	CT_TRY(ct__onednn_task(p, ONEDNN_LOSS, id, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, logits);
	if (p->base.mode == CT_TRAIN)
		ct__onednn_arg_buffer(p, t, CT_DNNL_DST, p->dlogits);
	t->n = (size_t)dims[1];
	p->buffers[p->values[root].buffer].last = INT32_MAX - 1; /* can always be read */
	return CT_OK;
}

enum ct_status ct__onednn_forward_op(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);

	if (p->values[id].root >= 0 || p->values[id].absorbed) /* computed with another node */
		return CT_OK;
	switch (node->op) {
	case CT_OP_BATCH_NORM:
		return ct__onednn_norm_forward(p, id);
	case CT_OP_RELU:
		/* Has no value when a pool is fused, too. */
		return p->values[node->in[0]].fused_relu == id ? CT_OK : compile_relu(p, id);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return compile_pool(p, id);
	case CT_OP_ADD:
		return p->values[id].fused_norm >= 0 ? ct__onednn_join_forward(p, id) : compile_add(p, id);
	case CT_OP_FLATTEN:
		p->values[id].root = p->values[node->in[0]].root;
		return CT_OK;
	case CT_OP_DROPOUT:
		return compile_dropout(p, id);
	case CT_OP_DROP_PATH:
		return ct__onednn_drop_path_forward(p, id);
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return compile_loss(p, id);
	default:
		return CT_FAIL(CT_BUG, "operation %d in a graph", (int)node->op);
	}
}
