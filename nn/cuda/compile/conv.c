/* Convolutions and linear layers, which are 1x1 convolutions of one pixel. */
#include "nn/cuda/compile/compile.h"

/* The workspace that a plan may ask for. */
static const int64_t max_workspace_bytes = (int64_t)1 << 30;

static struct ct__cudnn_filter filter_of(const struct cuda_program *p)
{
	return (struct ct__cudnn_filter){.exact = p->base.net->opts.precision == CT_PRECISION_FP32,
					 .deterministic = !p->base.net->opts.nondeterministic,
					 .max_workspace_bytes = max_workspace_bytes};
}

static enum ct_status build_graph(const struct cuda_program *p, int node, enum ct__cudnn_conv direction,
				  ct__cudnn_graph **out)
{
	const struct ct_node *node_ = cuda_node(p, node);
	const struct cuda_value *in = ct__cuda_value(p, node_->in[0]), *y = ct__cuda_value(p, node);
	const bool linear = node_->op == CT_OP_LINEAR;
	const struct ct_window one = {1, 1, 1, 1, 0, 0, 1, 1};
	const int64_t n = p->base.n, c = linear ? (int64_t)in->shape.h * in->shape.w * in->cp : in->cp;
	const struct ct_window *win = linear ? &one : &node_->win;
	ct__cudnn_graph *g;

	CT_TRY(ct__cudnn_graph_create(&g));
	const int tx = ct__cudnn_tensor(g, "x", (int64_t[4]){n, c, linear ? 1 : in->shape.h, linear ? 1 : in->shape.w},
					p->type, false),
		  tw = ct__cudnn_tensor(g, "w", (int64_t[4]){y->cp, c / node_->groups, win->r, win->s}, p->type, false),
		  ty = ct__cudnn_tensor(g, "y", (int64_t[4]){n, y->cp, y->shape.h, y->shape.w}, p->type, false);
	ct__cudnn_add_conv(g, direction, tx, tw, ty, win);
	*out = g;
	return CT_OK;
}

/* The address of the weights of a node in the type of activations. */
static void *weights_of(const struct cuda_program *p, int param)
{
	const ct_net *net = p->base.net;
	const struct cuda_net *cn = net->impl;
	const size_t at = net->slices[net->slice_of[param]].offset;

	return cn->weights ? (char *)cn->weights + at * ct_dtype_bytes(p->type) : ct_arena_at(net->params, at);
}

enum ct_status ct__cuda_add_conv(struct cuda_program *p, int node, enum ct__cudnn_conv direction, int x, int w, int y)
{
	const int param = cuda_node(p, node)->weight;
	const struct cuda_engine *e = (const struct cuda_engine *)p->base.net->engine;
	const struct ct__cudnn_filter filter = filter_of(p);
	const struct ct__cudnn_choice *choice;
	struct cuda_task *t;
	ct__cudnn_graph *g;

	CT_TRY(build_graph(p, node, direction, &g));
	CT_TRY(ct__cudnn_choices_add(e->choices, cuda_node(p, node)->name, g, &filter, &choice));
	CT_TRY(ct__cuda_task(p, node, CUDA_PLAN, &t));
	t->plan.choice = choice;
	CT_TRY(ct__cuda_refer(p, &t->plan.pointers[0], x));
	if (w != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->plan.pointers[1], w));
	else if (direction == CT__CUDNN_FILTER)
		CT_TRY(ct__cuda_refer_grad(p, &t->plan.pointers[1], param));
	else
		t->plan.pointers[1] = weights_of(p, param);
	return ct__cuda_refer(p, &t->plan.pointers[2], y);
}
