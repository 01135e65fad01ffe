/* Batch norm by our own kernels. Forward: statistics, then one pass that also does the ReLU and, for a norm whose only user
 * is a sum, the drop path and the sum (a join); such a norm has no value of its own and runs in the sum's turn. Backward:
 * sums, then one pass; a join gives both gradients, and where two users gave one each it adds them on the way. What is kept
 * of a norm is its input and, of a join with ReLU, one bit an element.
 *
 * Layouts other than [N,C/16,H,W,16] are oneDNN's; with statistics of all ranks, the reference engine's. */
#include "nn/onednn/onednn_impl.h"

#include "nn/host/host.h"
#include "nn/onednn/norm_kernels.h"

/* Not beside the kernels: those are compiled for what this asks for. */
bool ct__norm_usable(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
	return true;
#endif
}

/* [N,C/16,H,W,16], or vectors whose features fill whole blocks: [N,C] is the same then. */
static enum ct_status knows_layout(struct onednn_program *p, int id, const ct_dnnl_desc *desc, bool *out)
{
	const ct_dnnl_desc *blocked;
	int dims[4];

	if (ct__dnnl_desc_ndims(desc) == 2) {
		*out = ct__norm_usable() && ct__dnnl_desc_is_plain(desc) &&
		       ct__dnnl_desc_dims(desc)[1] % CT_NORM_POOL_BLOCK == 0;
		return CT_OK;
	}
	ct__onednn_dims(p, id, dims);
	CT_TRY(ct__dnnl_blocked_of(p->dnnl, ct__dnnl_desc_type(desc), dims, CT_NORM_POOL_BLOCK, &blocked));
	*out = ct__norm_usable() && desc == blocked;
	return CT_OK;
}

static struct onednn_ref buffer_or_nothing(int buffer)
{
	return buffer >= 0 ? ONEDNN_BUF(buffer) : (struct onednn_ref){ONEDNN_NOTHING, 0};
}

/* What both directions have, in the order of enum onednn_norm_arg. */
static void common_args(struct onednn_program *p, struct onednn_task *t, int partials, int path)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const struct onednn_value *v = &p->values[t->node];
	const bool train = p->base.mode == CT_TRAIN;

	ct__onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct__onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ONEDNN_PARAM, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ONEDNN_PARAM, node->bias});
	ct__onednn_arg(p, t, CT_DNNL_MEAN,
		       train ? ONEDNN_BUF(v->mean) : (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_VARIANCE,
		       train ? buffer_or_nothing(v->variance) : (struct onednn_ref){ONEDNN_RUNNING, node->var});
	ct__onednn_arg(p, t, CT_DNNL_SCRATCHPAD, buffer_or_nothing(partials));
	ct__onednn_arg(p, t, CT_DNNL_WORKSPACE, buffer_or_nothing(v->workspace));
	ct__onednn_arg(p, t, CT_DNNL_OTHER, buffer_or_nothing(path >= 0 ? p->values[path].mask : -1));
}

/* The norm's task; its result, perhaps with a residual, goes to the value of `owner`. */
static enum ct_status emit_forward(struct onednn_program *p, int id, int owner, int residual)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct ct_shape s = node->shape;
	struct onednn_value *v = &p->values[id];
	struct onednn_task *t;
	int partials = -1;

	CT_TRY(ct__onednn_own_result(p, owner, v->src_desc));
	v->desc = v->src_desc;
	if (p->base.mode == CT_TRAIN && !p->recomputing) {
		const size_t channels = (size_t)(s.c + s.c % 2) * sizeof(float);
		CT_TRY(ct__onednn_buffer(p, channels + sizeof(double), &v->mean));
		CT_TRY(ct__onednn_buffer(p, channels, &v->variance));
		CT_TRY(ct__onednn_buffer(p, ct__norm_scratch_bytes(p->base.n, s.c), &partials));
		if (residual >= 0 && p->values[owner].fused_relu >= 0)
			CT_TRY(ct__onednn_buffer(p, ct__norm_mask_bytes(p->base.n, s.c, s.h * s.w), &v->workspace));
	}
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM, id, &t));
	t->n = p->recomputing;
	common_args(p, t, partials, p->values[owner].fused_path);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, ct__onednn_result(p, owner));
	ct__onednn_arg(p, t, CT_DNNL_OTHER, buffer_or_nothing(residual));
	if (p->recomputing)
		return CT_OK;
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	return CT_OK;
}

static void undo_fusion(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];

	if (v->fused_add >= 0)
		p->values[v->fused_add].fused_norm = p->values[v->fused_add].fused_path = -1;
	v->fused_add = -1;
}

/* Statistics of all ranks in any layout: plain fp32, by the reference engine's loops. */
static enum ct_status reference_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	struct onednn_ref src;
	const ct_dnnl_desc *plain;
	struct onednn_task *t;

	v->fused_relu = v->fused_pool = -1;
	CT_TRY(ct__dnnl_plain(p->dnnl, ct__dnnl_desc_ndims(v->src_desc), ct__dnnl_desc_dims(v->src_desc), &plain));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(v->src), v->src_desc, plain, &src));
	v->src = src.id;
	v->src_desc = plain;
	CT_TRY(ct__onednn_own_result(p, id, plain));
	CT_TRY(ct__onednn_buffer(p, CT_BATCH_NORM_STATS(node->shape.c) * sizeof(double), &v->mean));
	CT_TRY(ct__onednn_task(p, ONEDNN_NORM_PLAIN, id, &t));
	common_args(p, t, -1, -1);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	ct__onednn_arg(p, t, CT_DNNL_OTHER, buffer_or_nothing(-1));
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->mean});
	ct__onednn_arg(p, t, CT_DNNL_DST, (struct onednn_ref){ONEDNN_RUNNING, node->var});
	return CT_OK;
}

enum ct_status ct__onednn_norm_forward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	bool pooled, known;

	CT_TRY(ct__onednn_view_natural(p, id, ct__onednn_node(p, id)->in[0], &v->src_desc, &v->src));
	CT_TRY(ct__onednn_norm_pool_forward(p, id, &pooled));
	if (pooled)
		return CT_OK;
	CT_TRY(knows_layout(p, id, v->src_desc, &known));
	if (known) {
		v->norm = NORM_OWN;
		return v->fused_add >= 0 ? CT_OK : emit_forward(p, id, id, -1);
	}
	undo_fusion(p, id);
	if (p->base.mode == CT_TRAIN && p->base.net->opts.sync) {
		v->norm = NORM_REFERENCE;
		return reference_forward(p, id);
	}
	v->norm = NORM_LIBRARY;
	return ct__onednn_norm_library_forward(p, id);
}

enum ct_status ct__onednn_join_forward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const int norm = p->values[id].fused_norm, path = p->values[id].fused_path;
	const int other = node->in[node->in[0] == norm || node->in[0] == path];
	const ct_dnnl_desc *want = p->values[norm].src_desc, *desc;
	struct onednn_ref residual;
	int buffer;

	CT_TRY(ct__onednn_view(p, id, p->values[other].root, ct__dnnl_desc_ndims(want), ct__dnnl_desc_dims(want), &desc,
			       &buffer));
	CT_TRY(ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, want, &residual));
	return emit_forward(p, norm, id, residual.id);
}

/* Where the gradient of the norm's input goes: over `dy` when that is done with, over the convolution's output when nobody
 * else needs it any more, else into new memory. */
static enum ct_status place_gradient(struct onednn_program *p, int id, bool dy_is_free, int dy, int *dx)
{
	const int in = ct__onednn_node(p, id)->in[0];
	const struct onednn_value *v = &p->values[id];
	struct onednn_value *x = &p->values[in];

	if (dy_is_free) {
		*dx = dy;
		return CT_OK;
	}
	x->value_gone = x->user == id && x->buffer == v->src && ct__onednn_node(p, in)->op == CT_OP_CONV2D;
	if (!x->value_gone)
		return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->desc), dx);
	*dx = v->src;
	return CT_OK;
}

/* Where the sum of the gradients of `v`, or the one without what the ReLU cut off, may be written. */
static enum ct_status place_sum(struct onednn_program *p, const struct onednn_value *v, int *out)
{
	*out = v->grad;
	if (!v->grad_shared)
		return CT_OK;
	*out = v->grad2;
	if (v->grad2 >= 0 && !v->grad2_shared)
		return CT_OK;
	return ct__onednn_buffer(p, ct__dnnl_desc_bytes(v->desc), out);
}

/* g: the value whose gradient comes, of the norm or of the sum. */
static enum ct_status emit_backward(struct onednn_program *p, int id, const struct onednn_value *g, int dx,
				    int dresidual)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const bool own = p->values[id].norm == NORM_OWN;
	struct onednn_task *t;
	int partials = -1;

	if (own)
		CT_TRY(ct__onednn_buffer(p, ct__norm_scratch_bytes(p->base.n, node->shape.c), &partials));
	CT_TRY(ct__onednn_task(p, own ? ONEDNN_NORM_BACKWARD : ONEDNN_NORM_PLAIN_BACKWARD, id, &t));
	common_args(p, t, partials, g->fused_path);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_DST, g->grad);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DIFF_SRC, dx);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, buffer_or_nothing(dresidual));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, buffer_or_nothing(g->grad2));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SCALE, (struct onednn_ref){ONEDNN_GRAD, node->weight});
	ct__onednn_arg(p, t, CT_DNNL_DIFF_SHIFT, (struct onednn_ref){ONEDNN_GRAD, node->bias});
	if (!p->values[node->in[0]].needs_grad)
		return CT_OK;
	return ct__onednn_give_grad(p, id, node->in[0], dx, p->values[id].desc, false);
}

static enum ct_status alone_backward(struct onednn_program *p, int id)
{
	struct onednn_value *v = &p->values[id];
	/* The reference loops read dy after they have written dx. */
	const bool in_place = v->norm == NORM_OWN && (!v->grad_shared || v->grad2 >= 0);
	int dx, sum = v->grad;

	if (v->grad2 >= 0)
		CT_TRY(place_sum(p, v, &sum));
	CT_TRY(place_gradient(p, id, in_place, sum, &dx));
	v->grad_gone = in_place;
	return emit_backward(p, id, v, dx, v->grad2 >= 0 ? sum : -1);
}

bool ct__onednn_norm_adds(const struct onednn_program *p, int root)
{
	const struct ct_node *node = ct__onednn_node(p, root);
	const int at = node->op == CT_OP_RELU && p->values[node->in[0]].fused_relu == root ? node->in[0] : root;
	const struct onednn_value *v = &p->values[at];

	return v->fused_norm >= 0 || (v->norm == NORM_OWN && v->fused_add < 0);
}

enum ct_status ct__onednn_norm_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const struct onednn_value *v = &p->values[id];

	if (v->fused_pool >= 0)
		return ct__onednn_norm_pool_backward(p, id);
	if (v->norm == NORM_LIBRARY)
		return ct__onednn_norm_library_backward(p, id);
	if (v->fused_add < 0)
		CT_TRY(alone_backward(p, id));
	/* In their turn also where the sum's backward pass has computed them. */
	CT_TRY(ct__onednn_slice_done(p, id, node->weight));
	return ct__onednn_slice_done(p, id, node->bias);
}

/* The residual's gradient is the sum's, without what the ReLU cut off: in the same memory where nobody else has that. */
enum ct_status ct__onednn_join_backward(struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	struct onednn_value *v = &p->values[id];
	const int norm = v->fused_norm, path = v->fused_path;
	const int other = node->in[node->in[0] == norm || node->in[0] == path];
	const bool asked = p->values[other].needs_grad;
	const bool written = v->grad2 >= 0 || (asked && v->fused_relu >= 0);
	int dx, dresidual = v->grad;

	if (written)
		CT_TRY(place_sum(p, v, &dresidual));
	CT_TRY(place_gradient(p, norm, !asked && (written || !v->grad_shared), dresidual, &dx));
	v->grad_gone = dx == v->grad || written || asked; /* the other's from now on */
	CT_TRY(emit_backward(p, norm, v, dx, written ? dresidual : -1));
	return asked ? ct__onednn_give_grad(p, id, other, dresidual, p->values[norm].desc, !written && v->grad_shared)
		     : CT_OK;
}
