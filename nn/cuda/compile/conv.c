/* Convolutions and linear layers, which are 1x1 convolutions of one pixel. */
#include <string.h>

#include "base/mem.h"
#include "nn/cuda/compile/compile.h"

/* The workspace that a plan may ask for. */
static const int64_t max_workspace_bytes = (int64_t)1 << 30;

static enum ct_status choose_plan(struct cuda_program *p, const ct__cudnn_graph *g, ct__cudnn_plan **out)
{
	const struct cuda_engine *e = (const struct cuda_engine *)p->base.net->engine;
	const struct ct__cudnn_filter filter = {.exact = p->base.net->opts.precision == CT_PRECISION_FP32,
						.deterministic = true,
						.max_workspace_bytes = max_workspace_bytes};
	struct ct__cudnn_candidates c;

	CT_TRY(ct__cudnn_plan_find(g, e->target, &filter, 1, &c));
	*out = ct__cudnn_candidates_take(&c, 0);
	ct__cudnn_candidates_release(&c);
	return CT_OK;
}

/* Takes ownership of g in every case. *out is the cached graph and plan with the same text form. */
static enum ct_status plan_of(struct cuda_program *p, ct__cudnn_graph *g, const struct cuda_cached_plan **out)
{
	struct cuda_engine *e = (struct cuda_engine *)p->base.net->engine;
	const enum ct_precision precision = p->base.net->opts.precision;
	ct__cudnn_plan *plan = NULL;
	enum ct_status st;

	for (size_t i = 0; i < e->n_plans; i++) {
		*out = &e->plans[i];
		if (e->plans[i].precision == precision &&
		    !strcmp(ct__cudnn_graph_text(e->plans[i].graph), ct__cudnn_graph_text(g))) {
			ct__cudnn_graph_destroy(g);
			return CT_OK;
		}
	}
	st = ct__cudnn_graph_finish(g);
	if (st == CT_OK)
		st = choose_plan(p, g, &plan);
	if (st < 0) {
		ct__cudnn_graph_destroy(g);
		return st;
	}
	struct cuda_cached_plan *grown = ct_array_grow(e->plans, e->n_plans, &e->plans_cap, sizeof(*e->plans));
	if (!grown) {
		ct__cudnn_plan_destroy(plan);
		ct__cudnn_graph_destroy(g);
		return CT_NOMEM;
	}
	e->plans = grown;
	e->plans[e->n_plans] = (struct cuda_cached_plan){precision, g, plan};
	*out = &e->plans[e->n_plans++];
	return CT_OK;
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
	const struct cuda_cached_plan *plan;
	struct cuda_task *t;
	ct__cudnn_graph *g;

	CT_TRY(build_graph(p, node, direction, &g));
	if (plan_of(p, g, &plan) < 0)
		return ct_error_wrap("%s", cuda_node(p, node)->name);
	const size_t workspace = (size_t)ct__cudnn_plan_info(plan->plan)->workspace_bytes;
	p->workspace_bytes = workspace > p->workspace_bytes ? workspace : p->workspace_bytes;
	CT_TRY(ct__cuda_task(p, node, CUDA_PLAN, &t));
	t->plan.graph = plan->graph;
	t->plan.plan = plan->plan;
	CT_TRY(ct__cuda_refer(p, &t->plan.pointers[0], x));
	if (w != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->plan.pointers[1], w));
	else if (direction == CT__CUDNN_FILTER)
		CT_TRY(ct__cuda_refer_grad(p, &t->plan.pointers[1], param));
	else
		t->plan.pointers[1] = weights_of(p, param);
	return ct__cuda_refer(p, &t->plan.pointers[2], y);
}
