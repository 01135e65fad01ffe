/* The passes of a compilation. Plans are chosen when all graphs of the program are known, so that they are tuned
 * together. Only then is the size of the workspace known. Plans run one after the other, so the workspace is that of
 * the plan that needs most. The logits are live to the end, because they can be read at any time. */
#include "nn/cuda/compile/compile.h"

#include "base/mem.h"
#include "nn/cuda/tune/verify.h"

enum ct_status ct__cuda_compile_tasks(struct cuda_program *p)
{
	const size_t n = (size_t)ct_graph_n_nodes(p->base.graph);

	p->type = cuda_type(p->base.net->opts.precision);
	CT_TRY_ALLOC(p->values = CT_NEW_ARRAY(struct cuda_value, n));
	CT_TRY_ALLOC(p->groups = CT_NEW_ARRAY(struct cuda_group, n));
	CT_TRY_ALLOC(p->norms = CT_NEW_ARRAY(struct cuda_norm, n));
	CT_TRY_ALLOC(p->taps = CT_NEW_ARRAY(int, n));
	ct__cuda_fuse(p);
	CT_TRY(ct__cuda_compile_forward(p));
	return p->base.mode == CT_TRAIN ? ct__cuda_compile_backward(p) : CT_OK;
}

/* Chooses a plan for each graph. All plans of a program use the same workspace, one after the other. */
static enum ct_status choose_plans(struct cuda_program *p)
{
	struct cuda_engine *e = (struct cuda_engine *)p->base.net->engine;
	const struct ct_net_opts *o = &p->base.net->opts;
	const struct ct__timing where = {e->base.device, e->base.stream, e->cudnn,
					 e->target,      o->tuning,      o->tuning_user};

	CT_TRY(ct__cudnn_choices_make(e->choices, e->target, o->autotune, &where));
	if (o->self_check)
		CT_TRY(ct__plans_verify(e->choices, &where, &e->n_verified));
	for (size_t i = 0; i < p->n_tasks; i++) {
		if (p->tasks[i].kind != CUDA_PLAN)
			continue;
		const size_t bytes = (size_t)ct__cudnn_plan_info(p->tasks[i].plan.choice->plan)->workspace_bytes;
		p->workspace_bytes = bytes > p->workspace_bytes ? bytes : p->workspace_bytes;
	}
	return CT_OK;
}

enum ct_status ct__cuda_compile(struct cuda_program *p)
{
	CT_TRY(ct__cuda_compile_tasks(p));
	CT_TRY(choose_plans(p));
	/* The logits can be read at any time. */
	const int logits = cuda_node(p, ct_graph_loss(p->base.graph))->in[0];
	p->buffers[ct__cuda_value(p, logits)->buffer].last = (int)p->n_tasks;
	CT_TRY(ct_memory_plan(p->buffers, p->n_buffers, CUDA_ALIGN, &p->plan));
	return ct__cuda_bind(p);
}
