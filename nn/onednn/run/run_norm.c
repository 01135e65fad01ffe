/* How the tasks of norms use the kernels, and where sums over ranks are made. With the statistics of this rank, one
 * function makes both passes. With those of all ranks, the all-reduce is between them, and the number of values on all
 * ranks is kept after the means for the backward pass. dgamma and dbeta are computed by the first pass, before the
 * all-reduce, and so cover this rank only. Fixed statistics do not depend on the input, so the sums in the gradient are
 * 0; the first pass runs only if it must add two gradients. */
#include "nn/onednn/run/run_impl.h"

#include <math.h>
#include <string.h>

#include "nn/host/host.h"
#include "nn/onednn/kernels/elementwise.h"
#include "nn/onednn/kernels/norm_kernels.h"
#include "nn/onednn/program/shapes.h"

/* The number of values per channel on all ranks, which is stored after the means, aligned for a double. */
static double *count_of(const struct ct_node *node, const struct onednn_task *t)
{
	return (double *)(void *)(t->ptr[ONEDNN_NORM_MEAN] + node->shape.c + node->shape.c % 2);
}

static struct ct_norm norm_of(const struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const struct onednn_value *v = &p->values[t->node];
	const int relu = v->fusion.join >= 0 ? p->values[v->fusion.join].fusion.relu : v->fusion.relu;

	return (struct ct_norm){.n = p->base.n,
				.channels = node->shape.c,
				.plane = node->shape.h * node->shape.w,
				.nhwc = v->kept.nhwc,
				.bf16 = ct__dnnl_desc_type(v->layout.desc) == CT_DNNL_BF16,
				.relu = relu >= 0,
				.eps = node->eps,
				.threads = p->base.net->engine->threads,
				.x = t->ptr[ONEDNN_NORM_X],
				.gamma = t->ptr[ONEDNN_NORM_GAMMA],
				.beta = t->ptr[ONEDNN_NORM_BETA],
				.mean = t->ptr[ONEDNN_NORM_MEAN],
				.variance = t->ptr[ONEDNN_NORM_VARIANCE],
				.partials = (void *)t->ptr[ONEDNN_NORM_PARTIALS],
				.mask = t->ptr[ONEDNN_NORM_MASK],
				.factor = t->ptr[ONEDNN_NORM_FACTOR]};
}

static enum ct_status shared_statistics(const struct onednn_program *p, const struct ct_norm *n,
					const struct ct_node *node, double *count)
{
	double *sums = ct__norm_scratch_sums(n);

	ct__norm_sums(n, sums);
	sums[2 * n->channels] = *count;
	CT_TRY(ct_norm_sync(p->base.net, node, sums, 2 * (size_t)n->channels + 1));
	*count = sums[2 * n->channels];
	CT_TRY(ct_norm_check_count(node, *count));
	ct__norm_moments(n, sums, *count);
	return CT_OK;
}

static enum ct_status forward(struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	struct ct_norm n = norm_of(p, t);

	n.y = t->ptr[ONEDNN_NORM_Y];
	n.residual = t->ptr[ONEDNN_NORM_RESIDUAL];
	if (p->base.mode == CT_EVAL || node->fixed_stats || t->n) {
		ct__norm_apply(&n);
		return CT_OK;
	}
	double count = (double)n.n * n.plane;
	if (p->base.net->opts.sync) {
		CT_TRY(shared_statistics(p, &n, node, &count));
		ct__norm_apply(&n);
	} else {
		ct__norm_forward(&n);
	}
	*count_of(node, t) = count;
	if (!ct__onednn_running(t->ptr[ONEDNN_NORM_RUNNING_MEAN], t->ptr[ONEDNN_NORM_RUNNING_VARIANCE], n.mean,
				n.variance, n.channels, node->momentum, count))
		p->pass.not_finite = true;
	return CT_OK;
}

static enum ct_status backward(const struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	struct ct_norm n = norm_of(p, t);

	n.dy = t->ptr[ONEDNN_NORM_Y];
	n.dx = t->ptr[ONEDNN_NORM_DX];
	n.dresidual = t->ptr[ONEDNN_NORM_DRESIDUAL];
	n.dy2 = t->ptr[ONEDNN_NORM_DY2];
	n.dgamma = t->ptr[ONEDNN_NORM_DGAMMA];
	n.dbeta = t->ptr[ONEDNN_NORM_DBETA];
	if (!p->base.net->opts.sync && !node->fixed_stats) {
		ct__norm_backward(&n);
		return CT_OK;
	}
	double *sums = ct__norm_scratch_sums(&n);
	if (!node->fixed_stats || n.dy2) /* it also adds the two gradients */
		ct__norm_gradient_sums(&n, sums);
	if (node->fixed_stats) { /* which do not depend on x */
		memset(sums, 0, 2 * (size_t)n.channels * sizeof(*sums));
		ct__norm_gradient_apply(&n, sums, 1);
		return CT_OK;
	}
	CT_TRY(ct_norm_sync(p->base.net, node, sums, 2 * (size_t)n.channels));
	ct__norm_gradient_apply(&n, sums, *count_of(node, t));
	return CT_OK;
}

static enum ct_status plain_forward(struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const bool sync = p->base.net->opts.sync;
	double *stat = (double *)(void *)t->ptr[ONEDNN_NORM_MEAN];

	if (node->fixed_stats) {
		ct_batch_norm_running(node, t->ptr[ONEDNN_NORM_RUNNING_MEAN], t->ptr[ONEDNN_NORM_RUNNING_VARIANCE],
				      stat);
		ct_batch_norm_forward(node, p->base.n, t->ptr[ONEDNN_NORM_X], t->ptr[ONEDNN_NORM_GAMMA],
				      t->ptr[ONEDNN_NORM_BETA], stat, t->ptr[ONEDNN_NORM_Y]);
		return CT_OK;
	}
	ct_batch_norm_own_statistics(node, p->base.n, sync, t->ptr[ONEDNN_NORM_X], stat);
	CT_TRY(ct_norm_sync(p->base.net, node, ct_batch_norm_sums(node, stat), 2 * (size_t)node->shape.c + 1));
	CT_TRY(ct_batch_norm_all_statistics(node, sync, t->ptr[ONEDNN_NORM_RUNNING_MEAN],
					    t->ptr[ONEDNN_NORM_RUNNING_VARIANCE], stat));
	for (int i = 0; i < 2 * node->shape.c; i++)
		p->pass.not_finite = p->pass.not_finite || !isfinite(stat[i]);
	ct_batch_norm_forward(node, p->base.n, t->ptr[ONEDNN_NORM_X], t->ptr[ONEDNN_NORM_GAMMA],
			      t->ptr[ONEDNN_NORM_BETA], stat, t->ptr[ONEDNN_NORM_Y]);
	return CT_OK;
}

static enum ct_status plain_backward(const struct onednn_program *p, const struct onednn_task *t)
{
	const struct ct_node *node = ct__onednn_node(p, t->node);
	const size_t elems = (size_t)node->shape.c * (size_t)node->shape.h * (size_t)node->shape.w;
	double *stat = (double *)(void *)t->ptr[ONEDNN_NORM_MEAN];

	memset(t->ptr[ONEDNN_NORM_DX], 0, (size_t)p->base.n * elems * sizeof(float));
	ct_batch_norm_backward_sums(node, p->base.n, t->ptr[ONEDNN_NORM_X], t->ptr[ONEDNN_NORM_Y], stat,
				    t->ptr[ONEDNN_NORM_DGAMMA], t->ptr[ONEDNN_NORM_DBETA]);
	if (!node->fixed_stats)
		CT_TRY(ct_norm_sync(p->base.net, node, ct_batch_norm_sums(node, stat), 2 * (size_t)node->shape.c));
	ct_batch_norm_backward_data(node, p->base.n, t->ptr[ONEDNN_NORM_X], t->ptr[ONEDNN_NORM_GAMMA],
				    t->ptr[ONEDNN_NORM_Y], stat, t->ptr[ONEDNN_NORM_DX]);
	return CT_OK;
}

/* A drop path that is not computed with a norm. */
static void scale_rows(const struct onednn_program *p, const struct onednn_task *t)
{
	const ct_dnnl_desc *desc = p->values[t->node].layout.desc;
	const int threads = p->base.net->engine->threads;

	if (ct__dnnl_desc_is_plain(desc) && ct__dnnl_desc_type(desc) == CT_DNNL_F32)
		ct__onednn_scale_rows(threads, t->ptr[0], t->ptr[1], t->ptr[2], p->base.n, t->n);
	else
		ct__norm_scale_rows(threads, p->base.n, t->n, ct__dnnl_desc_type(desc) == CT_DNNL_BF16, t->ptr[1],
				    t->ptr[2], t->ptr[0]);
}

void ct__onednn_run_norm_pool(const struct onednn_program *p, const struct onednn_task *t)
{
	const bool forward = t->kind == ONEDNN_NORM_POOL;
	struct ct_norm_pool op = {.shape = ct__onednn_norm_pool_shape(p, t->node),
				  .threads = p->base.net->engine->threads,
				  .x = t->ptr[ONEDNN_POOL_X],
				  .gamma = t->ptr[ONEDNN_POOL_GAMMA],
				  .beta = t->ptr[ONEDNN_POOL_BETA],
				  .mean = t->ptr[ONEDNN_POOL_MEAN],
				  .variance = t->ptr[ONEDNN_POOL_VARIANCE],
				  .picked = t->ptr[ONEDNN_POOL_PICKED],
				  .taps = (uint8_t *)t->ptr[ONEDNN_POOL_TAPS],
				  .partials = (void *)t->ptr[ONEDNN_POOL_PARTIALS],
				  .y = forward ? t->ptr[ONEDNN_POOL_Y] : NULL,
				  .dy = forward ? NULL : t->ptr[ONEDNN_POOL_Y],
				  .dx = t->ptr[ONEDNN_POOL_DX],
				  .dgamma = t->ptr[ONEDNN_POOL_DGAMMA],
				  .dbeta = t->ptr[ONEDNN_POOL_DBETA]};

	if (forward)
		ct__norm_pool_forward(&op);
	else
		ct__norm_pool_backward(&op);
}

enum ct_status ct__onednn_run_norm(struct onednn_program *p, const struct onednn_task *t)
{
	switch (t->kind) {
	case ONEDNN_NORM:
		return forward(p, t);
	case ONEDNN_NORM_BACKWARD:
		return backward(p, t);
	case ONEDNN_NORM_PLAIN:
		return plain_forward(p, t);
	case ONEDNN_NORM_PLAIN_BACKWARD:
		return plain_backward(p, t);
	case ONEDNN_ROW_FACTORS:
		ct_drop_path_mask(p->base.net->opts.seed, p->base.net->state->step.step,
				  ct__onednn_node(p, t->node)->origin, p->pass.batch->first,
				  ct__onednn_node(p, t->node)->p, p->pass.batch->n, t->ptr[0]);
		return CT_OK;
	default:
		scale_rows(p, t);
		return CT_OK;
	}
}
