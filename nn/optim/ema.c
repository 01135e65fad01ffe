/* EMA weights are two arenas with the layout of the net's parameters and buffers. One pass per span averages the ranges
 * that training changes; adjacent slices are one span, with the padding between them, so a model without frozen
 * parameters has one pass over its parameters. Values outside the spans keep the copy that was made at the start. To
 * evaluate with EMA weights, the contents of the arenas are exchanged, in place. */
#include "nn/optim/optim.h"

#include "base/mem.h"
#include "nn/engine_impl.h"

struct ct_ema {
	ct_net *net;
	double decay;
	ct_arena *params, *buffers;
	struct ct_span *spans; /* of params and buffers that training changes */
	int n_spans;
};

/* Adds elements of an arena to the spans that training changes, or to the last one if they follow it. */
static void add_span(ct_ema *e, ct_arena *arena, size_t first, size_t end)
{
	struct ct_span *last = e->n_spans > 0 ? &e->spans[e->n_spans - 1] : NULL;

	if (last && last->arena == arena && last->first + last->n == first)
		last->n = end - last->first;
	else
		e->spans[e->n_spans++] = (struct ct_span){arena, first, end - first};
}

/* Frozen values are skipped, because the average of equal values can differ from them in the last bits. */
static enum ct_status plan_spans(ct_ema *e)
{
	const ct_net *net = e->net;
	const int n_buffers = ct_graph_n_buffers(net->graph);

	CT_TRY_ALLOC(e->spans = CT_NEW_ARRAY(struct ct_span, (size_t)(net->n_slices + n_buffers)));
	for (int i = 0; i < net->n_slices; i++) {
		const size_t end = i + 1 < net->n_slices ? net->slices[i + 1].offset : net->arena_elems;

		if (!ct_graph_param(net->graph, net->slices[i].param)->frozen)
			add_span(e, e->params, net->slices[i].offset, end);
	}
	for (int i = 0; i < n_buffers; i++) {
		const struct ct_param *b = ct_graph_buffer(net->graph, i);

		if (!ct_graph_node(net->graph, b->node)->fixed_stats)
			add_span(e, e->buffers, net->buffer_offset[i], net->buffer_offset[i] + b->n);
	}
	return CT_OK;
}

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
	CT_TRY_GOTO(plan_spans(e), st, fail);
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
	ct_free(e->spans);
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
	for (int i = 0; i < e->n_spans; i++) {
		const struct ct_span *s = &e->spans[i];

		CT_TRY(ops->average(e->net, s, s->arena == e->params ? e->net->params : e->net->buffers, e->decay));
	}
	return CT_OK;
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
