/* Batch norm with ctrain's kernels (kernels/norm_kernels.h). The forward pass computes the statistics and then makes
 * one pass over the data, which also applies the ReLU. If a sum is the only user of a norm, this pass also applies the
 * drop path and adds the residual. We call this a join: the value of such a norm is not stored, and the norm runs when
 * it is the sum's turn. The backward pass computes sums and then makes one pass over the data. A join produces the
 * gradients of both addends. If two users each passed a gradient, it adds them in the same pass. For its backward pass,
 * a norm keeps its input and, in a join with ReLU, one bit per element.
 *
 * A norm with a max pool is lowered by norm_pool.c if its statistics are those of this rank, computed from the batch.
 *
 * In layouts other than that of kernels/block.h and, in a plan with NHWC, other than [N,H,W,C], oneDNN computes the
 * norm or, if the statistics are fixed or those of all ranks, the loops of the reference engine. */
#include "nn/onednn/compile/norm_tasks.h"

#include "nn/host/host.h"
#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/gradient.h"
#include "nn/onednn/compile/norm_impl.h"
#include "nn/onednn/kernels/norm_kernels.h"

/* ctrain's kernels support [N,C/b,H,W,b] (kernels/block.h) and, if this is the layout of the plan, [N,H,W,C]. They also
 * support [N,C] if the features fill complete blocks, because the layouts are then the same. */
static enum ct_status knows_layout(struct onednn_program *p, int id, const ct_dnnl_desc *desc, bool *out)
{
	const bool usable = ct__norm_usable(ct__dnnl_desc_type(desc) == CT_DNNL_BF16);
	const ct_dnnl_desc *blocked, *nhwc;
	int dims[4];

	if (ct__dnnl_desc_ndims(desc) == 2) {
		*out = usable && ct__dnnl_desc_is_plain(desc) && ct__dnnl_desc_dims(desc)[1] % ct__lanes() == 0;
		return CT_OK;
	}
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__dnnl_desc_type(desc), dims, ct__lanes(), &blocked));
	CT_TRY(ct__dnnl_nhwc_of(p->dnnl, ct__dnnl_desc_type(desc), dims, &nhwc));
	p->values[id].kept.nhwc = p->base.net->plan.layout == CT_LAYOUT_NHWC && desc == nhwc;
	*out = usable && (desc == blocked || p->values[id].kept.nhwc);
	return CT_OK;
}

static size_t scratch_bytes(const struct onednn_program *p, int id)
{
	const struct ct_shape s = ct__onednn_node(p, id)->shape;

	return p->values[id].kept.nhwc ? ct__norm_nhwc_scratch_bytes(p->base.n, s.c, s.h * s.w)
				       : ct__norm_scratch_bytes(p->base.n, s.c);
}

/* Appends the arguments that both directions have, in the order of enum onednn_norm_arg. */
static void common_args(struct onednn_program *p, struct onednn_task *t, int partials, int path)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const struct onednn_value *v = &p->values[t->node];
	const bool kept = v->kept.mean >= 0; /* else the running statistics are used */

	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->kept.src);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg(p, t, CT_DNNL_MEAN,
		       kept ? ONEDNN_BUF(v->kept.mean) : (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_VARIANCE,
		       kept ? ct__onednn_buffer_or_nothing(v->kept.variance)
			    : (struct onednn_ref){ONEDNN_RUNNING, node->var});
	ct__onednn_arg(p, t, CT_DNNL_SCRATCHPAD, ct__onednn_buffer_or_nothing(partials));
	ct__onednn_arg(p, t, CT_DNNL_WORKSPACE, ct__onednn_buffer_or_nothing(v->kept.workspace));
	ct__onednn_arg(p, t, CT_DNNL_OTHER, ct__onednn_buffer_or_nothing(path >= 0 ? p->values[path].kept.mask : -1));
}

/* Appends the norm's task. The result, to which a residual may be added, is the value of `owner`. */
static enum ct_status emit_forward(struct onednn_program *p, int id, int owner, int residual)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_shape s = node->shape;
	struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int partials = -1;

	CT_TRY(ct__onednn_own_result(p, owner, v->kept.src_desc));
	v->layout.desc = v->kept.src_desc;
	if (p->base.mode == CT_TRAIN && !p->recomputing) {
		const size_t channels = (size_t)(s.c + s.c % 2) * sizeof(float);

		if (!node->fixed_stats) {
			CT_TRY(ct__onednn_buffer(p, channels + sizeof(double), &v->kept.mean));
			CT_TRY(ct__onednn_buffer(p, channels, &v->kept.variance));
			CT_TRY(ct__onednn_buffer(p, scratch_bytes(p, id), &partials));
		}
		if (residual >= 0 && p->values[owner].fusion.relu >= 0)
			CT_TRY(ct__onednn_buffer(p, ct__norm_mask_bytes(p->base.n, s.c, s.h * s.w),
						 &v->kept.workspace));
	}
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM, id, &t));
	t->n = p->recomputing;
	common_args(p, t, partials, p->values[owner].fusion.path);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, owner));
	ct__onednn_arg(p, t, CT_DNNL_OTHER, ct__onednn_buffer_or_nothing(residual));
	if (p->recomputing)
		return CT_OK;
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	return CT_OK;
}

static void undo_fusion(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];

	if (v->fusion.join >= 0)
		p->values[v->fusion.join].fusion.norm = p->values[v->fusion.join].fusion.path = -1;
	v->fusion.join = -1;
}

/* Synchronized batch norm, or batch norm with fixed statistics, in a layout that ctrain's kernels do not support.
 * Converts the input to plain fp32 for the reference engine's loops. */
static enum ct_status reference_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	struct onednn_ref src;
	const ct_dnnl_desc *plain;
	struct onednn_task *t;

	v->fusion.relu = -1;
	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(v->kept.src_desc), ct__dnnl_desc_dims(v->kept.src_desc),
			      &plain));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(v->kept.src), v->kept.src_desc, plain, &src));
	v->kept.src = src.id;
	v->kept.src_desc = plain;
	CT_TRY(ct__onednn_own_result(p, id, plain));
	CT_TRY(ct__onednn_buffer(p, CT_BATCH_NORM_STATS(node->shape.c) * sizeof(double), &v->kept.mean));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_PLAIN, id, &t));
	common_args(p, t, -1, -1);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	ct__onednn_arg(p, t, CT_DNNL_OTHER, ct__onednn_buffer_or_nothing(-1));
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	return CT_OK;
}

enum ct_status ct__onednn_norm_forward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	const struct ct_node *node = ct__onednn_node(p, id);
	bool known;

	CT_TRY(ct__onednn_view_natural(p, id, node->in[0], &v->kept.src_desc, &v->kept.src));
	CT_TRY(knows_layout(p, id, v->kept.src_desc, &known));
	if (!known || ct__dnnl_desc_ndims(v->kept.src_desc) != 4 || p->base.net->opts.sync || node->fixed_stats)
		v->fusion.pool = -1;
	if (v->fusion.pool >= 0)
		return ct__onednn_norm_pool_forward(p, id);
	if (known) {
		v->kept.norm = ONEDNN_NORM_OWN;
		return v->fusion.join >= 0 ? CT_OK : emit_forward(p, id, id, -1);
	}
	undo_fusion(p, id);
	if (p->base.mode == CT_TRAIN && (p->base.net->opts.sync || node->fixed_stats)) {
		v->kept.norm = ONEDNN_NORM_REFERENCE;
		return reference_forward(p, id);
	}
	v->kept.norm = ONEDNN_NORM_LIBRARY;
	return ct__onednn_norm_library_forward(p, id);
}

enum ct_status ct__onednn_join_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const int norm = p->values[id].fusion.norm, path = p->values[id].fusion.path;
	const int other = node->in[node->in[0] == norm || node->in[0] == path];
	const ct_dnnl_desc *want = p->values[norm].kept.src_desc, *desc;
	struct onednn_ref residual;
	int buffer;

	CT_TRY(ct__onednn_view(p, id, p->values[other].layout.root, ct__dnnl_desc_ndims(want), ct__dnnl_desc_dims(want),
			       &desc, &buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, want, &residual));
	return emit_forward(p, norm, id, residual.id);
}

/* Chooses the memory for the gradient of the norm's input: the memory of `dy` if it is free, that of the convolution's
 * output if no other node reads it, or else a new buffer. */
static enum ct_status place_gradient(struct onednn_program *p, int id, bool dy_is_free, int dy, int *dx)
{
	const int in = ct__onednn_node(p, id)->in[0];
	const struct onednn_value *v = &p->values[id];
	struct onednn_value *x = &p->values[in];

	if (dy_is_free) {
		*dx = dy;
		return CT_OK;
	}
	x->layout.gone =
		x->fusion.user == id && x->layout.buffer == v->kept.src && ct__onednn_node(p, in)->op == CT_OP_CONV2D;
	if (!x->layout.gone)
		return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->layout.desc), dx);
	*dx = v->kept.src;
	return CT_OK;
}

/* Chooses the memory for the sum of the gradients of `v`, or for its gradient after the ReLU. */
static enum ct_status place_sum(struct onednn_program *p, const struct onednn_value *v, int *out)
{
	*out = v->gradient.buffer;
	if (!v->gradient.shared)
		return CT_OK;
	*out = v->gradient.second;
	if (v->gradient.second >= 0 && !v->gradient.second_shared)
		return CT_OK;
	return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->layout.desc), out);
}

/* g is the value whose gradient is the input of this task: the value of the norm or of the sum. */
static enum ct_status emit_backward(struct onednn_program *p, int id, const struct onednn_value *g, int dx,
				    int dresidual)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const bool own = p->values[id].kept.norm == ONEDNN_NORM_OWN;
	struct onednn_ref dgamma, dbeta;
	struct onednn_task *t;
	int partials = -1;

	CT_TRY(ct__onednn_param_grad(p, id, node->weight, &dgamma));
	CT_TRY(ct__onednn_param_grad(p, id, node->bias, &dbeta));

	if (own)
		CT_TRY(ct__onednn_buffer(p, scratch_bytes(p, id), &partials));
	CT_TRY(ct__onednn_task(p, own ? ONEDNN_NORM_BACKWARD : ONEDNN_NORM_PLAIN_BACKWARD, id, &t));
	common_args(p, t, partials, g->fusion.path);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, g->gradient.buffer);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, ct__onednn_buffer_or_nothing(dresidual));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, ct__onednn_buffer_or_nothing(g->gradient.second));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, dgamma);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, dbeta);
	if (!p->values[node->in[0]].gradient.needed)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, p->values[id].layout.desc, false);
}

static enum ct_status alone_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	/* The reference loops cannot work in place, because they read dy after they have written dx. */
	const bool in_place = v->kept.norm == ONEDNN_NORM_OWN && (!v->gradient.shared || v->gradient.second >= 0);
	int dx, sum = v->gradient.buffer;

	if (v->gradient.second >= 0)
		CT_TRY(place_sum(p, v, &sum));
	CT_TRY(place_gradient(p, id, in_place, sum, &dx));
	v->gradient.gone = in_place;
	return emit_backward(p, id, v, dx, v->gradient.second >= 0 ? sum : -1);
}

enum ct_status ct__onednn_norm_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];

	if (v->fusion.pool >= 0)
		return ct__onednn_norm_pool_backward(p, id);
	if (v->kept.norm == ONEDNN_NORM_LIBRARY)
		return ct__onednn_norm_library_backward(p, id);
	if (v->fusion.join < 0)
		CT_TRY(alone_backward(p, id));
	/* This is also done for a norm in a join, whose gradients the backward pass of the sum has computed, because
	 * slices become final in the order of nodes. */
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

/* The gradient of the residual is that of the sum after the ReLU's backward pass, in the same memory if it may be
 * overwritten. */
enum ct_status ct__onednn_join_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const int norm = v->fusion.norm, path = v->fusion.path;
	const int other = node->in[node->in[0] == norm || node->in[0] == path];
	const bool asked = p->values[other].gradient.needed;
	const bool written = v->gradient.second >= 0 || (asked && v->fusion.relu >= 0);
	int dx, dresidual = v->gradient.buffer;

	if (written)
		CT_TRY(place_sum(p, v, &dresidual));
	CT_TRY(place_gradient(p, norm, !asked && (written || !v->gradient.shared), dresidual, &dx));
	v->gradient.gone =
		dx == v->gradient.buffer || written || asked; /* from now on it belongs to the other addend */
	CT_TRY(emit_backward(p, norm, v, dx, written ? dresidual : -1));
	return asked ? ct__onednn_give_grad(p, id, other, dresidual, p->values[norm].layout.desc,
					    !written && v->gradient.shared)
		     : CT_OK;
}
