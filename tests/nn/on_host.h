/* Shortcuts that are possible only on the CPU device: direct access to arenas, and immediate results. */
#ifndef CT_TESTS_NN_ON_HOST_H
#define CT_TESTS_NN_ON_HOST_H

#include "nn/engine_impl.h"
#include "nn/optim/optim.h"

/* Returns a pointer to the elements of an fp32 arena, for reading or writing. Returns NULL if the arena is NULL. */
static inline float *on_host(ct_arena *a)
{
	if (!a)
		return NULL;
	CT_ASSERT(ct_device_caps(ct_arena_device(a))->host_visible && ct_arena_dtype(a) == CT_F32);
	ct_arena_touch(a);
	return ct_arena_at(a, 0);
}

/* Runs a forward pass and adds its metrics to *m. */
static inline enum ct_status forward_now(ct_program *p, const struct ct_batch *b, struct ct_metrics *m)
{
	struct ct_metrics now;

	CT_TRY(ct_program_forward(p, b));
	CT_TRY(ct_net_take_metrics(p->net, &now));
	m->loss += now.loss;
	m->count += now.count;
	m->top1 += now.top1;
	m->top5 += now.top5;
	return CT_OK;
}

/* Sets the optimizer step to which all work that is posted later belongs. */
static inline void set_step(ct_net *net, uint64_t step)
{
	struct ct_step_args args = net->state->step;

	args.step = step;
	CT_ASSERT(ct_net_post_step_args(net, &args) == CT_OK);
}

/* Runs an update. Sets *norm to the gradient norm, unless norm is NULL. Fails with CT_NUMERIC if the update changed
 * nothing. */
static inline enum ct_status update_now(ct_optim *o, double lr, double *norm)
{
	ct_net *net = ct_optim_net(o);
	struct ct_step_args args = net->state->step;

	ct_optim_begin(o, lr, &args);
	CT_TRY(ct_net_post_step_args(net, &args));
	CT_TRY(ct_optim_post(o));
	const float *result = on_host(ct_optim_result(o));
	if (norm)
		*norm = (double)result[CT_UPDATE_NORM];
	return result[CT_UPDATE_OUTCOME] != CT_UPDATE_DONE
		       ? CT_FAIL(CT_NUMERIC, "outcome %g, norm %g", (double)result[CT_UPDATE_OUTCOME],
				 (double)result[CT_UPDATE_NORM])
		       : CT_OK;
}

static inline enum ct_status export_now(const ct_net *net, const float *arena, int param, float *logical)
{
	struct ct_mirror m = {.data = (float *)arena, .n = ct_net_arena_elems(net)};

	return ct_net_export(net, &m, param, logical);
}

static inline enum ct_status import_now(const ct_net *net, float *arena, int param, const float *logical)
{
	struct ct_mirror m = {.data = arena, .n = ct_net_arena_elems(net)};

	return ct_net_import(net, &m, param, logical);
}

#endif
