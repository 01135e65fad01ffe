/* Streams and what waits in them. Work does not run when it is posted: the host's waits run it (schedule.c). Streams
 * are ordered by moments: an operation of one stream reaches a moment, and an operation of another one waits for it. */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_device/fake_device.h"

void *fake_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		fake_fail("no host memory for %zu bytes", bytes);
	return p;
}

void *fake_grow(void *p, int n, int *capacity, size_t element_bytes)
{
	if (n < *capacity)
		return p;
	*capacity = n < 8 ? 8 : 2 * n;
	p = realloc(p, (size_t)*capacity * element_bytes);
	if (!p)
		fake_fail("no host memory");
	return p;
}

void fake_seed(struct fake_machine *m, uint64_t seed)
{
	m->rng = (seed + 1) * 0x9E3779B97F4A7C15u;
	if (m->rng == 0)
		m->rng = 1;
}

/* xorshift64*. */
unsigned fake_draw(struct fake_machine *m, unsigned n)
{
	m->rng ^= m->rng >> 12;
	m->rng ^= m->rng << 25;
	m->rng ^= m->rng >> 27;
	return (unsigned)((m->rng * 0x2545F4914F6CDD1Du >> 32) * n >> 32);
}

static bool add_op(struct fake_machine *m)
{
	struct fake_op *op = fake_new(sizeof(*op));

	if (!op)
		return false;
	op->next = m->unused_ops;
	m->unused_ops = op;
	m->n_unused_ops++;
	return true;
}

static bool add_moment(struct fake_machine *m)
{
	struct fake_moment *moment = fake_new(sizeof(*moment));

	if (!moment)
		return false;
	moment->next = m->unused_moments;
	m->unused_moments = moment;
	m->n_unused_moments++;
	return true;
}

bool fake_reserve(struct fake_machine *m, int n_ops, int n_moments)
{
	while (m->n_unused_ops < n_ops) {
		if (!add_op(m))
			return false;
	}
	while (m->n_unused_moments < n_moments) {
		if (!add_moment(m))
			return false;
	}
	return true;
}

void fake_machine_release(struct fake_machine *m)
{
	for (struct fake_op *op = m->unused_ops; op; op = m->unused_ops) {
		m->unused_ops = op->next;
		fake_delete(op);
	}
	for (struct fake_moment *moment = m->unused_moments; moment; moment = m->unused_moments) {
		m->unused_moments = moment->next;
		fake_delete(moment);
	}
	m->n_unused_ops = m->n_unused_moments = 0;
}

struct fake_moment *fake_moment_create(struct fake_stream *s)
{
	struct fake_machine *m = s->machine;
	struct fake_moment *moment;

	if (!fake_reserve(m, 0, 1))
		fake_fail("no host memory");
	moment = m->unused_moments;
	m->unused_moments = moment->next;
	m->n_unused_moments--;
	*moment = (struct fake_moment){.machine = m, .refs = 1, .stream = s};
	return moment;
}

struct fake_moment *fake_moment_keep(struct fake_moment *m)
{
	m->refs++;
	return m;
}

void fake_moment_drop(struct fake_moment *m)
{
	if (!m || --m->refs > 0)
		return;
	m->next = m->machine->unused_moments;
	m->machine->unused_moments = m;
	m->machine->n_unused_moments++;
}

void fake_moment_reach(struct fake_moment *m)
{
	m->ns = fake_now_ns();
	m->reached = true;
}

void fake_event_release(struct fake_event *e)
{
	fake_moment_drop(e->moment);
	free(e->nodes);
	*e = (struct fake_event){0};
}

struct fake_work *fake_work_keep(struct fake_work *w)
{
	w->refs++;
	return w;
}

void fake_work_drop(struct fake_work *w)
{
	if (--w->refs == 0)
		fake_work_free(w);
}

void fake_stream_add(struct fake_machine *m, struct fake_stream *s, int device)
{
	if (m->n_streams == FAKE_MAX_STREAMS)
		fake_fail("more than %d streams", FAKE_MAX_STREAMS);
	*s = (struct fake_stream){.machine = m, .slot = m->n_streams, .device = device};
	s->end = &s->first;
	m->streams[m->n_streams++] = s;
}

void fake_stream_remove(struct fake_stream *s)
{
	struct fake_machine *m = s->machine;

	m->streams[s->slot] = m->streams[--m->n_streams];
	m->streams[s->slot]->slot = s->slot;
	free(s->deps);
}

void fake_push(struct fake_stream *s, struct fake_op op)
{
	struct fake_machine *m = s->machine;
	struct fake_op *copy;

	if (!fake_reserve(m, 1, 0))
		fake_fail("no host memory");
	copy = m->unused_ops;
	m->unused_ops = copy->next;
	m->n_unused_ops--;
	*copy = op;
	copy->next = NULL;
	*s->end = copy;
	s->end = &copy->next;
}

void fake_post_work(struct fake_stream *s, struct fake_work *w)
{
	fake_push(s, (struct fake_op){.kind = FAKE_OP_WORK, .work = w});
}

void fake_post_record(struct fake_stream *s, struct fake_event *e)
{
	fake_event_release(e);
	e->moment = fake_moment_create(s);
	fake_push(s, (struct fake_op){.kind = FAKE_OP_RECORD, .moment = fake_moment_keep(e->moment)});
}

void fake_post_wait(struct fake_stream *s, struct fake_moment *m)
{
	fake_push(s, (struct fake_op){.kind = FAKE_OP_WAIT, .moment = fake_moment_keep(m)});
}

void fake_pop(struct fake_stream *s)
{
	struct fake_machine *m = s->machine;
	struct fake_op *op = s->first;

	s->first = op->next;
	if (!s->first)
		s->end = &s->first;
	switch (op->kind) {
	case FAKE_OP_WORK:
		fake_work_drop(op->work);
		break;
	case FAKE_OP_RECORD:
	case FAKE_OP_WAIT:
		fake_moment_drop(op->moment);
		break;
	case FAKE_OP_LAUNCH:
		fake_launch_drop(op->launch);
		break;
	}
	op->next = m->unused_ops;
	m->unused_ops = op;
	m->n_unused_ops++;
}
