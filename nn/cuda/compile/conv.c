/* Convolutions and linear layers, which are 1x1 convolutions of one pixel with all elements of the input as channels.
 * Each is described as an operation graph of cuDNN, whose tensors have fixed ids in all directions. Layers with equal
 * graphs share a plan. A fused graph is used only if a plan was chosen for it before, in this start or in an earlier
 * one (the cache), or if cuDNN has a precompiled engine for it; it may take up to a second to compile another one. If a
 * fused graph has no plan, the caller computes the operations one by one, so this is not an error. */
#include "nn/cuda/compile/compile.h"

#define CT_LOG_COMPONENT "nn"
#include "base/log.h"

/* The workspace that a plan may ask for. */
static const int64_t max_workspace_bytes = (int64_t)1 << 30;

static struct ct__cudnn_filter filter_of(const struct cuda_program *p)
{
	return (struct ct__cudnn_filter){.exact = p->base.net->opts.precision == CT_PRECISION_FP32,
					 .deterministic = !p->base.net->opts.nondeterministic,
					 .max_workspace_bytes = max_workspace_bytes};
}

/* The ids of the tensors of a graph, in the order in which they are added. */
enum { TENSOR_X = 1, TENSOR_W, TENSOR_Y, TENSOR_BIAS };

/* y = relu(conv(x, w) + residual + bias) without what c does not have. cuDNN has precompiled engines if the values
 * between the operations are virtual fp32 tensors, the bias has the type of y, and the bias is added after the
 * residual. */
static void add_fused(ct__cudnn_graph *g, const struct cuda_conv *c, const int64_t dims[4], enum ct_dtype type,
		      const struct ct_window *win)
{
	const int bias = c->has_bias ? ct__cudnn_channels(g, "bias", dims[1], type) : 0,
		  residual = c->residual != CUDA_NONE ? ct__cudnn_tensor(g, "residual", dims, type, false) : 0,
		  addends[] = {residual, bias};
	int from = ct__cudnn_tensor(g, "conv", dims, CT_F32, true), n_left = !!residual + !!bias + c->relu;

	ct__cudnn_add_conv(g, CT__CUDNN_FORWARD, TENSOR_X, TENSOR_W, from, win);
	for (size_t i = 0; i < CT_ARRAY_LEN(addends); i++) {
		if (!addends[i])
			continue;
		const int sum = --n_left ? ct__cudnn_tensor(g, "sum", dims, CT_F32, true) : TENSOR_Y;
		ct__cudnn_add_pointwise(g, CT__CUDNN_ADD, from, addends[i], sum);
		from = sum;
	}
	if (c->relu)
		ct__cudnn_add_pointwise(g, CT__CUDNN_RELU, from, 0, TENSOR_Y);
}

static enum ct_status build_graph(const struct cuda_program *p, const struct cuda_conv *conv, ct__cudnn_graph **out)
{
	const struct ct_node *node = cuda_node(p, conv->node);
	const struct cuda_value *in = ct__cuda_value(p, node->in[0]), *y = ct__cuda_value(p, conv->node);
	const bool linear = node->op == CT_OP_LINEAR;
	const int groups = cuda_is_dense(p->base.graph, conv->node, p->type) ? 1 : node->groups;
	const struct ct_window one = {1, 1, 1, 1, 0, 0, 1, 1}, *win = linear ? &one : &node->win;
	const int64_t n = p->base.n, c = linear ? (int64_t)in->shape.h * in->shape.w * in->cp : in->cp,
		      dims[4] = {n, y->cp, y->shape.h, y->shape.w};
	ct__cudnn_graph *g;

	CT_TRY(ct__cudnn_graph_create(&g));
	(void)ct__cudnn_tensor(g, "x", (int64_t[4]){n, c, linear ? 1 : in->shape.h, linear ? 1 : in->shape.w}, p->type,
			       false);
	(void)ct__cudnn_tensor(g, "w", (int64_t[4]){y->cp, c / groups, win->r, win->s}, p->type, false);
	(void)ct__cudnn_tensor(g, "y", dims, p->type, false);
	if (conv->has_bias || conv->residual != CUDA_NONE || conv->relu)
		add_fused(g, conv, dims, p->type, win);
	else
		ct__cudnn_add_conv(g, conv->direction, TENSOR_X, TENSOR_W, TENSOR_Y, win);
	*out = g;
	return CT_OK;
}

enum ct_status ct__cuda_has_plan(struct cuda_program *p, const struct cuda_conv *c, bool *has)
{
	const struct cuda_engine *e = (const struct cuda_engine *)p->base.net->engine;
	struct ct__cudnn_filter filter = filter_of(p);
	struct ct__cudnn_candidates found = {0};
	ct__cudnn_graph *g;
	enum ct_status st;

	CT_TRY(build_graph(p, c, &g));
	st = ct__cudnn_choices_know(e->choices, g, &filter, p->base.net->opts.autotune, e->base.device, has);
	if (st == CT_OK && !*has)
		st = ct__cudnn_graph_finish(g);
	if (st == CT_OK && !*has) {
		filter.precompiled = true;
		st = ct__cudnn_plan_find(g, e->target, &filter, 1, &found);
		*has = st == CT_OK;
		ct__cudnn_candidates_release(&found);
	}
	ct__cudnn_graph_destroy(g);
	/* If all plans fail, the operations can still be computed one by one. */
	if (st != CT_UNSUPPORTED && (st != CT_DEVICE || found.n_failed == 0))
		return st;
	if (st == CT_DEVICE)
		CT_WARN("%s is not fused: %s", cuda_node(p, c->node)->name, ct_error_message());
	ct_error_clear();
	return CT_OK;
}

/* The address of a parameter in the type of activations. */
static void *typed_param(const struct cuda_program *p, int param)
{
	const ct_net *net = p->base.net;
	const struct cuda_net *cn = net->impl;
	const size_t at = net->slices[net->slice_of[param]].offset;

	return cn->weights ? (char *)cn->weights + at * ct_dtype_bytes(p->type) : ct_arena_at(net->params, at);
}

enum ct_status ct__cuda_refer_weight_grad(struct cuda_program *p, void **field, int param)
{
	const ct_net *net = p->base.net;

	if (!net->half)
		return ct__cuda_refer_grad(p, field, param);
	*field = ct_arena_at(net->half, net->slices[net->slice_of[param]].offset);
	return CT_OK;
}

enum ct_status ct__cuda_add_conv(struct cuda_program *p, const struct cuda_conv *c)
{
	const struct ct_node *node = cuda_node(p, c->node);
	const struct cuda_engine *e = (const struct cuda_engine *)p->base.net->engine;
	const struct ct__cudnn_filter filter = filter_of(p);
	const struct ct__cudnn_choice *choice;
	struct cuda_task *t;
	ct__cudnn_graph *g;

	CT_TRY(build_graph(p, c, &g));
	CT_TRY(ct__cudnn_choices_add(e->choices, node->name, g, &filter, &choice));
	CT_TRY(ct__cuda_task(p, c->node, CUDA_PLAN, &t));
	t->plan.choice = choice;
	void **const at = t->plan.pointers;
	CT_TRY(ct__cuda_refer(p, &at[TENSOR_X - 1], c->x));
	CT_TRY(ct__cuda_refer(p, &at[TENSOR_Y - 1], c->y));
	if (c->w != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &at[TENSOR_W - 1], c->w));
	else if (c->direction == CT__CUDNN_FILTER)
		CT_TRY(ct__cuda_refer_weight_grad(p, &at[TENSOR_W - 1], node->weight));
	else
		at[TENSOR_W - 1] = typed_param(p, node->weight);
	if (c->has_bias && c->bias != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &at[TENSOR_BIAS - 1], c->bias));
	else if (c->has_bias)
		at[TENSOR_BIAS - 1] = typed_param(p, node->bias);
	if (c->residual == CUDA_NONE)
		return CT_OK;
	return ct__cuda_refer(p, &at[c->has_bias ? TENSOR_BIAS : TENSOR_BIAS - 1], c->residual);
}
