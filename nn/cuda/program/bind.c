#include <string.h>

#include "nn/cuda/program/program.h"

static void set_pointer(struct cuda_task *t, size_t field, const void *address)
{
	memcpy((char *)t + field, &address, sizeof(address));
}

/* The pack of a plan is made when its pointers are known, and again when they change. */
static enum ct_status make_pack(struct cuda_program *p, struct cuda_task *t)
{
	ct__cudnn_pack_destroy(t->plan.pack);
	t->plan.pack = NULL;
	return ct__cudnn_pack_create(t->plan.choice->graph, t->plan.pointers, p->workspace, &t->plan.pack);
}

static bool uses_gradient(const struct cuda_program *p, int task)
{
	for (size_t i = 0; i < p->n_references; i++) {
		if (p->references[i].task == task && p->references[i].buffer == CUDA_NONE)
			return true;
	}
	return false;
}

enum ct_status ct__cuda_bind(struct cuda_program *p)
{
	ct_device *d = p->base.net->engine->device;
	void *memory, *workspace;

	CT_TRY(ct_device_mem_alloc(d, p->memory_bytes, true, &memory));
	p->memory = memory;
	CT_TRY(ct_device_mem_alloc(d, p->workspace_bytes, false, &workspace));
	p->workspace = workspace;
	for (size_t i = 0; i < p->n_references; i++) {
		const struct cuda_reference *r = &p->references[i];

		if (r->buffer != CUDA_NONE)
			set_pointer(&p->tasks[r->task], r->field, p->memory + p->buffers[r->buffer].at);
	}
	for (size_t i = 0; i < p->n_tasks; i++) {
		if (p->tasks[i].kind == CUDA_PLAN && !uses_gradient(p, (int)i))
			CT_TRY(make_pack(p, &p->tasks[i]));
	}
	return CT_OK;
}

enum ct_status ct__cuda_bind_grads(struct cuda_program *p, const ct_arena *grads)
{
	const ct_net *net = p->base.net;

	if (p->bound_grads == grads)
		return CT_OK;
	for (size_t i = 0; i < p->n_references; i++) {
		const struct cuda_reference *r = &p->references[i];

		if (r->buffer != CUDA_NONE)
			continue;
		struct cuda_task *t = &p->tasks[r->task];
		set_pointer(t, r->field, ct_arena_at(grads, net->slices[net->slice_of[r->param]].offset));
		if (t->kind == CUDA_PLAN)
			CT_TRY(make_pack(p, t));
	}
	p->bound_grads = grads;
	return CT_OK;
}
