/* The backward pass visits the groups from last to first. A task that writes a part of the gradient of a value passes
 * it on with ct__cuda_give_gradient. When a group is visited, all users of its value have passed their parts, because
 * they come later in the graph. A group runs at the place of its last node, but the gradients of parameters are
 * reported in the order of the nodes, after the tasks of the group that computes them. Backward tasks of pools and
 * dropouts have the arguments of their forward tasks, so both directions agree on windows and masks. */
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/compile/op.h"

static enum ct_status slice_done(struct cuda_program *p, int id, int param)
{
	struct cuda_task *t;

	if (param < 0 || !ct_graph_trains(p->base.graph, id))
		return CT_OK;
	CT_TRY(ct__cuda_task(p, id, CUDA_SLICE_DONE, &t));
	t->param = param;
	return CT_OK;
}

enum ct_status ct__cuda_backward_loss(struct cuda_program *p, int id)
{
	const int logits = cuda_node(p, id)->in[0];
	struct cuda_task *t;
	int part;

	CT_TRY(ct__cuda_new_gradient(p, logits, &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_LOSS_SCALE, &t));
	t->convert = (struct ct__k_convert_args){
		.n = ct__cuda_value_elems(p, ct__cuda_value(p, logits)), .from = CT_F32, .to = p->type};
	if (p->base.net->opts.precision == CT_PRECISION_FP16)
		t->convert.loss_scale = &p->base.net->state->loss_scale.scale;
	CT_TRY(ct__cuda_refer(p, &t->convert.x, p->dlogits));
	CT_TRY(ct__cuda_refer(p, &t->convert.y, part));
	return ct__cuda_give_gradient(p, id, logits, part, false);
}

enum ct_status ct__cuda_relu_backward(struct cuda_program *p, int node, const struct cuda_gradient *dy, int d)
{
	const struct cuda_value *v = &p->values[node];
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, node, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = CT__K_RELU_BACKWARD, .n = ct__cuda_value_elems(p, v), .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, dy->buffer));
	CT_TRY(ct__cuda_refer(p, &t->map.b, v->buffer));
	if (dy->second != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->map.c, dy->second));
	return ct__cuda_refer(p, &t->map.y, d);
}

/* A sum, a ReLU, or both. The gradient of a sum is the gradient of both addends, which share its buffer. */
static enum ct_status backward_map(struct cuda_program *p, const struct cuda_group *g)
{
	struct cuda_value *v = &p->values[g->last];
	const struct cuda_gradient dy = v->gradient;
	const bool add = g->add != CUDA_NONE, relu = g->relu != CUDA_NONE;
	const int *in = cuda_node(p, add ? g->add : g->relu)->in;
	int d = dy.buffer;

	if (relu) {
		CT_TRY(ct__cuda_own_gradient(p, v, &d));
		CT_TRY(ct__cuda_relu_backward(p, g->last, &dy, d));
	}
	for (int i = 0; i < (add ? 2 : 1); i++)
		CT_TRY(ct__cuda_give_gradient(p, g->last, in[i], d, add));
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

enum ct_status ct__cuda_backward_pool(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct ct__k_pool_args forward = forward_task(p, id, CUDA_POOL)->pool;
	struct cuda_task *t;
	int part;

	CT_TRY(ct__cuda_new_gradient(p, node->in[0], &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_POOL_BACKWARD, &t));
	t->pool = forward;
	if (node->op == CT_OP_MAX_POOL)
		CT_TRY(ct__cuda_refer(p, &t->pool.tap, p->taps[id]));
	CT_TRY(ct__cuda_refer(p, &t->pool.dy, p->values[id].gradient.buffer));
	CT_TRY(ct__cuda_refer(p, &t->pool.dx, part));
	return ct__cuda_give_gradient(p, id, node->in[0], part, false);
}

enum ct_status ct__cuda_backward_dropout(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct ct__k_dropout_args forward = forward_task(p, id, CUDA_DROPOUT)->dropout;
	const int dy = p->values[id].gradient.buffer;
	struct cuda_task *t;
	int dx;

	CT_TRY(ct__cuda_own_gradient(p, &p->values[id], &dx));
	CT_TRY(ct__cuda_task(p, id, CUDA_DROPOUT, &t));
	t->dropout = forward;
	CT_TRY(ct__cuda_refer(p, &t->dropout.x, dy));
	CT_TRY(ct__cuda_refer(p, &t->dropout.y, dx));
	return ct__cuda_give_gradient(p, id, node->in[0], dx, false);
}

static enum ct_status backward_group(struct cuda_program *p, const struct cuda_group *g)
{
	if (g->layer != CUDA_NONE)
		return ct__cuda_backward_layer(p, g);
	if (g->norm != CUDA_NONE)
		return ct__cuda_backward_norm(p, g);
	if (g->add != CUDA_NONE || g->relu != CUDA_NONE)
		return backward_map(p, g);
	if (p->values[g->last].root != g->last)
		return CT_OK;
	return ct__cuda_op(cuda_node(p, g->last)->op)->backward(p, g->last);
}

/* A group runs at the place of its last node, but gradients of parameters are reported in the order of the nodes. */
enum ct_status ct__cuda_compile_backward(struct cuda_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.graph) - 1; id > 0; id--) {
		if (p->groups[id].last == id && ct__cuda_needs_gradient(p, id))
			CT_TRY(backward_group(p, &p->groups[id]));
		CT_TRY(slice_done(p, id, cuda_node(p, id)->weight));
		CT_TRY(slice_done(p, id, cuda_node(p, id)->bias));
	}
	return p->base.net->opts.input_gradient ? ct__cuda_backward_input(p) : CT_OK;
}
