/* The lists of buffers and tasks grow while a program is compiled, so a pointer to a task is valid only until the next
 * one is appended. The lifetime of a buffer follows from its uses as an argument, and from nothing else. A task must
 * therefore name every buffer that it reads or writes; otherwise the memory plan may give this memory to another
 * buffer. */
#include "nn/onednn/program/program.h"

#include "base/mem.h"

enum ct_status ct__onednn_buffer(struct onednn_program *p, size_t bytes, int *out)
{
	if (p->n_buffers == p->cap_buffers) {
		int cap = p->cap_buffers ? 2 * p->cap_buffers : 32;
		struct ct_plan_buffer *b;

		CT_TRY_ALLOC(b = ct_realloc(p->buffers, (size_t)cap, sizeof(*b)));
		p->buffers = b;
		p->cap_buffers = cap;
	}
	p->buffers[p->n_buffers] = CT_PLAN_BUFFER(bytes);
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
	if (ref.where == ONEDNN_BUFFER)
		ct_plan_buffer_use(&p->buffers[ref.id], at);
}

void ct__onednn_arg_buffer(struct onednn_program *p, struct onednn_task *t, enum ct_dnnl_arg arg, int buffer)
{
	ct__onednn_arg(p, t, arg, (struct onednn_ref){ONEDNN_BUFFER, buffer});
}

struct onednn_net *ct__onednn_net(const struct onednn_program *p)
{
	return p->base.net->impl;
}

struct onednn_memory *ct__onednn_memory(const struct onednn_program *p)
{
	return &ct__onednn_net(p)->memory[p->base.context];
}

const struct ct_node *ct__onednn_node(const struct onednn_program *p, int id)
{
	return ct_graph_node(p->base.graph, id);
}

enum ct_dnnl_type ct__onednn_type(const struct onednn_program *p)
{
	return p->base.net->opts.precision == CT_PRECISION_BF16 ? CT_DNNL_BF16 : CT_DNNL_F32;
}

void ct__onednn_dims(const struct onednn_program *p, int id, int dims[4])
{
	struct ct_shape s = ct__onednn_node(p, id)->shape;

	dims[0] = p->base.n;
	dims[1] = s.c;
	dims[2] = s.h;
	dims[3] = s.w;
}

int ct__onednn_owner(const struct onednn_program *p, int id)
{
	const struct onednn_value *v = &p->values[id];

	if (v->fusion.pool >= 0)
		return v->fusion.pool;
	return v->fusion.relu >= 0 ? v->fusion.relu : v->fold.last >= 0 ? v->fold.last : id;
}

int ct__onednn_result(const struct onednn_program *p, int id)
{
	return p->values[ct__onednn_owner(p, id)].layout.buffer;
}
