/* Marks are events that are recorded one after the other, so the phases add up to the step without gaps. The first mark
 * is the start, and each further one carries the phase that it ends. Events are created once for the largest number of
 * marks. A recording of the device contains its events but runs without this code, so the phases of its marks are kept,
 * and appended when it is posted: the marks before it must be the same in number each time. */
#include "trainer/run/session/step_clock.h"

#include "base/mem.h"

void ct_step_times_add(struct ct_step_times *to, const struct ct_step_times *t)
{
	to->data_ns += t->data_ns;
	to->forward_ns += t->forward_ns;
	to->backward_ns += t->backward_ns;
	to->exposed_ns += t->exposed_ns;
	to->optim_ns += t->optim_ns;
	to->step_ns += t->step_ns;
}

enum ct_status ct_step_clock_init(struct ct_step_clock *c, ct_stream *s, int cap)
{
	*c = (struct ct_step_clock){.stream = s};
	CT_TRY_ALLOC(c->marks = CT_NEW_ARRAY(struct ct_step_mark, (size_t)cap + 1));
	CT_TRY_ALLOC(c->kept = CT_NEW_ARRAY(enum ct_phase, (size_t)cap + 1));
	for (c->cap = 0; c->cap < cap + 1; c->cap++)
		CT_TRY(ct_event_create(ct_stream_device(s), true, &c->marks[c->cap].event));
	return CT_OK;
}

void ct_step_clock_release(struct ct_step_clock *c)
{
	for (int i = 0; i < c->cap; i++)
		ct_event_destroy(c->marks[i].event);
	ct_free(c->kept);
	ct_free(c->marks);
	*c = (struct ct_step_clock){0};
}

enum ct_status ct_step_clock_begin(struct ct_step_clock *c)
{
	c->n = 0;
	c->paused = false;
	return ct_step_clock_mark(c, CT_PHASE_NONE);
}

enum ct_status ct_step_clock_mark(struct ct_step_clock *c, enum ct_phase phase)
{
	if (c->paused)
		return CT_OK;
	CT_ASSERT(c->n < c->cap);
	c->marks[c->n].phase = phase;
	return ct_event_record(c->marks[c->n++].event, c->stream);
}

enum ct_status ct_step_clock_pause_phase(struct ct_step_clock *c)
{
	return ct_step_clock_mark(c, c->phase);
}

enum ct_status ct_step_clock_resume_phase(struct ct_step_clock *c)
{
	return ct_step_clock_mark(c, CT_PHASE_EXPOSED);
}

void ct_step_clock_keep(struct ct_step_clock *c, int first)
{
	c->first_kept = first;
	c->n_kept = c->n - first;
	for (int i = 0; i < c->n_kept; i++)
		c->kept[i] = c->marks[first + i].phase;
	c->n = first;
}

void ct_step_clock_repeat(struct ct_step_clock *c)
{
	CT_ASSERT(c->n == c->first_kept && c->n + c->n_kept <= c->cap);
	for (int i = 0; i < c->n_kept; i++)
		c->marks[c->n++].phase = c->kept[i];
}

enum ct_status ct_step_clock_each(const struct ct_step_clock *c, ct_phase_fn fn, void *user)
{
	int64_t at_ns = 0, ns;

	for (int i = 1; i < c->n; i++) {
		CT_TRY(ct_event_elapsed(c->marks[i - 1].event, c->marks[i].event, &ns));
		fn(user, c->marks[i].phase, at_ns, at_ns + ns);
		at_ns += ns;
	}
	return CT_OK;
}

static void add_phase(void *by_phase, enum ct_phase phase, int64_t begin_ns, int64_t end_ns)
{
	((int64_t *)by_phase)[phase] += end_ns - begin_ns;
}

enum ct_status ct_step_clock_read(const struct ct_step_clock *c, struct ct_step_times *out)
{
	int64_t by_phase[CT_PHASE_NONE + 1] = {0};

	CT_TRY(ct_step_clock_each(c, add_phase, by_phase));
	*out = (struct ct_step_times){.data_ns = by_phase[CT_PHASE_DATA],
				      .forward_ns = by_phase[CT_PHASE_FORWARD],
				      .backward_ns = by_phase[CT_PHASE_BACKWARD],
				      .exposed_ns = by_phase[CT_PHASE_EXPOSED],
				      .optim_ns = by_phase[CT_PHASE_OPTIM]};
	out->step_ns = out->data_ns + out->forward_ns + out->backward_ns + out->exposed_ns + out->optim_ns;
	return CT_OK;
}
