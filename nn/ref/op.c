/* The forward passes of the operations, and the table of all operations. Each function runs in the stream with a copy
 * of struct op, and computes the valid rows of the batch. Batch norm is not one function: the host posts one that
 * computes the statistics of this rank, then the all-reduce, then one that normalizes, and the stream keeps this order.
 * A value is never shared, so operations that change nothing copy their input. */
#include <string.h>

#include "nn/host/host.h"
#include "nn/ref/ref_impl.h"

static void linear_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct__ref_linear_forward(t.n, (int)t.a->elems, t.node->shape.c, t.a->y, t.w, t.bias, t.v->y);
}

static void conv2d_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct__ref_conv_forward(t.node, t.in, t.n, t.a->y, t.w, t.bias, t.v->y, op->p->acc);
}

static void relu_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	for (size_t i = 0; i < t.elems; i++)
		t.v->y[i] = t.a->y[i] <= 0 ? 0.0f : t.a->y[i]; /* keeps NaN */
}

static void max_pool_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct__ref_max_pool_forward(t.node, t.in, t.n, t.a->y, t.v->y, t.v->argmax);
}

static void avg_pool_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct__ref_avg_pool_forward(t.node, t.in, t.n, t.a->y, t.v->y);
}

static void global_avg_pool_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);
	const struct ct_node whole = global_pool(&t);

	ct__ref_avg_pool_forward(&whole, t.in, t.n, t.a->y, t.v->y);
}

static void add_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);
	const float *b = op->p->values[t.node->in[1]].y;

	for (size_t i = 0; i < t.elems; i++)
		t.v->y[i] = t.a->y[i] + b[i];
}

static void copy_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	memcpy(t.v->y, t.a->y, t.elems * sizeof(float));
}

static void dropout_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);
	const ct_net *net = op->p->base.net;

	if (op->p->base.mode == CT_EVAL) {
		copy_forward(op);
		return;
	}
	for (int i = 0; i < t.n; i++)
		ct_dropout_mask(net->opts.seed, net->state->step.step, t.node->origin, op->batch.first + (uint64_t)i,
				t.node->p, t.v->elems, t.v->mask + (size_t)i * t.v->elems);
	for (size_t i = 0; i < t.elems; i++)
		t.v->y[i] = t.a->y[i] * t.v->mask[i];
}

static void drop_path_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);
	const ct_net *net = op->p->base.net;

	if (op->p->base.mode == CT_EVAL) {
		copy_forward(op);
		return;
	}
	ct_drop_path_mask(net->opts.seed, net->state->step.step, t.node->origin, op->batch.first, t.node->p, t.n,
			  t.v->mask);
	scale_rows(t.v->y, t.a->y, t.v->mask, t.n, t.v->elems, false);
}

static float *dlogits(const struct op *op)
{
	return op->p->base.mode == CT_TRAIN ? op->p->dlogits : NULL;
}

static void softmax_xent_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct_loss_softmax_xent(1, t.a->y, &op->batch, (int)t.a->elems, t.node->label_smoothing,
			     ct__program_class_weights(&op->p->base), dlogits(op), op->metrics);
}

static void mse_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	ct_loss_mse(1, t.a->y, &op->batch, (int)t.a->elems, dlogits(op), op->metrics);
}

static void output_forward(const struct op *op)
{
	const struct node_view t = view(op, op->batch.n);

	memcpy(op->batch.y, t.a->y, t.in_elems * sizeof(float));
}

static enum ct_status run_own_statistics(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);

	ct_batch_norm_own_statistics(node, op->batch.n, net->opts.sync, op->p->values[node->in[0]].y,
				     op->p->values[op->id].stat);
	return CT_OK;
}

static enum ct_status run_norm(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	const struct value *v = &op->p->values[op->id];
	const float *x = op->p->values[node->in[0]].y;
	float *mean = ct_arena_at(net->buffers, net->buffer_offset[node->mean]),
	      *var = ct_arena_at(net->buffers, net->buffer_offset[node->var]);

	if (op->p->base.mode == CT_TRAIN && !node->fixed_stats)
		CT_TRY(ct_batch_norm_all_statistics(node, net->opts.sync, mean, var, v->stat));
	else
		ct_batch_norm_running(node, mean, var, v->stat);
	ct_batch_norm_forward(node, op->batch.n, x, param_at(net, net->params, node->weight),
			      param_at(net, net->params, node->bias), v->stat, v->y);
	return CT_OK;
}

/* In training, the statistics of all ranks are combined between the two halves. */
enum ct_status ct__ref_norm_forward(const struct op *op)
{
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	double *stat = op->p->values[op->id].stat;

	if (op->p->base.mode == CT_TRAIN && !node->fixed_stats) {
		CT_TRY(post(op, run_own_statistics));
		CT_TRY(ct_norm_sync(op->p->base.net, node, ct_batch_norm_sums(node, stat),
				    2 * (size_t)node->shape.c + 1));
	}
	return post(op, run_norm);
}

#define FP32 CT_IN(FP32)
static const struct ref_op op_input = {FP32, NULL, NULL, NULL, NULL}; /* run_input and run_input_gradient */
static const struct ref_op op_linear = {FP32, linear_forward, ct__ref_linear_grad, NULL, NULL};
static const struct ref_op op_conv2d = {FP32, conv2d_forward, ct__ref_conv2d_grad, NULL, NULL};
static const struct ref_op op_batch_norm = {FP32, NULL, NULL, ct__ref_norm_forward, ct__ref_norm_backward};
static const struct ref_op op_relu = {FP32, relu_forward, ct__ref_relu_grad, NULL, NULL};
static const struct ref_op op_max_pool = {FP32, max_pool_forward, ct__ref_max_pool_grad, NULL, NULL};
static const struct ref_op op_avg_pool = {FP32, avg_pool_forward, ct__ref_avg_pool_grad, NULL, NULL};
static const struct ref_op op_global_avg_pool = {FP32, global_avg_pool_forward, ct__ref_global_avg_pool_grad, NULL,
						 NULL};
static const struct ref_op op_add = {FP32, add_forward, ct__ref_add_grad, NULL, NULL};
static const struct ref_op op_flatten = {FP32, copy_forward, ct__ref_copy_grad, NULL, NULL};
static const struct ref_op op_dropout = {FP32, dropout_forward, ct__ref_dropout_grad, NULL, NULL};
static const struct ref_op op_drop_path = {FP32, drop_path_forward, ct__ref_drop_path_grad, NULL, NULL};
static const struct ref_op op_softmax_cross_entropy = {FP32, softmax_xent_forward, ct__ref_loss_grad, NULL, NULL};
static const struct ref_op op_mse = {FP32, mse_forward, ct__ref_loss_grad, NULL, NULL};
static const struct ref_op op_output = {FP32, output_forward, ct__ref_output_grad, NULL, NULL};

const struct ref_op *ct__ref_op(enum ct_op op)
{
#define ROW(ID, name) [CT_OP_##ID] = &op_##name,
	static const struct ref_op *const rows[] = {CT_OPS(ROW)};

	return rows[op];
}
