/* Batch norm, with the sum and the ReLU that are computed with it: y = relu(norm(x) + residual).
 *
 * Traffic in passes over a value of the group's size, of the kernels alone. Forward: the statistics read x; then x and
 * the residual are read and y is written. Backward, where A and B are the gradients from two users:
 *
 *     norm, ReLU               sums read dy, x; data reads dy, x, writes dx                5 (unfused: 8;
 *                                                                                          with two gradients: 11)
 *     norm, ReLU, A + B        sums read A, B, x, write d; data reads d, x, writes dx      7
 *     norm, sum, ReLU, A + B   sums read A, B, x, write d; data reads d, x, writes dx      7 (unfused: 11)
 *
 * d is the gradient before the ReLU, and with a sum also the gradient of the residual, which therefore costs nothing
 * more. After a sum, the forward pass stores the mask of the ReLU, one byte per vector of 16 bytes: a sixteenth of a
 * pass to write it and another to read it. Without a sum, it is computed again from x, which the kernels read anyway.
 * If the data kernel added and masked the gradients again instead of reading d, a block with a sum would need 10
 * passes, and 11 if a separate kernel added A and B. */
#include "nn/cuda/compile/compile.h"

static enum ct_status norm_task(struct cuda_program *p, const struct cuda_group *g, enum cuda_kind kind,
				struct cuda_task **out)
{
	const struct ct_node *node = cuda_node(p, g->norm);
	const struct cuda_value *v = &p->values[g->norm];
	const struct cuda_norm *n = &p->norms[g->norm];
	const ct_net *net = p->base.net;
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, g->norm, kind, &t));
	t->norm = (struct ct__k_norm_args){
		.gamma = ct__cuda_param(p, node->weight),
		.beta = ct__cuda_param(p, node->bias),
		.running_mean = ct_arena_at(net->buffers, net->buffer_offset[node->mean]),
		.running_var = ct_arena_at(net->buffers, net->buffer_offset[node->var]),
		.rows = ct__cuda_value_rows(p, v),
		.c = v->shape.c,
		.cp = v->cp,
		.eps = node->eps,
		.momentum = node->momentum,
		.fixed = node->fixed_stats,
		.type = p->type,
	};
	CT_TRY(ct__cuda_refer(p, &t->norm.stat, n->stat));
	CT_TRY(ct__cuda_refer(p, &t->norm.inverse, n->inverse));
	CT_TRY(ct__cuda_refer(p, &t->norm.sums, n->sums));
	*out = t;
	return CT_OK;
}

/* A task of the kernels that add up columns. */
static enum ct_status sums_task(struct cuda_program *p, const struct cuda_group *g, enum cuda_kind kind,
				struct cuda_task **out)
{
	const struct cuda_value *v = &p->values[g->norm];
	int partial;

	CT_TRY(ct__cuda_partial_sums(p, v, &partial));
	CT_TRY(norm_task(p, g, kind, out));
	CT_TRY(ct__cuda_refer(p, &(*out)->norm.partial, partial));
	return ct__cuda_refer(p, &(*out)->norm.x, ct__cuda_value(p, cuda_node(p, g->norm)->in[0])->buffer);
}

static enum ct_status sync_sums(struct cuda_program *p, const struct cuda_group *g, size_t n)
{
	struct cuda_task *t;

	if (!p->base.net->opts.sync || cuda_node(p, g->norm)->fixed_stats)
		return CT_OK;
	CT_TRY(ct__cuda_task(p, g->norm, CUDA_NORM_SYNC, &t));
	t->sync.n = n;
	return ct__cuda_refer(p, &t->sync.sums, p->norms[g->norm].sums);
}

static enum ct_status forward_statistics(struct cuda_program *p, const struct cuda_group *g)
{
	const struct cuda_value *v = &p->values[g->norm];
	struct cuda_norm *n = &p->norms[g->norm];
	struct cuda_task *t;

	CT_TRY(ct__cuda_buffer(p, 2 * (size_t)v->cp * sizeof(float), &n->stat));
	CT_TRY(ct__cuda_buffer(p, sizeof(double), &n->inverse));
	CT_TRY(ct__cuda_buffer(p, (2 * (size_t)v->shape.c + 1) * sizeof(double), &n->sums));
	if (!cuda_is_training(p) || cuda_node(p, g->norm)->fixed_stats)
		return norm_task(p, g, CUDA_NORM_RUNNING, &t);
	CT_TRY(sums_task(p, g, CUDA_NORM_SUMS, &t));
	CT_TRY(sync_sums(p, g, 2 * (size_t)v->shape.c + 1));
	return norm_task(p, g, CUDA_NORM_FINALIZE, &t);
}

enum ct_status ct__cuda_forward_norm(struct cuda_program *p, const struct cuda_group *g)
{
	const int in = cuda_node(p, g->norm)->in[0];
	const struct cuda_value *v = &p->values[g->norm];
	struct cuda_norm *n = &p->norms[g->norm];
	struct cuda_task *t;

	CT_TRY(forward_statistics(p, g));
	if (cuda_is_training(p)) /* the backward pass reads x */
		CT_TRY(ct__cuda_new_value(p, g->last));
	else
		CT_TRY(ct__cuda_own_value(p, g->last, in));
	n->mask = CUDA_NONE;
	if (g->add != CUDA_NONE && g->relu != CUDA_NONE && cuda_is_training(p) && ct__cuda_needs_gradient(p, g->last))
		CT_TRY(ct__cuda_buffer(p, ct__cuda_value_elems(p, v) * ct_dtype_bytes(p->type) / 16, &n->mask));
	CT_TRY(norm_task(p, g, CUDA_NORM_APPLY, &t));
	t->norm.relu = g->relu != CUDA_NONE;
	CT_TRY(ct__cuda_refer(p, &t->norm.x, ct__cuda_value(p, in)->buffer));
	if (g->add != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->norm.residual, p->values[g->residual].buffer));
	if (n->mask != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->norm.mask, n->mask));
	return ct__cuda_refer(p, &t->norm.y, p->values[g->last].buffer);
}

/* Returns whether the sums kernel stores d. Otherwise, the data kernel reads the only gradient and computes the mask
 * again. */
static bool stores_d(const struct cuda_program *p, const struct cuda_group *g)
{
	return p->values[g->last].gradient.second != CUDA_NONE || (g->add != CUDA_NONE && g->relu != CUDA_NONE);
}

/* The gradients of gamma and beta, in buffers that no one reads if the norm does not train. */
static enum ct_status refer_gradients(struct cuda_program *p, const struct cuda_group *g, struct cuda_task *t)
{
	const struct ct_node *node = cuda_node(p, g->norm);
	const size_t bytes = (size_t)p->values[g->norm].cp * sizeof(float);
	int dgamma, dbeta;

	if (ct_graph_trains(p->base.graph, g->norm)) {
		CT_TRY(ct__cuda_refer_grad(p, &t->norm.dgamma, node->weight));
		return ct__cuda_refer_grad(p, &t->norm.dbeta, node->bias);
	}
	CT_TRY(ct__cuda_buffer(p, bytes, &dgamma));
	CT_TRY(ct__cuda_buffer(p, bytes, &dbeta));
	CT_TRY(ct__cuda_refer(p, &t->norm.dgamma, dgamma));
	return ct__cuda_refer(p, &t->norm.dbeta, dbeta);
}

static enum ct_status backward_sums(struct cuda_program *p, const struct cuda_group *g, int *d)
{
	struct cuda_value *v = &p->values[g->last];
	const struct cuda_gradient dy = v->gradient;
	struct cuda_task *t;

	*d = dy.buffer;
	if (cuda_node(p, g->norm)->fixed_stats && !stores_d(p, g))
		return CT_OK;
	if (stores_d(p, g))
		CT_TRY(ct__cuda_own_gradient(p, v, d));
	CT_TRY(sums_task(p, g, CUDA_NORM_BACKWARD_SUMS, &t));
	t->norm.relu = g->relu != CUDA_NONE;
	CT_TRY(ct__cuda_refer(p, &t->norm.dy, dy.buffer));
	if (dy.second != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->norm.dy2, dy.second));
	if (p->norms[g->norm].mask != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->norm.mask, p->norms[g->norm].mask));
	if (stores_d(p, g))
		CT_TRY(ct__cuda_refer(p, &t->norm.d, *d));
	CT_TRY(refer_gradients(p, g, t));
	return sync_sums(p, g, 2 * (size_t)v->shape.c);
}

/* dx may be written over d, unless d is the gradient of the residual, too, or of another value. */
static enum ct_status dx_buffer(struct cuda_program *p, const struct cuda_group *g, int d, int *dx)
{
	struct cuda_value *v = &p->values[g->last];

	*dx = d;
	if (g->add != CUDA_NONE)
		return ct__cuda_new_gradient(p, g->norm, dx);
	return stores_d(p, g) ? CT_OK : ct__cuda_own_gradient(p, v, dx);
}

enum ct_status ct__cuda_backward_norm(struct cuda_program *p, const struct cuda_group *g)
{
	const int in = cuda_node(p, g->norm)->in[0];
	const struct cuda_gradient *dy = &p->values[g->last].gradient;
	struct cuda_task *t;
	int d, dx;

	CT_ASSERT(g->add == CUDA_NONE || g->relu == CUDA_NONE || p->norms[g->norm].mask != CUDA_NONE);
	CT_TRY(backward_sums(p, g, &d));
	if (ct__cuda_needs_gradient(p, in)) {
		CT_TRY(dx_buffer(p, g, d, &dx));
		CT_TRY(norm_task(p, g, CUDA_NORM_BACKWARD_DATA, &t));
		t->norm.relu = g->relu != CUDA_NONE && !stores_d(p, g);
		CT_TRY(ct__cuda_refer(p, &t->norm.x, ct__cuda_value(p, in)->buffer));
		CT_TRY(ct__cuda_refer(p, &t->norm.dy, d));
		CT_TRY(ct__cuda_refer(p, &t->norm.dx, dx));
		CT_TRY(ct__cuda_give_gradient(p, g->norm, in, dx, false));
	}
	if (g->add == CUDA_NONE)
		return CT_OK;
	return ct__cuda_give_gradient(p, g->add, g->residual, d, !stores_d(p, g) && dy->shared);
}
