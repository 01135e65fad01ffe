/* Groups are visited in the order of the graph, and each is computed at the place of its last node, when all its inputs
 * exist. Two kinds of input are compiled: pixels that the caller has, and rows of images in device memory. Tasks of the
 * kind that a batch does not use do nothing when they run. Both write the same buffers of labels, from which the loss
 * reads. Element-wise results are written over their input where nothing else needs it. */
#include <string.h>

#include "base/mem.h"
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/compile/op.h"

/* Adds a buffer if *buffer is CUDA_NONE. */
static enum ct_status copy_in(struct cuda_program *p, int id, enum cuda_array array, size_t row_bytes, int *buffer)
{
	if (*buffer == CUDA_NONE)
		CT_TRY(ct__cuda_buffer(p, row_bytes * (size_t)p->base.n, buffer));
	return ct__cuda_copy_task(p, id, CUDA_COPY_IN, array, row_bytes, *buffer);
}

/* Labels that the gather task writes. */
static enum ct_status refer_labels(struct cuda_program *p, struct ct__k_gather_args *a)
{
	const size_t bytes = (size_t)p->base.n * sizeof(int32_t);

	CT_TRY(ct__cuda_buffer(p, bytes, &p->labels));
	CT_TRY(ct__cuda_refer(p, &a->labels, p->labels));
	if (p->base.mode != CT_TRAIN)
		return CT_OK;
	CT_TRY(ct__cuda_buffer(p, bytes, &p->labels_b));
	CT_TRY(ct__cuda_refer(p, &a->labels_b, p->labels_b));
	CT_TRY(ct__cuda_buffer(p, bytes, &p->mix));
	return ct__cuda_refer(p, &a->mix, p->mix);
}

static enum ct_status forward_gather(struct cuda_program *p, int id)
{
	const struct ct_net_opts *o = &p->base.net->opts;
	const struct cuda_value *v = &p->values[id];
	int rows = CUDA_NONE;
	struct cuda_task *t;

	CT_TRY(copy_in(p, id, CUDA_BATCH_ROWS, sizeof(struct ct_image_row), &rows));
	CT_TRY(ct__cuda_task(p, id, CUDA_GATHER, &t));
	t->gather = (struct ct__k_gather_args){
		.n = p->base.n, .h = v->shape.h, .w = v->shape.w, .c = v->shape.c, .cp = v->cp, .type = p->type};
	memcpy(t->gather.mean, o->mean, sizeof(o->mean));
	memcpy(t->gather.std, o->std, sizeof(o->std));
	CT_TRY(ct__cuda_refer(p, &t->gather.rows, rows));
	CT_TRY(ct__cuda_refer(p, &t->gather.y, v->buffer));
	return refer_labels(p, &t->gather);
}

/* Compiles both kinds of input. A batch uses one of them. */
enum ct_status ct__cuda_forward_input(struct cuda_program *p, int id)
{
	const struct ct_net_opts *o = &p->base.net->opts;
	const struct cuda_value *v = &p->values[id];
	const bool bytes = o->input == CT_INPUT_U8_NHWC;
	const size_t pixels = (size_t)v->shape.c * (size_t)v->shape.h * (size_t)v->shape.w;
	const bool labeled = cuda_node(p, ct_graph_loss(p->base.graph))->op == CT_OP_SOFTMAX_XENT;
	struct cuda_task *t;
	int x = CUDA_NONE;

	CT_TRY(ct__cuda_new_value(p, id));
	if (bytes && labeled)
		CT_TRY(forward_gather(p, id));
	CT_TRY(copy_in(p, id, CUDA_BATCH_X, pixels * (bytes ? 1 : sizeof(float)), &x));
	CT_TRY(ct__cuda_task(p, id, CUDA_INPUT, &t));
	t->input = (struct ct__k_input_args){.n = p->base.n,
					     .h = v->shape.h,
					     .w = v->shape.w,
					     .c = v->shape.c,
					     .cp = v->cp,
					     .bytes = bytes,
					     .type = p->type};
	memcpy(t->input.mean, o->mean, sizeof(o->mean));
	memcpy(t->input.std, o->std, sizeof(o->std));
	CT_TRY(ct__cuda_refer(p, &t->input.x, x));
	return ct__cuda_refer(p, &t->input.y, v->buffer);
}

/* A sum, a ReLU, or both. */
static enum ct_status forward_map(struct cuda_program *p, const struct cuda_group *g)
{
	const bool add = g->add != CUDA_NONE, relu = g->relu != CUDA_NONE;
	const int *in = cuda_node(p, add ? g->add : g->relu)->in;
	const struct cuda_value *v = &p->values[g->last];
	struct cuda_task *t;

	CT_TRY(ct__cuda_own_value(p, g->last, in[0]));
	CT_TRY(ct__cuda_task(p, g->last, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = !add   ? CT__K_RELU
					       : relu ? CT__K_ADD_RELU
						      : CT__K_ADD,
					 .n = ct__cuda_value_elems(p, v),
					 .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, ct__cuda_value(p, in[0])->buffer));
	if (add)
		CT_TRY(ct__cuda_refer(p, &t->map.b, ct__cuda_value(p, in[1])->buffer));
	return ct__cuda_refer(p, &t->map.y, v->buffer);
}

static struct ct__k_pool_args pool_args(const struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id], *in = ct__cuda_value(p, node->in[0]);
	const struct ct_window all = {in->shape.h, in->shape.w, 1, 1, 0, 0, 1, 1},
			       *win = node->op == CT_OP_GLOBAL_AVG_POOL ? &all : &node->win;

	return (struct ct__k_pool_args){
		.n = p->base.n,
		.h = in->shape.h,
		.w = in->shape.w,
		.p = v->shape.h,
		.q = v->shape.w,
		.cp = v->cp,
		.r = win->r,
		.s = win->s,
		.stride_h = win->stride_h,
		.stride_w = win->stride_w,
		.pad_h = win->pad_h,
		.pad_w = win->pad_w,
		.dilation_h = win->dilation_h,
		.dilation_w = win->dilation_w,
		.average = node->op != CT_OP_MAX_POOL,
		.type = p->type,
	};
}

enum ct_status ct__cuda_forward_pool(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	struct cuda_task *t;

	CT_TRY(ct__cuda_new_value(p, id));
	if (node->op == CT_OP_MAX_POOL)
		CT_TRY(ct__cuda_buffer(p, ct__cuda_value_elems(p, v), &p->taps[id]));
	CT_TRY(ct__cuda_task(p, id, CUDA_POOL, &t));
	t->pool = pool_args(p, id);
	CT_TRY(ct__cuda_refer(p, &t->pool.x, ct__cuda_value(p, node->in[0])->buffer));
	if (node->op == CT_OP_MAX_POOL)
		CT_TRY(ct__cuda_refer(p, &t->pool.tap, p->taps[id]));
	return ct__cuda_refer(p, &t->pool.y, v->buffer);
}

/* The dropout of x into y, which is the forward pass or, for gradients, the backward pass. */
static enum ct_status add_dropout(struct cuda_program *p, int id, int x, int y)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, CUDA_DROPOUT, &t));
	t->dropout = (struct ct__k_dropout_args){
		.step = &p->base.net->state->step.step,
		.seed = p->base.net->opts.seed,
		.node = node->origin,
		.n = p->base.n,
		.h = v->shape.h,
		.w = v->shape.w,
		.c = v->shape.c,
		.cp = v->cp,
		.per_row = node->op == CT_OP_DROP_PATH,
		.p = node->p,
		.type = p->type,
	};
	CT_TRY(ct__cuda_refer(p, &t->dropout.x, x));
	return ct__cuda_refer(p, &t->dropout.y, y);
}

enum ct_status ct__cuda_forward_loss(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *z = ct__cuda_value(p, node->in[0]);
	const bool mse = node->op == CT_OP_MSE, train = p->base.mode == CT_TRAIN;
	const size_t n = (size_t)p->base.n;
	int targets = CUDA_NONE, row_loss, row_hits;
	struct cuda_task *t;

	if (mse)
		CT_TRY(copy_in(p, id, CUDA_BATCH_TARGETS, (size_t)z->shape.c * sizeof(float), &targets));
	else
		CT_TRY(copy_in(p, id, CUDA_BATCH_LABELS, sizeof(int32_t), &p->labels));
	if (!mse && train) {
		CT_TRY(copy_in(p, id, CUDA_BATCH_LABELS_B, sizeof(int32_t), &p->labels_b));
		CT_TRY(copy_in(p, id, CUDA_BATCH_MIX, sizeof(float), &p->mix));
	}
	CT_TRY(ct__cuda_buffer(p, n * sizeof(double), &row_loss));
	CT_TRY(ct__cuda_buffer(p, n * sizeof(uint32_t), &row_hits));
	CT_TRY(ct__cuda_buffer(p, n * (size_t)z->cp * sizeof(float), &p->dlogits));
	CT_TRY(ct__cuda_task(p, id, CUDA_LOSS, &t));
	t->loss = (struct ct__k_loss_args){.smoothing = node->label_smoothing,
					   .n = p->base.n,
					   .k = z->shape.c,
					   .kp = z->cp,
					   .mse = mse,
					   .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->loss.logits, z->buffer));
	if (mse)
		CT_TRY(ct__cuda_refer(p, &t->loss.targets, targets));
	else
		CT_TRY(ct__cuda_refer(p, &t->loss.labels, p->labels));
	if (!mse && train) {
		CT_TRY(ct__cuda_refer(p, &t->loss.labels_b, p->labels_b));
		CT_TRY(ct__cuda_refer(p, &t->loss.mix, p->mix));
	}
	if (train)
		CT_TRY(ct__cuda_refer(p, &t->loss.dlogits, p->dlogits));
	CT_TRY(ct__cuda_refer(p, &t->loss.row_loss, row_loss));
	return ct__cuda_refer(p, &t->loss.row_hits, row_hits);
}

enum ct_status ct__cuda_forward_dropout(struct cuda_program *p, int id)
{
	const int in = cuda_node(p, id)->in[0];

	CT_TRY(ct__cuda_own_value(p, id, in));
	return add_dropout(p, id, ct__cuda_value(p, in)->buffer, p->values[id].buffer);
}

static enum ct_status forward_group(struct cuda_program *p, const struct cuda_group *g)
{
	if (g->layer != CUDA_NONE)
		return ct__cuda_forward_layer(p, g);
	if (g->norm != CUDA_NONE)
		return ct__cuda_forward_norm(p, g);
	if (g->add != CUDA_NONE || g->relu != CUDA_NONE)
		return forward_map(p, g);
	if (p->values[g->last].root != g->last) /* it shares the value of another node */
		return CT_OK;
	return ct__cuda_op(cuda_node(p, g->last)->op)->forward(p, g->last);
}

enum ct_status ct__cuda_compile_forward(struct cuda_program *p)
{
	p->labels = p->labels_b = p->mix = CUDA_NONE;
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++) {
		if (p->groups[id].last == id)
			CT_TRY(forward_group(p, &p->groups[id]));
	}
	p->n_forward = p->n_tasks;
	return CT_OK;
}
