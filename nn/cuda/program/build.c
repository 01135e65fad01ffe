/* The lists of a program grow while it is compiled. A reference therefore stores the offset of a pointer in its task
 * and not its address, and always belongs to the last task. A buffer is live from the first to the last task that
 * refers to it, so a task must refer to every buffer that it uses. */
#include "nn/cuda/program/program.h"

#include "base/mem.h"

void ct__cuda_release_tasks(struct cuda_program *p)
{
	for (size_t i = 0; i < p->n_tasks; i++) {
		if (p->tasks[i].kind != CUDA_PLAN)
			continue;
		ct__cudnn_pack_destroy(p->tasks[i].plan.pack);
		ct__cudnn_pack_destroy(p->tasks[i].plan.other);
	}
	ct_free(p->references);
	ct_free(p->tasks);
	ct_free(p->buffers);
	ct_free(p->taps);
	ct_free(p->norms);
	ct_free(p->groups);
	ct_free(p->values);
}

enum ct_status ct__cuda_buffer(struct cuda_program *p, size_t bytes, int *out)
{
	CT_TRY_GROW(p->buffers, p->n_buffers, p->buffers_cap);
	p->buffers[p->n_buffers] = CT_PLAN_BUFFER(bytes);
	*out = (int)p->n_buffers++;
	return CT_OK;
}

enum ct_status ct__cuda_task(struct cuda_program *p, int node, enum cuda_kind kind, struct cuda_task **out)
{
	CT_TRY_GROW(p->tasks, p->n_tasks, p->tasks_cap);
	p->tasks[p->n_tasks] = (struct cuda_task){.kind = kind, .node = node};
	*out = &p->tasks[p->n_tasks++];
	return CT_OK;
}

static enum ct_status add_reference(struct cuda_program *p, const void *field, int buffer, int param)
{
	const int task = (int)p->n_tasks - 1;
	const size_t at = (size_t)((const char *)field - (const char *)&p->tasks[task]);

	CT_ASSERT(at < sizeof(struct cuda_task));
	CT_TRY_GROW(p->references, p->n_references, p->references_cap);
	p->references[p->n_references++] = (struct cuda_reference){task, at, buffer, param};
	return CT_OK;
}

enum ct_status ct__cuda_refer(struct cuda_program *p, const void *field, int buffer)
{
	ct_plan_buffer_use(&p->buffers[buffer], (int)p->n_tasks - 1);
	return add_reference(p, field, buffer, CUDA_NONE);
}

enum ct_status ct__cuda_refer_grad(struct cuda_program *p, const void *field, int param)
{
	return add_reference(p, field, CUDA_NONE, param);
}
