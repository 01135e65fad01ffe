/* The backward pass visits the nodes from last to first. The first user of a value writes its gradient, every further one writes a
 * buffer of its own, which is then added. */
#include "nn/cuda/compile/compile.h"

static size_t rows_of(const struct cuda_program *p, const struct cuda_value *v)
{
	return (size_t)p->base.n * (size_t)v->shape.h * (size_t)v->shape.w;
}

/* No gradient is needed for the input of the graph. */
static bool needs_gradient(const struct cuda_program *p, int node)
{
	return p->values[node].root != 0;
}

/* The buffer to which a user of `node` writes its part of the gradient. */
static enum ct_status gradient_part(struct cuda_program *p, int node, int *buffer)
{
	return ct__cuda_buffer(p, ct__cuda_value_elems(p, ct__cuda_value(p, node)) * ct_dtype_bytes(p->type), buffer);
}

/* The part has been written. It becomes the gradient, or is added to it. */
static enum ct_status give_part(struct cuda_program *p, int user, int node, int part)
{
	struct cuda_value *v = ct__cuda_value(p, node);
	struct cuda_task *t;

	if (v->gradient == CUDA_NONE) {
		v->gradient = part;
		return CT_OK;
	}
	CT_TRY(ct__cuda_task(p, user, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = CT__K_ADD, .n = ct__cuda_value_elems(p, v), .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, v->gradient));
	CT_TRY(ct__cuda_refer(p, &t->map.b, part));
	return ct__cuda_refer(p, &t->map.y, v->gradient);
}

static enum ct_status slice_done(struct cuda_program *p, int id, int param)
{
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, CUDA_SLICE_DONE, &t));
	t->param = param;
	return CT_OK;
}

static enum ct_status backward_loss(struct cuda_program *p, int id)
{
	const int logits = cuda_node(p, id)->in[0];
	const struct cuda_value *z = ct__cuda_value(p, logits);
	struct cuda_task *t;
	int part;

	CT_TRY(gradient_part(p, logits, &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_LOSS_SCALE, &t));
	t->convert = (struct ct__k_convert_args){.n = ct__cuda_value_elems(p, z), .from = CT_F32, .to = p->type};
	if (p->base.net->opts.precision == CT_PRECISION_FP16)
		t->convert.loss_scale = &p->base.net->state->loss_scale.scale;
	CT_TRY(ct__cuda_refer(p, &t->convert.x, p->dlogits));
	CT_TRY(ct__cuda_refer(p, &t->convert.y, part));
	return give_part(p, id, logits, part);
}

/* The gradient of the weights. In a 16-bit type it is converted to the fp32 of the arena. */
static enum ct_status weight_gradient(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = ct__cuda_value(p, id), *in = ct__cuda_value(p, node->in[0]);
	const size_t n = p->base.net->elems[node->weight];
	struct cuda_task *t;
	int typed;

	if (p->type == CT_F32)
		return ct__cuda_add_conv(p, id, CT__CUDNN_FILTER, in->buffer, CUDA_NONE, v->gradient);
	CT_TRY(ct__cuda_buffer(p, n * ct_dtype_bytes(p->type), &typed));
	CT_TRY(ct__cuda_add_conv(p, id, CT__CUDNN_FILTER, in->buffer, typed, v->gradient));
	CT_TRY(ct__cuda_task(p, id, CUDA_CONVERT, &t));
	t->convert = (struct ct__k_convert_args){.scale = 1.0f, .n = n, .from = p->type, .to = CT_F32};
	CT_TRY(ct__cuda_refer(p, &t->convert.x, typed));
	return ct__cuda_refer_grad(p, &t->convert.y, node->weight);
}

static enum ct_status bias_gradient(struct cuda_program *p, int id)
{
	const struct cuda_value *v = ct__cuda_value(p, id);
	struct cuda_task *t;
	int partial;

	CT_TRY(ct__cuda_buffer(p, (size_t)ct__k_sum_blocks(rows_of(p, v)) * 2 * (size_t)v->cp * sizeof(double),
			       &partial));
	CT_TRY(ct__cuda_task(p, id, CUDA_BIAS_BACKWARD, &t));
	t->bias_backward = (struct ct__k_bias_backward_args){.rows = rows_of(p, v), .cp = v->cp, .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->bias_backward.dy, v->gradient));
	CT_TRY(ct__cuda_refer(p, &t->bias_backward.partial, partial));
	return ct__cuda_refer_grad(p, &t->bias_backward.db, cuda_node(p, id)->bias);
}

static enum ct_status backward_layer(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const int dy = ct__cuda_value(p, id)->gradient;
	int part;

	CT_TRY(weight_gradient(p, id));
	CT_TRY(slice_done(p, id, node->weight));
	if (node->bias >= 0) {
		CT_TRY(bias_gradient(p, id));
		CT_TRY(slice_done(p, id, node->bias));
	}
	if (!needs_gradient(p, node->in[0]))
		return CT_OK;
	CT_TRY(gradient_part(p, node->in[0], &part));
	CT_TRY(ct__cuda_add_conv(p, id, CT__CUDNN_DATA, part, CUDA_NONE, dy));
	return give_part(p, id, node->in[0], part);
}

static enum ct_status norm_task(struct cuda_program *p, int id, enum cuda_kind kind, struct cuda_task **out)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = ct__cuda_value(p, id);
	const ct_net *net = p->base.net;
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, kind, &t));
	t->norm = (struct ct__k_norm_args){
		.gamma = ct_arena_at(net->params, net->slices[net->slice_of[node->weight]].offset),
		.rows = rows_of(p, v),
		.c = v->shape.c,
		.cp = v->cp,
		.type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->norm.stat, p->norms[id].stat));
	CT_TRY(ct__cuda_refer(p, &t->norm.count, p->norms[id].count));
	CT_TRY(ct__cuda_refer(p, &t->norm.sums, p->norms[id].sums));
	CT_TRY(ct__cuda_refer(p, &t->norm.x, ct__cuda_value(p, node->in[0])->buffer));
	CT_TRY(ct__cuda_refer(p, &t->norm.dy, v->gradient));
	*out = t;
	return CT_OK;
}

static enum ct_status backward_norm(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = ct__cuda_value(p, id);
	struct cuda_task *t;
	int part, partial;

	CT_TRY(ct__cuda_buffer(p, (size_t)ct__k_sum_blocks(rows_of(p, v)) * 2 * (size_t)v->cp * sizeof(double),
			       &partial));
	CT_TRY(norm_task(p, id, CUDA_NORM_BACKWARD_SUMS, &t));
	CT_TRY(ct__cuda_refer(p, &t->norm.partial, partial));
	CT_TRY(ct__cuda_refer_grad(p, &t->norm.dgamma, node->weight));
	CT_TRY(ct__cuda_refer_grad(p, &t->norm.dbeta, node->bias));
	if (p->base.net->opts.sync) {
		CT_TRY(ct__cuda_task(p, id, CUDA_NORM_SYNC, &t));
		t->sync.n = 2 * (size_t)v->shape.c;
		CT_TRY(ct__cuda_refer(p, &t->sync.sums, p->norms[id].sums));
	}
	CT_TRY(gradient_part(p, node->in[0], &part));
	CT_TRY(norm_task(p, id, CUDA_NORM_BACKWARD_DATA, &t));
	CT_TRY(ct__cuda_refer(p, &t->norm.dx, part));
	CT_TRY(give_part(p, id, node->in[0], part));
	CT_TRY(slice_done(p, id, node->weight));
	return slice_done(p, id, node->bias);
}

static enum ct_status backward_relu(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = ct__cuda_value(p, id);
	struct cuda_task *t;
	int part;

	CT_TRY(gradient_part(p, node->in[0], &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = CT__K_RELU_BACKWARD, .n = ct__cuda_value_elems(p, v), .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, v->gradient));
	CT_TRY(ct__cuda_refer(p, &t->map.b, v->buffer));
	CT_TRY(ct__cuda_refer(p, &t->map.y, part));
	return give_part(p, id, node->in[0], part);
}

static enum ct_status backward_add(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = ct__cuda_value(p, id);

	for (int i = 0; i < 2; i++) {
		struct cuda_task *t;
		int part;

		CT_TRY(gradient_part(p, node->in[i], &part));
		CT_TRY(ct__cuda_task(p, id, CUDA_MAP, &t));
		t->map = (struct ct__k_map_args){.op = CT__K_COPY, .n = ct__cuda_value_elems(p, v), .type = p->type};
		CT_TRY(ct__cuda_refer(p, &t->map.a, v->gradient));
		CT_TRY(ct__cuda_refer(p, &t->map.y, part));
		CT_TRY(give_part(p, id, node->in[i], part));
	}
	return CT_OK;
}

/* The tasks of the forward pass of a pool and of a dropout have the arguments of the backward pass, too. */
static const struct cuda_task *forward_task(const struct cuda_program *p, int id, enum cuda_kind kind)
{
	for (size_t i = 0; i < p->n_forward; i++) {
		if (p->tasks[i].node == id && p->tasks[i].kind == kind)
			return &p->tasks[i];
	}
	return NULL;
}

static enum ct_status backward_pool(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct ct__k_pool_args forward = forward_task(p, id, CUDA_POOL)->pool;
	struct cuda_task *t;
	int part;

	CT_TRY(gradient_part(p, node->in[0], &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_POOL_BACKWARD, &t));
	t->pool = forward;
	if (node->op == CT_OP_MAX_POOL)
		CT_TRY(ct__cuda_refer(p, &t->pool.tap, p->taps[id]));
	CT_TRY(ct__cuda_refer(p, &t->pool.dy, ct__cuda_value(p, id)->gradient));
	CT_TRY(ct__cuda_refer(p, &t->pool.dx, part));
	return give_part(p, id, node->in[0], part);
}

static enum ct_status backward_dropout(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct ct__k_dropout_args forward = forward_task(p, id, CUDA_DROPOUT)->dropout;
	struct cuda_task *t;
	int part;

	CT_TRY(gradient_part(p, node->in[0], &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_DROPOUT, &t));
	t->dropout = forward;
	CT_TRY(ct__cuda_refer(p, &t->dropout.x, ct__cuda_value(p, id)->gradient));
	CT_TRY(ct__cuda_refer(p, &t->dropout.y, part));
	return give_part(p, id, node->in[0], part);
}

static enum ct_status backward_node(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);

	if (p->values[id].root != id) /* a renamed value: its users have written the gradient of the owner */
		return CT_OK;
	switch (node->op) {
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return backward_loss(p, id);
	case CT_OP_LINEAR:
	case CT_OP_CONV2D:
		return backward_layer(p, id);
	case CT_OP_BATCH_NORM:
		return backward_norm(p, id);
	case CT_OP_RELU:
		return backward_relu(p, id);
	case CT_OP_ADD:
		return backward_add(p, id);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return backward_pool(p, id);
	case CT_OP_DROPOUT:
	case CT_OP_DROP_PATH:
		return backward_dropout(p, id);
	case CT_OP_INPUT:
	case CT_OP_FLATTEN:
	case CT_N_OPS:
		break;
	}
	return CT_OK;
}

enum ct_status ct__cuda_compile_backward(struct cuda_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.graph) - 1; id > 0; id--)
		CT_TRY(backward_node(p, id));
	return CT_OK;
}
