/* The backward pass of the reference engine. */
#include <string.h>

#include "base/clock.h"
#include "nn/host/host.h"
#include "nn/ref/ref_impl.h"

static void backward_node(const struct op *op)
{
	const struct ref_program *p = op->p;
	const int id = op->id;
	const ct_net *net = p->base.net;
	const struct ct_node *node = ct_graph_node(p->base.graph, id);
	const struct value *v = &p->values[id], *a = &p->values[node->in[0]];
	const struct ct_shape in = ct_graph_node(p->base.graph, node->in[0])->shape;
	const float *w = param_at(net, net->params, node->weight);
	float *dw = gradient_at(net, op->grads, node->weight), *db = gradient_at(net, op->grads, node->bias);
	const int n = p->base.n;
	const size_t n_elems = v->elems * (size_t)n;

	switch (node->op) {
	case CT_OP_LINEAR:
		ct__ref_linear_backward(n, (int)a->elems, node->shape.c, a->y, w, v->dy, a->dy, dw, db, p->acc);
		break;
	case CT_OP_CONV2D:
		ct__ref_conv_backward(node, in, n, a->y, w, v->dy, a->dy, dw, db, p->acc);
		break;
	case CT_OP_RELU:
		for (size_t i = 0; i < n_elems; i++)
			a->dy[i] += a->y[i] <= 0 ? 0.0f : v->dy[i];
		break;
	case CT_OP_MAX_POOL:
		ct__ref_max_pool_backward(node, in, n, v->dy, v->argmax, a->dy);
		break;
	case CT_OP_AVG_POOL:
		ct__ref_avg_pool_backward(node, in, n, v->dy, a->dy);
		break;
	case CT_OP_GLOBAL_AVG_POOL: {
		struct ct_node whole = *node;
		whole.win = (struct ct_window){in.h, in.w, 1, 1, 0, 0, 1, 1};
		ct__ref_avg_pool_backward(&whole, in, n, v->dy, a->dy);
		break;
	}
	case CT_OP_ADD:
		for (size_t i = 0; i < n_elems; i++) {
			a->dy[i] += v->dy[i];
			p->values[node->in[1]].dy[i] += v->dy[i];
		}
		break;
	case CT_OP_FLATTEN:
		for (size_t i = 0; i < n_elems; i++)
			a->dy[i] += v->dy[i];
		break;
	case CT_OP_DROPOUT:
		for (size_t i = 0; i < n_elems; i++)
			a->dy[i] += v->dy[i] * v->mask[i];
		break;
	case CT_OP_DROP_PATH:
		scale_rows(a->dy, v->dy, v->mask, n, v->elems, true);
		break;
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		for (size_t i = 0; i < a->elems * (size_t)n; i++)
			a->dy[i] += op->scale * p->dlogits[i];
		break;
	case CT_OP_OUTPUT:
		for (size_t i = 0; i < a->elems * (size_t)n; i++)
			a->dy[i] += op->dy[i];
		break;
	case CT_OP_BATCH_NORM: /* in run_norm_sums and run_norm_data */
	case CT_OP_INPUT:
	case CT_N_OPS:
		break;
	}
}

static enum ct_status run_norm_sums(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	const struct value *v = &op->p->values[op->id];

	ct_batch_norm_backward_sums(node, op->p->base.n, op->p->values[node->in[0]].y, v->dy, v->stat,
				    gradient_at(net, op->grads, node->weight), gradient_at(net, op->grads, node->bias));
	return CT_OK;
}

static enum ct_status run_norm_data(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	const struct value *v = &op->p->values[op->id], *a = &op->p->values[node->in[0]];

	ct_batch_norm_backward_data(node, op->p->base.n, a->y, param_at(net, net->params, node->weight), v->dy, v->stat,
				    a->dy);
	return CT_OK;
}

static enum ct_status run_backward(const void *args)
{
	backward_node(args);
	return CT_OK;
}

static enum ct_status run_input_gradient(const void *args)
{
	const struct op *op = args;
	const struct value *x = &op->p->values[0];

	memcpy(op->dx, x->dy, x->elems * (size_t)op->p->base.n * sizeof(float));
	return CT_OK;
}

static enum ct_status post_backward(const struct op *op)
{
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);

	if (node->op != CT_OP_BATCH_NORM)
		return post(op, run_backward);
	CT_TRY(post(op, run_norm_sums));
	if (!node->fixed_stats)
		CT_TRY(ct_norm_sync(op->p->base.net, node, ct_batch_norm_sums(node, op->p->values[op->id].stat),
				    2 * (size_t)node->shape.c));
	return post(op, run_norm_data);
}

static enum ct_status run_clear(const void *args)
{
	const struct ref_program *p = ((const struct op *)args)->p;

	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		memset(p->values[id].dy, 0, p->values[id].elems * (size_t)p->base.n * sizeof(float));
	return CT_OK;
}

enum ct_status ct__ref_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads)
{
	struct op op = {
		.p = (struct ref_program *)base, .scale = opts->scale, .dy = opts->dy, .dx = opts->dx, .grads = grads};
	ct_net *net = base->net;

	CT_TRY(post(&op, run_clear));
	for (op.id = ct_graph_n_nodes(base->graph) - 1; op.id > 0; op.id--) {
		const struct ct_node *node = ct_graph_node(base->graph, op.id);
		int64_t start = base->profile ? ct_now_ns() : 0;

		CT_TRY(post_backward(&op));
		if (base->profile)
			ct__program_add_time(base, op.id, true, start, ct_now_ns());
		if (node->weight >= 0)
			CT_TRY(ct__net_slice_done(net, opts, net->slice_of[node->weight]));
		if (node->bias >= 0)
			CT_TRY(ct__net_slice_done(net, opts, net->slice_of[node->bias]));
	}
	return opts->dx ? post(&op, run_input_gradient) : CT_OK;
}
