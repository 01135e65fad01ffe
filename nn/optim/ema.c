#include "nn/optim/optim.h"

#include "base/mem.h"
#include "nn/engine_impl.h"

struct ct_ema {
	ct_net *net;
	double decay;
	ct_arena *params, *buffers;
};

enum ct_status ct_ema_create(ct_net *net, double decay, ct_ema **out)
{
	enum ct_status st;
	ct_ema *e;

	if (!(decay >= 0 && decay < 1))
		return CT_FAIL(CT_CONFIG, "the decay of the EMA weights, %g, must be in [0, 1)", decay);
	CT_TRY_ALLOC(e = CT_NEW(ct_ema));
	e->net = net;
	e->decay = decay;
	CT_TRY_GOTO(ct_arena_create(net->engine->device, CT_F32, net->arena_elems, &e->params), st, fail);
	CT_TRY_GOTO(ct_arena_create(net->engine->device, CT_F32, net->buffer_elems, &e->buffers), st, fail);
	CT_TRY_GOTO(ct_ema_restart(e), st, fail);
	*out = e;
	return CT_OK;
fail:
	ct_ema_destroy(e);
	return st;
}

void ct_ema_destroy(ct_ema *e)
{
	if (!e)
		return;
	ct_arena_destroy(e->buffers);
	ct_arena_destroy(e->params);
	ct_free(e);
}

enum ct_status ct_ema_restart(ct_ema *e)
{
	CT_TRY(ct_arena_copy(e->params, e->net->params, e->net->engine->stream));
	return ct_arena_copy(e->buffers, e->net->buffers, e->net->engine->stream);
}

void ct_ema_posted_again(ct_ema *e)
{
	ct_arena_touch(e->params);
	ct_arena_touch(e->buffers);
}

enum ct_status ct_ema_update(ct_ema *e)
{
	const struct ct_arena_ops *ops = e->net->engine->arenas;

	ct_ema_posted_again(e);
	CT_TRY(ops->average(e->net, e->params, e->net->params, e->decay));
	return ops->average(e->net, e->buffers, e->net->buffers, e->decay);
}

static enum ct_status swap(ct_net *net, ct_arena *a, ct_arena *b)
{
	ct_arena_touch(a);
	ct_arena_touch(b);
	return net->engine->arenas->swap(net, a, b);
}

/* Swaps the values, not the arenas, because programs hold addresses in the arenas of the net. */
enum ct_status ct_ema_swap(ct_ema *e)
{
	CT_TRY(swap(e->net, e->params, e->net->params));
	return swap(e->net, e->buffers, e->net->buffers);
}

ct_arena *ct_ema_params(ct_ema *e)
{
	return e->params;
}

ct_arena *ct_ema_buffers(ct_ema *e)
{
	return e->buffers;
}
