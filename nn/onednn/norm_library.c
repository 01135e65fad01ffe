#include "nn/onednn/onednn_impl.h"

#include "nn/onednn/norm_kernels.h"

static enum ct_status running_statistics(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;

	if (p->recomputing)
		return CT_OK;
	CT_TRY(ct__onednn_task(p, ONEDNN_RUNNING_STATS, id, &t));
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	t->n = (size_t)p->base.n * (size_t)node->shape.h * (size_t)node->shape.w;
	return CT_OK;
}

static enum ct_status norm_statistics(struct onednn_program *p, int id, struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_ref running[2] = {{ONEDNN_RUNNING, node->mean}, {ONEDNN_RUNNING, node->var}};

	if (p->base.mode == CT_EVAL) {
		ct__onednn_arg(p, t, CT_DNNL_MEAN, running[0]);
		ct__onednn_arg(p, t, CT_DNNL_VARIANCE, running[1]);
		return CT_OK;
	}
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	if (v->workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	return running_statistics(p, id);
}

/* The arguments that both directions have, in the order of enum onednn_norm_pool_arg. */
static void norm_pool_args(struct onednn_program *p, struct onednn_task *t, int partials)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const struct onednn_value *v = &p->values[t->node];
	const bool forward = t->kind == ONEDNN_NORM_POOL;

	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->picked);
	ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->taps);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SCRATCHPAD, partials);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST,
			      forward ? p->values[v->fused_pool].buffer : p->values[v->fused_pool].grad);
}

struct ct_norm_pool_shape ct__onednn_norm_pool_shape(const struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id), *pool = ct__onednn_node(p, p->values[id].fused_pool);

	return (struct ct_norm_pool_shape){.n = p->base.n,
					   .channels = node->shape.c,
					   .in = node->shape,
					   .out = pool->shape,
					   .win = pool->win,
					   .eps = node->eps,
					   .bf16 = ct__dnnl_desc_type(p->values[id].src_desc) == CT_DNNL_BF16};
}

/* Norm, ReLU and max pool in one, where the layout suits our own kernels. */
enum ct_status ct__onednn_norm_pool_forward(struct onednn_program *p, int id, bool *done)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const enum ct_dnnl_type type = ct__dnnl_desc_type(v->src_desc);
	const ct_dnnl_desc *blocked, *dst;
	struct onednn_task *t;
	int dims[4], partials;

	*done = false;
	if (v->fused_pool < 0)
		return CT_OK;
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, type, dims, CT_NORM_POOL_BLOCK, &blocked));
	if (v->src_desc != blocked || p->base.net->opts.sync || !ct__norm_usable()) {
		v->fused_pool = -1;
		return CT_OK;
	}
	*done = true;
	const struct ct_norm_pool_shape s = ct__onednn_norm_pool_shape(p, id);
	const size_t elems = ct__norm_pool_out_elems(&s), channels = (size_t)node->shape.c * sizeof(float);
	ct__onednn_dims(p, v->fused_pool, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, type, dims, CT_NORM_POOL_BLOCK, &dst));
	CT_TRY(ct__onednn_own_result(p, id, dst));
	v->desc = v->src_desc;
	CT_TRY(ct__onednn_buffer(p, channels, &v->mean));
	CT_TRY(ct__onednn_buffer(p, channels, &v->variance));
	CT_TRY(ct__onednn_buffer(p, elems * ct__dnnl_type_bytes(type), &v->picked));
	CT_TRY(ct__onednn_buffer(p, elems, &v->taps));
	CT_TRY(ct__onednn_buffer(p, ct__norm_pool_scratch_bytes(&s), &partials));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_POOL, id, &t));
	norm_pool_args(p, t, partials);
	return running_statistics(p, id);
}

enum ct_status ct__onednn_norm_library_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const size_t channels = (size_t)node->shape.c * sizeof(float);
	const bool eval = p->base.mode == CT_EVAL;
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_NORM_FORWARD, .inference = eval, .eps = node->eps};
	struct onednn_task *t;

	/* The library's ReLU turns NaN into 0; in training the statistics tell. */
	if (eval)
		v->fused_relu = -1;
	spec.relu = v->fused_relu >= 0;
	spec.src = spec.dst = v->src_desc;
	CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, &v->prim));
	if (!v->prim && spec.relu) {
		v->fused_relu = -1;
		spec.relu = 0;
	}
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(ct__onednn_own_result(p, id, v->src_desc));
	CT_TRY(ct__onednn_buffer(p, channels, &v->mean));
	CT_TRY(ct__onednn_buffer(p, channels, &v->variance));
	if (ct__dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE), &v->workspace));
	CT_TRY(ct__onednn_call(p, id, v->prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, id));
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	return norm_statistics(p, id, t);
}

enum ct_status ct__onednn_norm_library_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_NORM_BACKWARD,
					  .src = v->desc,
					  .dst = v->desc,
					  .other = v->desc,
					  .relu = v->fused_relu >= 0,
					  .eps = node->eps,
					  .forward = v->prim};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx, dy = v->grad;

	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	if (v->workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	CT_TRY(ct__onednn_slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].needs_grad)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->desc, false);
}

enum ct_status ct__onednn_norm_pool_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_norm_pool_shape s = ct__onednn_norm_pool_shape(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	struct onednn_value *x = &p->values[node->in[0]];
	int partials, dx;

	CT_TRY(ct__onednn_buffer(p, ct__norm_pool_scratch_bytes(&s), &partials));
	/* Nobody else needs a convolution's output any more. */
	x->value_gone = x->user == id && x->buffer == v->src && ct__onednn_node(p, node->in[0])->op == CT_OP_CONV2D;
	if (x->value_gone)
		dx = v->src;
	else
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->desc), &dx));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_POOL_BACKWARD, id, &t));
	norm_pool_args(p, t, partials);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	CT_TRY(ct__onednn_slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].needs_grad)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->desc, false);
}
