/* oneDNN computes a norm in layouts that ctrain's kernels do not support, if its statistics are those of this rank. The
 * primitive gives the biased statistics of the batch; a separate task updates the running ones, and not a second time
 * when the norm is recomputed. With a fused ReLU, the backward pass needs the primitive's workspace. This ReLU turns
 * NaN into 0; in training, the task of the running statistics finds the NaN and makes the loss NaN. */
#include "nn/onednn/compile/norm_impl.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"

enum ct_status ct__onednn_running_statistics(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];
	struct onednn_task *t;

	if (p->recomputing)
		return CT_OK;
	CT_TRY(ct__onednn_task(p, ONEDNN_RUNNING_STATS, id, &t));
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->kept.mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->kept.variance);
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
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->kept.mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->kept.variance);
	if (v->kept.workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.workspace);
	return ct__onednn_running_statistics(p, id);
}

enum ct_status ct__onednn_norm_library_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const size_t channels = (size_t)node->shape.c * sizeof(float);
	const bool eval = p->base.mode == CT_EVAL;
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = {.op = CT_DNNL_NORM_FORWARD, .inference = eval, .eps = node->eps};
	struct onednn_task *t;

	/* oneDNN's ReLU turns NaN into 0. In training, the statistics reveal the NaN. In evaluation, the ReLU is not
	 * fused. */
	if (eval)
		v->fusion.relu = -1;
	spec.relu = v->fusion.relu >= 0;
	spec.src = spec.dst = v->kept.src_desc;
	CT_TRY(ct__dnnl_prim_get(p->dnnl, &spec, &v->kept.prim));
	if (!v->kept.prim && spec.relu) {
		v->fusion.relu = -1;
		spec.relu = 0;
	}
	CT_TRY(ct__onednn_prim(p, id, &spec, &v->kept.prim));
	CT_TRY(ct__onednn_own_result(p, id, v->kept.src_desc));
	CT_TRY(ct__onednn_buffer(p, channels, &v->kept.mean));
	CT_TRY(ct__onednn_buffer(p, channels, &v->kept.variance));
	if (ct__dnnl_prim_bytes(v->kept.prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct__onednn_buffer(p, ct__dnnl_prim_bytes(v->kept.prim, CT_DNNL_WORKSPACE), &v->kept.workspace));
	CT_TRY(ct__onednn_call(p, id, v->kept.prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
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
					  .src = v->layout.desc,
					  .dst = v->layout.desc,
					  .other = v->layout.desc,
					  .relu = v->fusion.relu >= 0,
					  .eps = node->eps,
					  .forward = v->kept.prim};
	struct onednn_ref dgamma, dbeta;
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int dx, dy = v->gradient.buffer;

	CT_TRY(ct__onednn_param_grad(p, id, node->weight, &dgamma));
	CT_TRY(ct__onednn_param_grad(p, id, node->bias, &dbeta));
	CT_TRY(ct__onednn_prim(p, id, &spec, &prim));
	CT_TRY(ct__onednn_in_place(p, v, &dx));
	CT_TRY(ct__onednn_call(p, id, prim, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->kept.mean);
	ct__onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->kept.variance);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, dgamma);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, dbeta);
	if (v->kept.workspace >= 0)
		ct__onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->kept.workspace);
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	CT_TRY(ct__onednn_slice_done(p, id, node->bias));
	if (!p->values[node->in[0]].gradient.needed)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, v->layout.desc, false);
}
