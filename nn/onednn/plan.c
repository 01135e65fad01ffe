#include "nn/onednn/onednn_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ALIGN 64

enum ct_status ct__onednn_buffer(struct onednn_program *p, size_t bytes, int *out)
{
	if (p->n_buffers == p->cap_buffers) {
		int cap = p->cap_buffers ? 2 * p->cap_buffers : 32;
		struct onednn_buffer *b;
		CT_TRY_ALLOC(b = ct_realloc(p->buffers, (size_t)cap, sizeof(*b)));
		p->buffers = b;
		p->cap_buffers = cap;
	}
	p->buffers[p->n_buffers] =
		(struct onednn_buffer){.bytes = bytes, .first = INT32_MAX, .last = -1, .lost = INT32_MAX};
	*out = p->n_buffers++;
	return CT_OK;
}

enum ct_status ct__onednn_task(struct onednn_program *p, enum onednn_kind kind, int node, struct onednn_task **out)
{
	if (p->n_tasks == p->cap_tasks) {
		int cap = p->cap_tasks ? 2 * p->cap_tasks : 32;
		struct onednn_task *t;
		CT_TRY_ALLOC(t = ct_realloc(p->tasks, (size_t)cap, sizeof(*t)));
		p->tasks = t;
		p->cap_tasks = cap;
	}
	*out = &p->tasks[p->n_tasks++];
	**out = (struct onednn_task){.kind = kind, .node = node};
	return CT_OK;
}

void ct__onednn_arg(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, struct onednn_ref ref)
{
	int at = (int)(t - p->tasks);

	CT_ASSERT(t->n_args < CT_DNNL_MAX_ARGS);
	t->args[t->n_args++] = (struct onednn_arg){arg, ref};
	if (ref.where != ONEDNN_BUFFER)
		return;
	struct onednn_buffer *b = &p->buffers[ref.id];
	b->first = at < b->first ? at : b->first;
	b->last = at > b->last ? at : b->last;
}

void ct__onednn_arg_buffer(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, int buffer)
{
	ct__onednn_arg(p, t, arg, (struct onednn_ref){ONEDNN_BUFFER, buffer});
}

enum ct_status ct__onednn_call(struct onednn_program *p, int node, const ct_dnnl_prim *prim, struct onednn_task **out)
{
	size_t scratch = ct__dnnl_prim_bytes(prim, CT_DNNL_SCRATCHPAD);

	CT_TRY(ct__onednn_task(p, ONEDNN_CALL, node, out));
	(*out)->prim = prim;
	if (scratch) {
		int buffer;
		CT_TRY(ct__onednn_buffer(p, scratch, &buffer));
		ct__onednn_arg_buffer(p, *out, CT_DNNL_SCRATCHPAD, buffer);
	}
	return CT_OK;
}

enum ct_status ct__onednn_relayout(struct onednn_program *p, int node, struct onednn_ref from,
				   const ct_dnnl_desc *from_desc, const ct_dnnl_desc *to_desc, struct onednn_ref *out)
{
	const struct ct_dnnl_spec spec = {.op = CT_DNNL_REORDER, .src = from_desc, .dst = to_desc};
	const ct_dnnl_prim *prim;
	struct onednn_task *t;
	int buffer;

	*out = from;
	if (from_desc == to_desc)
		return CT_OK;
	p->base.reorders += from.where == ONEDNN_BUFFER && ct__dnnl_desc_type(from_desc) == ct__dnnl_desc_type(to_desc);
	CT_TRY(ct__onednn_prim(p, node, &spec, &prim));
	CT_TRY(ct__onednn_buffer(p, ct__dnnl_desc_bytes(to_desc), &buffer));
	CT_TRY(ct__onednn_call(p, node, prim, &t));
	ct__onednn_arg(p, t, CT_DNNL_SRC, from);
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, buffer);
	*out = (struct onednn_ref){ONEDNN_BUFFER, buffer};
	return CT_OK;
}

enum ct_status ct__onednn_prim(struct onednn_program *p, int node, const struct ct_dnnl_spec *spec,
			       const ct_dnnl_prim **out)
{
	CT_TRY(ct__dnnl_prim_get(p->dnnl, spec, out));
	if (*out)
		return CT_OK;
	const struct ct_node *n = ct_graph_node(p->base.graph, node);
	enum ct_status st = CT_FAIL(CT_UNSUPPORTED, "%s: %s has no implementation of this %s", n->name,
				    ct__dnnl_version(), ct_op_name(n->op));
	ct_error_hint("the engine \"ref\" computes everything, slowly");
	return st;
}

enum ct_status ct__onednn_choose(struct onednn_program *p, int node, const struct ct_dnnl_spec *specs, int n,
				 const ct_dnnl_prim **out)
{
	const ct_dnnl_prim *prim, *best = NULL;

	for (int i = 0; i < n && (!best || ct__dnnl_prim_rank(best) < 2); i++) {
		CT_TRY(ct__dnnl_prim_get(p->dnnl, &specs[i], &prim));
		if (prim && (!best || ct__dnnl_prim_rank(prim) > ct__dnnl_prim_rank(best)))
			best = prim;
	}
	*out = best;
	return best ? CT_OK : ct__onednn_prim(p, node, &specs[0], out);
}

enum ct_status ct__onednn_fit(struct onednn_program *p, int node, const ct_dnnl_prim *prim, enum ct_dnnl_arg arg,
			      struct onednn_ref from, const ct_dnnl_desc *from_desc, struct onednn_ref *out)
{
	const ct_dnnl_desc *want;

	CT_TRY(ct__dnnl_prim_desc(p->dnnl, prim, arg, &want));
	return ct__onednn_relayout(p, node, from, from_desc, want, out);
}

enum ct_status ct__onednn_view(struct onednn_program *p, int node, int root, int ndims, const int *dims,
			       const ct_dnnl_desc **desc, int *buffer)
{
	const ct_dnnl_desc *d = p->values[root].desc, *plain;
	struct onednn_ref at = {ONEDNN_BUFFER, p->values[root].buffer};

	if (ct__dnnl_desc_ndims(d) != ndims || memcmp(ct__dnnl_desc_dims(d), dims, (size_t)ndims * sizeof(*dims))) {
		const enum ct_dnnl_type type = ct__dnnl_desc_type(d);
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ct__dnnl_desc_ndims(d), ct__dnnl_desc_dims(d), &plain));
		CT_TRY(ct__onednn_relayout(p, node, at, d, plain, &at));
		CT_TRY(ct__dnnl_plain_of(p->dnnl, type, ndims, dims, &d));
	}
	*desc = d;
	*buffer = at.id;
	return CT_OK;
}

struct placed {
	size_t bytes;
	int id;
};

static int compare_placed(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static bool live_together(const struct onednn_buffer *a, const struct onednn_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* The tightest gap between the buffers that live at the same time; `order` holds those placed, by offset. */
static size_t best_gap(const struct onednn_program *p, const struct onednn_buffer *b, const int *order, int n)
{
	size_t end = 0, best = SIZE_MAX, best_gap_bytes = SIZE_MAX;

	for (int i = 0; i < n; i++) {
		const struct onednn_buffer *o = &p->buffers[order[i]];
		if (!live_together(b, o))
			continue;
		if (o->offset >= end + b->bytes && o->offset - end < best_gap_bytes) {
			best = end;
			best_gap_bytes = o->offset - end;
		}
		end = o->offset + o->bytes > end ? o->offset + o->bytes : end;
	}
	return best == SIZE_MAX ? end : best;
}

/* Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020): the largest buffer
 * first, each into the tightest gap. */
static void place(struct onednn_program *p, const struct placed *by_size, int n, int *order)
{
	for (int i = 0; i < n; i++) {
		struct onednn_buffer *b = &p->buffers[by_size[i].id];
		b->offset = best_gap(p, b, order, i);
		int at = i;
		for (; at > 0 && p->buffers[order[at - 1]].offset > b->offset; at--)
			order[at] = order[at - 1];
		order[at] = by_size[i].id;
		if (b->offset + b->bytes > p->arena_bytes)
			p->arena_bytes = b->offset + b->bytes;
		p->unplanned_bytes += b->bytes;
	}
}

/* When does a buffer lose its bytes to a later one? */
static void find_lost(struct onednn_program *p)
{
	for (int i = 0; i < p->n_buffers; i++) {
		struct onednn_buffer *b = &p->buffers[i];
		for (int j = 0; j < p->n_buffers; j++) {
			const struct onednn_buffer *o = &p->buffers[j];
			bool overlap = b->offset < o->offset + o->bytes && o->offset < b->offset + b->bytes;
			if (j != i && overlap && o->first > b->last && o->first < b->lost)
				b->lost = o->first;
		}
	}
}

static enum ct_status plan_arena(struct onednn_program *p)
{
	struct placed *by_size = NULL;
	int *order = NULL, n = 0;
	enum ct_status st = CT_OK;

	by_size = CT_NEW_ARRAY(struct placed, (size_t)p->n_buffers);
	order = CT_NEW_ARRAY(int, (size_t)p->n_buffers);
	if (!by_size || !order) {
		st = CT_NOMEM;
		goto out;
	}
	for (int i = 0; i < p->n_buffers; i++) {
		p->buffers[i].bytes = (p->buffers[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
		if (p->buffers[i].last >= 0)
			by_size[n++] = (struct placed){p->buffers[i].bytes, i};
	}
	qsort(by_size, (size_t)n, sizeof(*by_size), compare_placed);
	place(p, by_size, n, order);
	find_lost(p);
out:
	ct_free(order);
	ct_free(by_size);
	return st;
}

static struct onednn_net *net_of(const struct onednn_program *p)
{
	return p->base.net->impl;
}

void *ct__onednn_at(const struct onednn_program *p, struct onednn_ref ref)
{
	const ct_net *net = p->base.net;

	switch (ref.where) {
	case ONEDNN_BUFFER:
		return net_of(p)->arena + p->buffers[ref.id].offset;
	case ONEDNN_PARAM:
		return net->params + net->slices[net->slice_of[ref.id]].offset;
	case ONEDNN_GRAD:
		return p->grads_at + net->slices[net->slice_of[ref.id]].offset;
	case ONEDNN_RUNNING:
		return net->buffers + net->buffer_offset[ref.id];
	case ONEDNN_NOTHING:
		break;
	}
	return NULL;
}

/* Makes the call when that is not there yet. */
static enum ct_status bind_task(struct onednn_program *p, struct onednn_task *t)
{
	struct ct_dnnl_bind binds[CT_DNNL_MAX_ARGS];

	if (t->kind != ONEDNN_CALL) {
		for (int i = 0; i < t->n_args; i++)
			t->ptr[i] = ct__onednn_at(p, t->args[i].ref);
		return CT_OK;
	}
	for (int i = 0; i < t->n_args; i++)
		binds[i] = (struct ct_dnnl_bind){t->args[i].arg, ct__onednn_at(p, t->args[i].ref)};
	if (!t->call)
		return ct__dnnl_call_create(p->dnnl, t->prim, binds, t->n_args, &t->call);
	for (int i = 0; i < t->n_args; i++)
		CT_TRY(ct__dnnl_call_set(t->call, binds[i].arg, binds[i].ptr));
	return CT_OK;
}

static enum ct_status bind_tasks(struct onednn_program *p)
{
	p->grads_at = p->base.net->grads;
	p->input_at = ct__onednn_at(p, ONEDNN_BUF(p->input));
	for (int i = 0; i < p->n_tasks; i++)
		CT_TRY(bind_task(p, &p->tasks[i]));
	return CT_OK;
}

/* At least `bytes`, and what the programs need that are there. The old arena goes first: two at a time would be the peak of a
 * run's memory. */
static enum ct_status make_arena(ct_net *base, size_t bytes)
{
	struct onednn_net *net = base->impl;

	ct_free_aligned(net->arena);
	net->arena = NULL;
	net->arena_bytes = 0;
	for (const struct onednn_program *p = net->programs; p; p = p->next)
		bytes = p->arena_bytes > bytes ? p->arena_bytes : bytes;
	CT_TRY_ALLOC(net->arena = ct_calloc_aligned(ALIGN, bytes));
	net->arena_bytes = bytes;
	if (bytes > base->memory.activations)
		base->memory.activations = bytes;
	for (struct onednn_program *p = net->programs; p; p = p->next)
		CT_TRY(bind_tasks(p));
	return CT_OK;
}

enum ct_status ct__onednn_bind(struct onednn_program *p)
{
	struct onednn_net *net = net_of(p);

	CT_TRY(plan_arena(p));
	if (p->arena_bytes > net->arena_bytes)
		CT_TRY(make_arena(p->base.net, p->arena_bytes));
	CT_TRY(bind_tasks(p));
	p->next = net->programs;
	net->programs = p;
	return CT_OK;
}

void ct__onednn_unbind(struct onednn_program *p)
{
	struct onednn_net *net = net_of(p);
	struct onednn_program **at = &net->programs;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	if (net->programs)
		return;
	ct_free_aligned(net->arena);
	net->arena = NULL;
	net->arena_bytes = 0;
}

/* Weights that were folded lay in the arena, too. */
enum ct_status ct__onednn_take_arena(struct onednn_program *p)
{
	if (p->base.net->ran == &p->base)
		return CT_OK;
	if (p->arena_bytes > net_of(p)->arena_bytes) /* a larger one was refused when a program was to be made */
		CT_TRY(make_arena(p->base.net, p->arena_bytes));
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		p->values[id].fold_made = false;
	return CT_OK;
}

static enum ct_status rebind(struct onednn_program *p, enum onednn_where where, int id, const void *x)
{
	for (int i = 0; i < p->n_tasks; i++) {
		struct onednn_task *t = &p->tasks[i];
		for (int j = 0; j < t->n_args && t->kind != ONEDNN_INPUT; j++) {
			struct onednn_ref ref = t->args[j].ref;
			if (ref.where != where || (id >= 0 && ref.id != id))
				continue;
			void *at = x ? (void *)(uintptr_t)x : ct__onednn_at(p, ref); /* inputs are only read */
			if (t->kind == ONEDNN_CALL)
				CT_TRY(ct__dnnl_call_set(t->call, t->args[j].arg, at));
			else
				t->ptr[j] = at;
		}
	}
	return CT_OK;
}

enum ct_status ct__onednn_bind_grads(struct onednn_program *p, float *grads)
{
	if (grads == p->grads_at)
		return CT_OK;
	p->grads_at = grads;
	return rebind(p, ONEDNN_GRAD, -1, NULL);
}

enum ct_status ct__onednn_bind_input(struct onednn_program *p, const void *x)
{
	if (x == p->input_at)
		return CT_OK;
	p->input_at = x;
	return rebind(p, ONEDNN_BUFFER, p->input, x);
}
