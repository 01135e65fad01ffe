/* An event is recorded before each pass and after each task; the time of a task is that between its event and the one
 * before. The host does not wait for them during the pass. Times are collected when they are requested, or before the
 * next forward pass uses the events again. Only differences between events are known, so a pass is taken to begin when
 * it was posted. */
#include "nn/cuda/run/profile.h"

#include "base/clock.h"
#include "base/mem.h"

/* marks[0]: the start of the forward pass; marks[i + 1]: the end of task i of the forward pass. The marks of the
 * backward pass follow in the same order, one later. */
static size_t mark_after(const struct cuda_program *p, size_t task)
{
	return task < p->n_forward ? task + 1 : task + 2;
}

static enum ct_status need_marks(struct cuda_program *p)
{
	const size_t n = p->n_tasks + 2;

	if (!p->marks)
		CT_TRY_ALLOC(p->marks = CT_NEW_ARRAY(ct_event *, n));
	for (size_t i = 0; i < n; i++) {
		if (!p->marks[i])
			CT_TRY(ct_event_create(p->base.net->engine->device, true, &p->marks[i]));
	}
	return CT_OK;
}

enum ct_status ct__cuda_profile_begin(struct cuda_program *p, bool backward)
{
	if (!p->base.profile)
		return CT_OK;
	if (!backward)
		CT_TRY(ct__cuda_profile_collect(&p->base));
	CT_TRY(need_marks(p));
	p->posted_ns[backward] = ct_now_ns();
	return ct_event_record(p->marks[backward ? p->n_forward + 1 : 0], p->base.net->engine->stream);
}

enum ct_status ct__cuda_profile_task(struct cuda_program *p, size_t i)
{
	if (!p->base.profile)
		return CT_OK;
	p->n_marked = i + 1;
	return ct_event_record(p->marks[mark_after(p, i)], p->base.net->engine->stream);
}

enum ct_status ct__cuda_profile_collect(ct_program *base)
{
	struct cuda_program *p = (struct cuda_program *)base;
	const size_t n = p->n_marked;
	int64_t at_ns = 0;

	p->n_marked = 0;
	if (n == 0)
		return CT_OK;
	CT_TRY(ct_event_wait(p->marks[mark_after(p, n - 1)], CT_FOREVER));
	for (size_t i = 0; i < n; i++) {
		const size_t end = mark_after(p, i);
		const bool backward = i >= p->n_forward;
		int64_t ns;

		CT_TRY(ct_event_elapsed(p->marks[end - 1], p->marks[end], &ns));
		if (i == 0 || i == p->n_forward)
			at_ns = p->posted_ns[backward];
		ct__program_add_time(base, p->tasks[i].node, backward, at_ns, at_ns + ns);
		at_ns += ns;
	}
	return CT_OK;
}

void ct__cuda_profile_release(struct cuda_program *p)
{
	for (size_t i = 0; p->marks && i < p->n_tasks + 2; i++)
		ct_event_destroy(p->marks[i]);
	ct_free(p->marks);
}
