/* Norm, ReLU and max pool as one task: neither the result of the norm nor that of the ReLU exists, and the pool owns
 * the result. The backward pass works from the inputs at the maxima and their positions. The gradient of the norm's
 * input is written over the output of a convolution if no other node reads it. */
#include "nn/onednn/compile/norm_impl.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/program/shapes.h"

/* Appends the arguments that both directions have, in the order of enum onednn_pool_arg. */
static void norm_pool_args(struct onednn_program *p, struct onednn_task *t, int partials)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const struct onednn_value *v = &p->values[t->node];
	const bool forward = t->kind == ONEDNN_NORM_POOL;

	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->kept.mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->kept.variance);
	ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.picked);
	ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.taps);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SCRATCHPAD, partials);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST,
			      forward ? p->values[v->fusion.pool].layout.buffer
				      : p->values[v->fusion.pool].gradient.buffer);
}

enum ct_status ct__onednn_norm_pool_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const enum ct_dnnl_type type = ct__dnnl_desc_type(v->kept.src_desc);
	const struct ct_norm_pool_shape s = ct__onednn_norm_pool_shape(p, id);
	const size_t elems = ct__norm_pool_out_elems(&s), channels = (size_t)node->shape.c * sizeof(float);
	const ct_dnnl_desc *dst;
	struct onednn_task *t;
	int dims[4], partials;

	ct__onednn_dims(p, v->fusion.pool, dims);
	CT_TRY(s.nhwc ? ct__dnnl_nhwc_of(p->dnnl, type, dims, &dst)
		      : ct__dnnl_blocked_of(p->dnnl, type, dims, ct__lanes(), &dst));
	CT_TRY(ct__onednn_own_result(p, id, dst));
	v->layout.desc = v->kept.src_desc;
	CT_TRY(ct__onednn_buffer(p, channels, &v->kept.mean));
	CT_TRY(ct__onednn_buffer(p, channels, &v->kept.variance));
	CT_TRY(ct__onednn_buffer(p, elems * ct__dnnl_type_bytes(type), &v->kept.picked));
	CT_TRY(ct__onednn_buffer(p, elems, &v->kept.taps));
	CT_TRY(ct__onednn_buffer(p, ct__norm_pool_scratch_bytes(&s), &partials));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_POOL, id, &t));
	norm_pool_args(p, t, partials);
	return ct__onednn_running_statistics(p, id);
}

enum ct_status ct__onednn_norm_pool_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_norm_pool_shape s = ct__onednn_norm_pool_shape(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	struct onednn_value *x = &p->values[node->in[0]];
	struct onednn_ref dgamma, dbeta;
	int partials, dx;

	CT_TRY(ct__onednn_param_grad(p, id, node->weight, &dgamma));
	CT_TRY(ct__onednn_param_grad(p, id, node->bias, &dbeta));
	CT_TRY(ct__onednn_buffer(p, ct__norm_pool_scratch_bytes(&s), &partials));
	/* The gradient overwrites the output of a convolution if no other node reads it. */
	x->layout.gone = x->fusion.user == id && x->layout.buffer == v->kept.src &&
			 ct__onednn_node(p, node->in[0])->op == CT_OP_CONV2D;
	if (x->layout.gone)
		dx = v->kept.src;
	else
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->layout.desc), &dx));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_POOL_BACKWARD, id, &t));
	norm_pool_args(p, t, partials);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, dgamma);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, dbeta);
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	CT_TRY(ct__onednn_slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].gradient.needed)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->layout.desc, false);
}
