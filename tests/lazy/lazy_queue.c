/* The queues of the lazy device (the work that is posted) and its events. Operations and moments are reused, so that
 * a loop of posts and waits allocates nothing after its first iteration. */
#include <string.h>

#include "base/mem.h"
#include "tests/lazy/lazy_impl.h"

enum ct_status ct__lazy_enter(struct lazy_device *d)
{
	if (d->running)
		return CT_FAIL(CT_BUG, "a posted function used the device");
	if (!pthread_equal(d->thread, pthread_self()))
		return CT_FAIL(CT_BUG, "two threads use the same device");
	if (d->failed) {
		d->reported = true;
		return ct_error_restore(&d->error);
	}
	return CT_OK;
}

enum ct_status ct__lazy_enter_unrecorded(struct lazy_device *d, const char *what)
{
	CT_TRY(ct__lazy_enter(d));
	return d->recording ? ct__lazy_recording_spoil(d, what) : CT_OK;
}

enum ct_status ct__lazy_moment_take(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment **out)
{
	struct lazy_moment *m = d->unused_moments;

	if (m)
		d->unused_moments = m->next;
	else
		CT_TRY_ALLOC(m = CT_NEW(struct lazy_moment));
	*m = (struct lazy_moment){.stream = s, .n_refs = 1};
	*out = m;
	return CT_OK;
}

void ct__lazy_moment_drop(struct lazy_device *d, struct lazy_moment *m)
{
	if (!m || --m->n_refs > 0)
		return;
	m->next = d->unused_moments;
	d->unused_moments = m;
}

enum ct_status ct__lazy_op_take(struct lazy_device *d, enum lazy_kind kind, struct lazy_op **out)
{
	struct lazy_op *op = d->unused_ops;

	if (op)
		d->unused_ops = op->next;
	else
		CT_TRY_ALLOC(op = CT_NEW(struct lazy_op));
	op->next = NULL;
	op->kind = kind;
	op->lane = NULL;
	op->event = NULL;
	*out = op;
	return CT_OK;
}

void ct__lazy_op_free(struct lazy_device *d, struct lazy_op *op)
{
	if (op->event)
		op->event->n_recorded--;
	if (op->kind == LAZY_RECORD || op->kind == LAZY_WAIT)
		ct__lazy_moment_drop(d, op->moment);
	op->next = d->unused_ops;
	d->unused_ops = op;
}

void ct__lazy_op_append(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op)
{
	if (op->kind == LAZY_COPY && !ct__lazy_is_device_memory(d, op->move.src)) {
		op->source_sum = ct__lazy_source_sum(op);
		op->next_source = d->sources;
		d->sources = op;
	}
	*s->end = op;
	s->end = &op->next;
}

static void append(ct_stream *base, struct lazy_op *op)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_stream *s = (struct lazy_stream *)base;

	if (s->recorded)
		ct__lazy_recording_add(d, s, op);
	else
		ct__lazy_op_append(d, s, op);
}

void ct__lazy_op_drop(struct lazy_device *d, struct lazy_stream *s)
{
	struct lazy_op *op = s->first;
	struct lazy_op **source = &d->sources;

	s->first = op->next;
	if (!s->first)
		s->end = &s->first;
	while (*source && *source != op)
		source = &(*source)->next_source;
	if (*source)
		*source = op->next_source;
	ct__lazy_op_free(d, op);
}

void ct__lazy_queues_release(struct lazy_device *d)
{
	struct lazy_op *op;
	struct lazy_moment *m;

	while ((op = d->unused_ops)) {
		d->unused_ops = op->next;
		ct_free(op);
	}
	while ((m = d->unused_moments)) {
		d->unused_moments = m->next;
		ct_free(m);
	}
}

/* Any change of a single 8-byte word changes this sum. */
uint64_t ct__lazy_source_sum(const struct lazy_op *op)
{
	const char *p = op->move.src;
	uint64_t sum = op->move.bytes, word;

	for (size_t left = op->move.bytes; left > 0; p += sizeof(word)) {
		size_t n = left < sizeof(word) ? left : sizeof(word);

		word = 0;
		memcpy(&word, p, n);
		sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
		sum ^= sum >> 32;
		left -= n;
	}
	return sum;
}

enum ct_status ct__lazy_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_op *op;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_range_check(d, "the destination of a copy", dst, bytes));
	CT_TRY(ct__lazy_range_check(d, "the source of a copy", src, bytes));
	if ((uintptr_t)dst < (uintptr_t)src + bytes && (uintptr_t)src < (uintptr_t)dst + bytes)
		return CT_FAIL(CT_BUG, "source and destination of a copy of %zu bytes overlap", bytes);
	CT_TRY(ct__lazy_op_take(d, LAZY_COPY, &op));
	op->move.dst = dst;
	op->move.src = src;
	op->move.bytes = bytes;
	append(s, op);
	return CT_OK;
}

enum ct_status ct__lazy_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_op *op;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_range_check(d, "the destination of a fill", dst, bytes));
	CT_TRY(ct__lazy_op_take(d, LAZY_FILL, &op));
	op->move.dst = dst;
	op->move.src = NULL;
	op->move.bytes = bytes;
	op->move.byte = byte;
	append(s, op);
	return CT_OK;
}

enum ct_status ct__lazy_stream_create(ct_device *base, bool high_priority, ct_stream **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_stream *s;

	(void)high_priority;
	CT_TRY(ct__lazy_enter(d));
	CT_TRY_ALLOC(s = CT_NEW(struct lazy_stream));
	s->base.device = base;
	s->end = &s->first;
	s->next = d->streams;
	d->streams = s;
	*out = &s->base;
	return CT_OK;
}

void ct__lazy_stream_destroy(ct_stream *base)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_stream *s = (struct lazy_stream *)base, **place = &d->streams;

	CT_ASSERT(!s->recorded); /* destroyed during a recording that it belongs to */
	ct__lazy_drain(d, s, NULL);
	while (*place != s)
		place = &(*place)->next;
	*place = s->next;
	ct_free(s);
}

enum ct_status ct__lazy_stream_run(ct_stream *base, ct_stream_fn fn, const void *args, size_t bytes)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_op *op;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_op_take(d, LAZY_RUN, &op));
	op->run.fn = fn;
	if (bytes > 0)
		memcpy(op->run.args, args, bytes);
	append(base, op);
	return CT_OK;
}

enum ct_status ct__lazy_stream_wait_event(ct_stream *base, ct_event *event)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_stream *s = (struct lazy_stream *)base;
	struct lazy_moment *m = ((struct lazy_event *)event)->moment;
	struct lazy_op *op;

	CT_TRY(ct__lazy_enter(d));
	if (!m)
		return CT_OK;
	if (s->recorded || m->recording)
		CT_TRY(ct__lazy_recording_join(d, s, m));
	CT_TRY(ct__lazy_op_take(d, LAZY_WAIT, &op));
	op->moment = m;
	m->n_refs++;
	append(base, op);
	return CT_OK;
}

enum ct_status ct__lazy_event_create(ct_device *base, bool timed, ct_event **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_event *e;

	(void)timed;
	CT_TRY(ct__lazy_enter(d));
	CT_TRY_ALLOC(e = CT_NEW(struct lazy_event));
	e->base.device = base;
	d->n_events++;
	*out = &e->base;
	return CT_OK;
}

void ct__lazy_event_destroy(ct_event *base)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_event *e = (struct lazy_event *)base;

	CT_ASSERT(!d->running);
	CT_ASSERT(e->n_recorded == 0); /* destroyed before a recording that records it */
	ct__lazy_moment_drop(d, e->moment);
	d->n_events--;
	ct_free(e);
}

void ct__lazy_event_set(struct lazy_device *d, struct lazy_event *e, struct lazy_moment *m)
{
	ct__lazy_moment_drop(d, e->moment);
	e->moment = m;
	m->n_refs++;
}

/* Adds an operation that records the event each time the recording is posted. */
static enum ct_status record_later(struct lazy_device *d, struct lazy_event *e, ct_stream *s)
{
	struct lazy_op *op;

	CT_TRY(ct__lazy_op_take(d, LAZY_RECORD, &op));
	op->event = e;
	op->moment = NULL;
	e->n_recorded++;
	append(s, op);
	return CT_OK;
}

enum ct_status ct__lazy_event_record(ct_event *base, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_event *e = (struct lazy_event *)base;
	bool recorded = ((struct lazy_stream *)s)->recorded;
	struct lazy_op *op;
	struct lazy_moment *m;

	CT_TRY(ct__lazy_enter(d));
	if (recorded && base->timed)
		return record_later(d, e, s);
	CT_TRY(ct__lazy_moment_take(d, (struct lazy_stream *)s, &m));
	enum ct_status st = ct__lazy_op_take(d, LAZY_RECORD, &op);
	if (st < 0) {
		ct__lazy_moment_drop(d, m);
		return st;
	}
	m->recording = recorded ? d->recording->id : 0;
	op->moment = m;
	ct__lazy_event_set(d, e, m);
	append(s, op);
	return CT_OK;
}

enum ct_status ct__lazy_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns)
{
	const struct lazy_moment *a = ((const struct lazy_event *)from)->moment;
	const struct lazy_moment *b = ((const struct lazy_event *)to)->moment;

	CT_TRY(ct__lazy_enter((struct lazy_device *)from->device));
	if (!a || !b || !a->reached || !b->reached)
		return CT_FAIL(CT_BUG, "the time between two events was requested before the host waited for them");
	*ns = b->at_ns - a->at_ns;
	return CT_OK;
}
