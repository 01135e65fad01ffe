/* The forward pass of operations without weights. They take the layout in which their input is stored; a pool lets
 * oneDNN choose the layout of its result. Flatten, and dropout in evaluation, share the memory of their input and have
 * no tasks. A dropout mask is drawn in the logical order and then reordered, so it does not depend on the layout. The
 * buffer of the logits is live to the end, because they may be read after the pass. */
#include "nn/onednn/compile/ops.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/norm_tasks.h"

enum ct_status ct__onednn_pool_forward(struct onednn_program *p, int id)
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
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[0]].layout.root, 4, dims, &v->kept.src_desc, &v->kept.src));
	spec.src = v->kept.src_desc;
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_any_of(p->dnnl, ct__dnnl_desc_type(spec.src), 4, dims, &spec.dst));
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->kept.prim));
	CT_TRY(ct__dnnl_prim_desc(p->dnnl, v->kept.prim, CT_DNNL_DST, &dst));
	CT_TRY(ct__onednn_own_result(p, id, dst));
	if (ct__dnnl_prim_bytes(v->kept.prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_prim_bytes(v->kept.prim, CT_DNNL_WORKSPACE), &v->kept.workspace));
	CT_TRY(ct__onednn_call(p, id, v->kept.prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	if (v->kept.workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.workspace);
	return CT_OK;
}

enum ct_status ct__onednn_relu_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x;
	struct onednn_task *t;

	if (p->values[node->in[0]].fusion.relu ==
	    id) /* a ReLU between a norm and its pool has no value, nor has its input */
		return CT_OK;
	x = &p->values[p->values[node->in[0]].layout.root];
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_RELU_FORWARD, .src = x->layout.desc, .dst = x->layout.desc};
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->kept.prim));
	CT_TRY(ct__onednn_own_result(p, id, x->layout.desc));
	CT_TRY(ct__onednn_call(p, id, v->kept.prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, x->layout.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	return CT_OK;
}

enum ct_status ct__onednn_add_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_ADD, .relu = v->fusion.relu >= 0};
	const ct_dnnl_desc *a_desc, *b_desc;
	struct onednn_ref b;
	struct onednn_task *t;
	int a_buffer, b_buffer;

	if (v->fusion.norm >= 0)
		return ct__onednn_join_forward(p, id);
	CT_TRY(ct__onednn_view_natural(p, id, node->in[0], &a_desc, &a_buffer));
	CT_TRY(ct__onednn_view(p, id, p->values[node->in[1]].layout.root, ct__dnnl_desc_ndims(a_desc),
			       ct__dnnl_desc_dims(a_desc), &b_desc, &b_buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(b_buffer), b_desc, a_desc, &b));
	spec.src = spec.other = spec.dst = a_desc;
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->kept.prim));
	CT_TRY(ct__onednn_own_result(p, id, a_desc));
	CT_TRY(ct__onednn_call(p, id, v->kept.prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, a_buffer);
	ct__onednn_arg(p, t, CT_DNNL_OTHER, b);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	return CT_OK;
}

enum ct_status ct__onednn_dropout_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].layout.root];
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	struct onednn_ref mask;
	int drawn;

	if (p->base.mode == CT_EVAL) {
		v->layout.root = p->values[node->in[0]].layout.root;
		return CT_OK;
	}
	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(x->layout.desc), ct__dnnl_desc_dims(x->layout.desc),
			      &plain));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(plain), &drawn));
	CT_TRY(ct__onednn_task(p, ONEDNN_DROPOUT_MASK, id, &t));
	t->n = (size_t)node->shape.c * (size_t)node->shape.h * (size_t)node->shape.w;
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, drawn);
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(drawn), plain, x->layout.desc, &mask));
	v->kept.mask = mask.id;
	CT_TRY(ct__onednn_own_result(p, id, x->layout.desc));
	CT_TRY(ct__onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct__dnnl_desc_bytes(x->layout.desc) / ct__dnnl_type_bytes(ct__dnnl_desc_type(x->layout.desc));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, x->layout.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->kept.mask);
	return CT_OK;
}

enum ct_status ct__onednn_loss_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_shape s = ct__onednn_node(p, node->in[0])->shape;
	const int root = p->values[node->in[0]].layout.root, dims[2] = {p->base.n, s.c * s.h * s.w};
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
	p->buffers[p->values[root].layout.buffer].last = INT32_MAX - 1; /* it can be read at any time */
	return CT_OK;
}

/* The caller gets and gives plain fp32 in the logical layout. */
enum ct_status ct__onednn_output_forward(struct onednn_program *p, int id)
{
	const struct ct_shape s = ct__onednn_node(p, id)->shape;
	const int root = p->values[ct__onednn_node(p, id)->in[0]].layout.root;
	const ct_dnnl_desc *desc, *plain;
	struct onednn_ref out;
	struct onednn_task *t;
	int dims[4], buffer;

	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_plain(p->dnnl, 4, dims, &plain));
	CT_TRY(ct__onednn_view(p, id, root, 4, dims, &desc, &buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, plain, &out));
	CT_TRY(ct__onednn_task(p, ONEDNN_OUTPUT, id, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, out);
	t->n = (size_t)s.c * (size_t)s.h * (size_t)s.w;
	return CT_OK;
}

enum ct_status ct__onednn_flatten_forward(struct onednn_program *p, int id)
{
	p->values[id].layout.root = p->values[ct__onednn_node(p, id)->in[0]].layout.root;
	return CT_OK;
}
