#include <string.h>

#include "base/mem.h"
#include "nn/cuda/compile/compile.h"

struct cuda_value *ct__cuda_value(const struct cuda_program *p, int node)
{
	return &p->values[p->values[node].root];
}

size_t ct__cuda_value_elems(const struct cuda_program *p, const struct cuda_value *v)
{
	return (size_t)p->base.n * (size_t)v->shape.h * (size_t)v->shape.w * (size_t)v->cp;
}

static size_t rows_of(const struct cuda_program *p, const struct cuda_value *v)
{
	return (size_t)p->base.n * (size_t)v->shape.h * (size_t)v->shape.w;
}

/* A new value of the node's shape, or of the shape of its input if the node keeps the layout of a flattened value. */
static enum ct_status add_value(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *in = node->in[0] < 0 ? NULL : ct__cuda_value(p, node->in[0]);
	const bool keeps = node->op == CT_OP_RELU || node->op == CT_OP_DROPOUT || node->op == CT_OP_DROP_PATH ||
			   node->op == CT_OP_ADD;
	struct cuda_value *v = &p->values[id];

	v->root = id;
	v->shape = keeps ? in->shape : node->shape;
	v->cp = cuda_pad(v->shape.c, p->type);
	v->gradient = CUDA_NONE;
	return ct__cuda_buffer(p, ct__cuda_value_elems(p, v) * ct_dtype_bytes(p->type), &v->buffer);
}

static void share_value(struct cuda_program *p, int id)
{
	p->values[id].root = p->values[cuda_node(p, id)->in[0]].root;
}

/* A task that copies an array of the batch to the device. Adds a buffer if *buffer is CUDA_NONE. */
static enum ct_status copy_in(struct cuda_program *p, int id, enum cuda_batch_array array, size_t row_bytes,
			      int *buffer)
{
	struct cuda_task *t;

	if (*buffer == CUDA_NONE)
		CT_TRY(ct__cuda_buffer(p, row_bytes * (size_t)p->base.n, buffer));
	CT_TRY(ct__cuda_task(p, id, CUDA_COPY_IN, &t));
	t->copy.array = array;
	t->copy.row_bytes = row_bytes;
	return ct__cuda_refer(p, &t->copy.to, *buffer);
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
static enum ct_status forward_input(struct cuda_program *p, int id)
{
	const struct ct_net_opts *o = &p->base.net->opts;
	const struct cuda_value *v = &p->values[id];
	const bool bytes = o->input == CT_INPUT_U8_NHWC;
	const size_t pixels = (size_t)v->shape.c * (size_t)v->shape.h * (size_t)v->shape.w;
	const bool labeled = cuda_node(p, ct_graph_loss(p->base.graph))->op == CT_OP_SOFTMAX_XENT;
	struct cuda_task *t;
	int x = CUDA_NONE;

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

static enum ct_status forward_layer(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	const ct_net *net = p->base.net;
	struct cuda_task *t;

	CT_TRY(ct__cuda_add_conv(p, id, CT__CUDNN_FORWARD, ct__cuda_value(p, node->in[0])->buffer, CUDA_NONE,
				 v->buffer));
	if (node->bias < 0)
		return CT_OK;
	CT_TRY(ct__cuda_task(p, id, CUDA_BIAS, &t));
	t->bias = (struct ct__k_bias_args){.rows = rows_of(p, v), .cp = v->cp, .type = p->type};
	t->bias.bias = ct_arena_at(net->params, net->slices[net->slice_of[node->bias]].offset);
	CT_TRY(ct__cuda_refer(p, &t->bias.x, v->buffer));
	return ct__cuda_refer(p, &t->bias.y, v->buffer);
}

static enum ct_status forward_map(struct cuda_program *p, int id, enum ct__k_map_op op)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = op, .n = ct__cuda_value_elems(p, v), .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, ct__cuda_value(p, node->in[0])->buffer));
	if (op == CT__K_ADD)
		CT_TRY(ct__cuda_refer(p, &t->map.b, ct__cuda_value(p, node->in[1])->buffer));
	return ct__cuda_refer(p, &t->map.y, v->buffer);
}

/* The arguments that all tasks of a batch norm have in common. */
static struct ct__k_norm_args norm_args(const struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	const ct_net *net = p->base.net;

	return (struct ct__k_norm_args){
		.gamma = ct_arena_at(net->params, net->slices[net->slice_of[node->weight]].offset),
		.beta = ct_arena_at(net->params, net->slices[net->slice_of[node->bias]].offset),
		.running_mean = ct_arena_at(net->buffers, net->buffer_offset[node->mean]),
		.running_var = ct_arena_at(net->buffers, net->buffer_offset[node->var]),
		.rows = rows_of(p, v),
		.c = v->shape.c,
		.cp = v->cp,
		.eps = node->eps,
		.momentum = node->momentum,
		.type = p->type,
	};
}

static enum ct_status norm_task(struct cuda_program *p, int id, enum cuda_kind kind, struct cuda_task **out)
{
	const struct cuda_norm *n = &p->norms[id];
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, kind, &t));
	t->norm = norm_args(p, id);
	CT_TRY(ct__cuda_refer(p, &t->norm.stat, n->stat));
	CT_TRY(ct__cuda_refer(p, &t->norm.count, n->count));
	CT_TRY(ct__cuda_refer(p, &t->norm.sums, n->sums));
	*out = t;
	return CT_OK;
}

static enum ct_status sync_norm(struct cuda_program *p, int id, size_t n)
{
	struct cuda_task *t;

	if (!p->base.net->opts.sync)
		return CT_OK;
	CT_TRY(ct__cuda_task(p, id, CUDA_NORM_SYNC, &t));
	t->sync.n = n;
	return ct__cuda_refer(p, &t->sync.sums, p->norms[id].sums);
}

static enum ct_status norm_statistics(struct cuda_program *p, int id)
{
	const struct cuda_value *v = &p->values[id];
	const struct cuda_value *in = ct__cuda_value(p, cuda_node(p, id)->in[0]);
	struct cuda_task *t;
	int partial;

	CT_TRY(ct__cuda_buffer(p, (size_t)ct__k_sum_blocks(rows_of(p, v)) * 2 * (size_t)v->cp * sizeof(double),
			       &partial));
	CT_TRY(norm_task(p, id, CUDA_NORM_SUMS, &t));
	CT_TRY(ct__cuda_refer(p, &t->norm.x, in->buffer));
	CT_TRY(ct__cuda_refer(p, &t->norm.partial, partial));
	CT_TRY(sync_norm(p, id, 2 * (size_t)v->shape.c + 1));
	return norm_task(p, id, CUDA_NORM_FINALIZE, &t);
}

static enum ct_status forward_norm(struct cuda_program *p, int id)
{
	const struct cuda_value *v = &p->values[id], *in = ct__cuda_value(p, cuda_node(p, id)->in[0]);
	struct cuda_norm *n = &p->norms[id];
	struct cuda_task *t;

	CT_TRY(ct__cuda_buffer(p, 2 * (size_t)v->cp * sizeof(float), &n->stat));
	CT_TRY(ct__cuda_buffer(p, sizeof(double), &n->count));
	CT_TRY(ct__cuda_buffer(p, (2 * (size_t)v->shape.c + 1) * sizeof(double), &n->sums));
	if (p->base.mode == CT_TRAIN)
		CT_TRY(norm_statistics(p, id));
	else
		CT_TRY(norm_task(p, id, CUDA_NORM_RUNNING, &t));
	CT_TRY(norm_task(p, id, CUDA_NORM_APPLY, &t));
	CT_TRY(ct__cuda_refer(p, &t->norm.x, in->buffer));
	return ct__cuda_refer(p, &t->norm.y, v->buffer);
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

static enum ct_status forward_pool(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *v = &p->values[id];
	struct cuda_task *t;

	if (node->op == CT_OP_MAX_POOL && node->win.r * node->win.s > 256)
		return CT_FAIL(CT_UNSUPPORTED, "%s: the cuda engine pools over windows of at most 256 elements",
			       node->name);
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
		.node = id,
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

static enum ct_status forward_loss(struct cuda_program *p, int id)
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

/* What the engine cannot compute in its layout. */
static enum ct_status check_node(const struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const struct cuda_value *in = node->in[0] < 0 ? NULL : ct__cuda_value(p, node->in[0]);
	const bool flattened = in && (in->shape.h != cuda_node(p, node->in[0])->shape.h ||
				      in->shape.w != cuda_node(p, node->in[0])->shape.w);

	/* The groups of padded channels would be others. */
	if (node->op == CT_OP_CONV2D && node->groups > 1 &&
	    (in->cp != in->shape.c || cuda_pad(node->shape.c, p->type) != node->shape.c))
		return CT_FAIL(CT_UNSUPPORTED,
			       "%s: the cuda engine computes grouped convolutions only from and to multiples of %d channels",
			       node->name, cuda_pad(1, p->type));
	if (flattened && (node->op == CT_OP_BATCH_NORM || node->op == CT_OP_SOFTMAX_XENT || node->op == CT_OP_MSE))
		return CT_FAIL(CT_UNSUPPORTED, "%s: the cuda engine has no %s of a flattened image", node->name,
			       ct_op_name(node->op));
	return CT_OK;
}

static enum ct_status forward_node(struct cuda_program *p, int id)
{
	const struct ct_node *node = cuda_node(p, id);
	const bool train = p->base.mode == CT_TRAIN;

	CT_TRY(check_node(p, id));
	if (node->op == CT_OP_FLATTEN || (!train && (node->op == CT_OP_DROPOUT || node->op == CT_OP_DROP_PATH))) {
		share_value(p, id);
		return CT_OK;
	}
	CT_TRY(add_value(p, id));
	switch (node->op) {
	case CT_OP_INPUT:
		return forward_input(p, id);
	case CT_OP_LINEAR:
	case CT_OP_CONV2D:
		return forward_layer(p, id);
	case CT_OP_BATCH_NORM:
		return forward_norm(p, id);
	case CT_OP_RELU:
		return forward_map(p, id, CT__K_RELU);
	case CT_OP_ADD:
		return forward_map(p, id, CT__K_ADD);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return forward_pool(p, id);
	case CT_OP_DROPOUT:
	case CT_OP_DROP_PATH:
		return add_dropout(p, id, ct__cuda_value(p, node->in[0])->buffer, p->values[id].buffer);
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return forward_loss(p, id);
	case CT_OP_FLATTEN:
	case CT_N_OPS:
		break;
	}
	return CT_OK;
}

enum ct_status ct__cuda_compile_forward(struct cuda_program *p)
{
	p->labels = p->labels_b = p->mix = CUDA_NONE;
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		CT_TRY(forward_node(p, id));
	p->n_forward = p->n_tasks;
	return CT_OK;
}
