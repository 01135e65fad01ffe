/* Tasks hold addresses, which change at three times: the arena moves when a larger program is created; the gradient
 * arena alternates when gradients are accumulated; the input is read where the caller has it. Each time, only the
 * arguments that refer to this memory are set again. All programs of a context are bound to the same arena, so all are
 * bound again when it moves. Folded weights are in this arena, too: they are lost when another program has run. */
#include "nn/onednn/program/bind.h"

#include "base/mem.h"

void *ct__onednn_at(const struct onednn_program *p, struct onednn_ref ref)
{
	const ct_net *net = p->base.net;

	switch (ref.where) {
	case ONEDNN_BUFFER:
		return ct__onednn_memory(p)->arena + p->buffers[ref.id].offset;
	case ONEDNN_PARAM:
		return ct_arena_at(net->params, net->slices[net->slice_of[ref.id]].offset);
	case ONEDNN_GRAD:
		return ct_arena_at(p->binding.grads_at, net->slices[net->slice_of[ref.id]].offset);
	case ONEDNN_RUNNING:
		return ct_arena_at(net->buffers, net->buffer_offset[ref.id]);
	case ONEDNN_NOTHING:
		break;
	}
	return NULL;
}

/* Creates the call of the primitive when it is first bound. */
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
	p->binding.grads_at = p->base.net->grads;
	p->binding.input_at = ct__onednn_at(p, ONEDNN_BUF(p->input));
	for (int i = 0; i < p->n_tasks; i++)
		CT_TRY(bind_task(p, &p->tasks[i]));
	return CT_OK;
}

/* Allocates enough memory for all programs of the context of `for_program` and for this program, and binds them again.
 * The old arena is freed first, because both arenas together would raise the run's peak memory. */
static enum ct_status make_arena(const struct onednn_program *for_program)
{
	struct onednn_memory *m = ct__onednn_memory(for_program);
	ct_net *net = for_program->base.net;
	size_t bytes = for_program->memory.bytes, all = 0;

	ct_free_aligned(m->arena);
	m->arena = NULL;
	m->bytes = 0;
	for (const struct onednn_program *p = m->programs; p; p = p->binding.next)
		bytes = p->memory.bytes > bytes ? p->memory.bytes : bytes;
	CT_TRY_ALLOC(m->arena = ct_calloc_aligned(ONEDNN_ALIGN, bytes));
	m->bytes = bytes;
	for (int i = 0; i < net->opts.contexts; i++)
		all += ct__onednn_net(for_program)->memory[i].bytes;
	if (all > net->memory.activations)
		net->memory.activations = all;
	for (struct onednn_program *p = m->programs; p; p = p->binding.next)
		CT_TRY(bind_tasks(p));
	return CT_OK;
}

enum ct_status ct__onednn_bind(struct onednn_program *p)
{
	struct onednn_memory *m = ct__onednn_memory(p);

	if (p->memory.bytes > m->bytes)
		CT_TRY(make_arena(p));
	CT_TRY(bind_tasks(p));
	p->binding.next = m->programs;
	m->programs = p;
	return CT_OK;
}

void ct__onednn_unbind(struct onednn_program *p)
{
	struct onednn_memory *m = ct__onednn_memory(p);
	struct onednn_program **at = &m->programs;

	while (*at && *at != p)
		at = &(*at)->binding.next;
	if (*at)
		*at = p->binding.next;
	if (m->programs)
		return;
	ct_free_aligned(m->arena);
	m->arena = NULL;
	m->bytes = 0;
}

/* Folded weights are also stored in the arena, so other programs have overwritten them. */
enum ct_status ct__onednn_take_arena(struct onednn_program *p)
{
	if (p->base.net->ran[p->base.context] == &p->base)
		return CT_OK;
	/* The arena is too small if an allocation failed when a program was created. */
	if (p->memory.bytes > ct__onednn_memory(p)->bytes)
		CT_TRY(make_arena(p));
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		p->values[id].fold.made = false;
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
			void *at = x ? (void *)(uintptr_t)x : ct__onednn_at(p, ref); /* the input is only read */
			if (t->kind == ONEDNN_CALL)
				CT_TRY(ct__dnnl_call_set(t->call, t->args[j].arg, at));
			else
				t->ptr[j] = at;
		}
	}
	return CT_OK;
}

enum ct_status ct__onednn_bind_grads(struct onednn_program *p, const ct_arena *grads)
{
	if (grads == p->binding.grads_at)
		return CT_OK;
	p->binding.grads_at = grads;
	return rebind(p, ONEDNN_GRAD, -1, NULL);
}

enum ct_status ct__onednn_bind_input(struct onednn_program *p, const void *x)
{
	if (x == p->binding.input_at)
		return CT_OK;
	p->binding.input_at = x;
	return rebind(p, ONEDNN_BUFFER, p->input, x);
}
