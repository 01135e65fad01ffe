/* Posting to the lazy device: calls, copies, fills, events, and how they run. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "tests/lazy/lazy_impl.h"

enum ct_status ct__lazy_range_check(const struct lazy_device *d, const char *what, const void *p, size_t bytes)
{
	const struct fake_memory *m = &d->memory;

	if (fake_block_contains(fake_block_find(d->hosts, p), p, bytes) ||
	    fake_block_contains(fake_block_find(m->blocks, p), p, bytes))
		return CT_OK;
	if (m->base && (const char *)p >= m->base && (const char *)p < m->base + m->total)
		return CT_FAIL(CT_BUG, "%s [%zu bytes] is not inside one block of device memory", what, bytes);
	return CT_FAIL(CT_BUG, "%s [%zu bytes] is neither device memory nor memory from ct_device_host_alloc", what,
		       bytes);
}

/* ---- copies from host memory */

/* Any change of a single 8-byte word changes this sum. */
static uint64_t source_sum(const struct lazy_work *w)
{
	const char *p = w->move.src;
	uint64_t sum = w->move.bytes, word;

	for (size_t left = w->move.bytes; left > 0; p += sizeof(word)) {
		size_t n = left < sizeof(word) ? left : sizeof(word);

		word = 0;
		memcpy(&word, p, n);
		sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
		sum ^= sum >> 32;
		left -= n;
	}
	return sum;
}

void ct__lazy_source_waits(struct lazy_work *w)
{
	struct lazy_device *d = w->device;

	if (w->kind != LAZY_COPY || !fake_block_find(d->hosts, w->move.src) || w->n_waiting++ > 0)
		return;
	w->source_sum = source_sum(w);
	w->next = d->sources;
	d->sources = w;
}

static void stop_waiting(struct lazy_work *w)
{
	struct lazy_work **link = &w->device->sources;

	while (*link && *link != w)
		link = &(*link)->next;
	if (*link)
		*link = w->next;
	w->n_waiting = 0;
}

static enum ct_status check_sources(const struct lazy_device *d)
{
	for (const struct lazy_work *w = d->sources; w; w = w->next) {
		if (source_sum(w) != w->source_sum) {
			CT_FAIL(CT_BUG, "host memory changed while a posted copy was waiting (%zu bytes at %p)",
				w->move.bytes, w->move.src);
			return ct_error_hint(
				"record an event after the copy, and wait for it before the memory is changed");
		}
	}
	return CT_OK;
}

/* ---- work */

static enum ct_status take_work(ct_stream *s, enum lazy_kind kind, struct lazy_work **out)
{
	struct lazy_device *d = (struct lazy_device *)s->device;
	struct lazy_work *w = d->unused;

	/* Structs are reused, so that a loop of posts and waits allocates nothing after its first iteration. */
	CT_TRY(ct__lazy_reserve(d, 1, 0));
	if (w)
		d->unused = w->next;
	else
		CT_TRY_ALLOC(w = CT_NEW(struct lazy_work));
	memset(w, 0, sizeof(*w));
	w->base.refs = 1;
	w->device = d;
	w->kind = kind;
	*out = w;
	return CT_OK;
}

void fake_work_free(struct fake_work *base)
{
	struct lazy_work *w = (struct lazy_work *)base;

	if (w->n_waiting > 0)
		stop_waiting(w);
	if (w->kind == LAZY_EVENT)
		w->event->n_recorded--;
	w->next = w->device->unused;
	w->device->unused = w;
}

static void post(ct_stream *base, struct lazy_work *w)
{
	struct fake_stream *s = &((struct lazy_stream *)base)->queue;

	if (s->capture) {
		fake_capture_work(s, &w->base);
		return;
	}
	ct__lazy_source_waits(w);
	fake_post_work(s, &w->base);
}

static enum ct_status call(struct lazy_device *d, struct lazy_work *w)
{
	enum ct_status st = CT_OK;

	switch (w->kind) {
	case LAZY_CALL:
		d->running = true;
		st = w->call.fn(w->call.args);
		d->running = false;
		break;
	case LAZY_COPY:
		memcpy(w->move.dst, w->move.src, w->move.bytes);
		if (w->n_waiting > 0 && --w->n_waiting == 0)
			stop_waiting(w);
		break;
	case LAZY_FILL:
		memset(w->move.dst, w->move.byte, w->move.bytes);
		break;
	case LAZY_EVENT:
		break;
	}
	return st;
}

int fake_run(struct fake_stream *s, struct fake_work *base)
{
	struct lazy_device *d = s->machine->owner;
	enum ct_status st = check_sources(d);

	if (st == CT_OK)
		st = call(d, (struct lazy_work *)base);
	/* Posted work may change host memory that a waiting copy reads. */
	for (struct lazy_work *w = d->sources; st >= 0 && w; w = w->next)
		w->source_sum = source_sum(w);
	return st == CT_INPROGRESS ? FAKE_NOT_READY : st;
}

enum ct_status ct__lazy_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_work *w;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_range_check(d, "the destination of a copy", dst, bytes));
	CT_TRY(ct__lazy_range_check(d, "the source of a copy", src, bytes));
	if ((uintptr_t)dst < (uintptr_t)src + bytes && (uintptr_t)src < (uintptr_t)dst + bytes)
		return CT_FAIL(CT_BUG, "source and destination of a copy of %zu bytes overlap", bytes);
	CT_TRY(take_work(s, LAZY_COPY, &w));
	w->move.dst = dst;
	w->move.src = src;
	w->move.bytes = bytes;
	post(s, w);
	return CT_OK;
}

enum ct_status ct__lazy_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_work *w;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_range_check(d, "the destination of a fill", dst, bytes));
	CT_TRY(take_work(s, LAZY_FILL, &w));
	w->move.dst = dst;
	w->move.bytes = bytes;
	w->move.byte = byte;
	post(s, w);
	return CT_OK;
}

enum ct_status ct__lazy_stream_run(ct_stream *s, ct_stream_fn fn, const void *args, size_t bytes)
{
	struct lazy_work *w;

	CT_TRY(ct__lazy_enter((struct lazy_device *)s->device));
	CT_TRY(take_work(s, LAZY_CALL, &w));
	w->call.fn = fn;
	if (bytes > 0)
		memcpy(w->call.args, args, bytes);
	post(s, w);
	return CT_OK;
}

/* ---- streams and events */

enum ct_status ct__lazy_stream_create(ct_device *base, bool high_priority, ct_stream **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct lazy_stream *s;

	(void)high_priority;
	CT_TRY(ct__lazy_enter(d));
	CT_TRY_ALLOC(s = CT_NEW(struct lazy_stream));
	s->base.device = base;
	fake_stream_add(&d->machine, &s->queue, 0);
	*out = &s->base;
	return CT_OK;
}

void ct__lazy_stream_destroy(ct_stream *base)
{
	struct lazy_stream *s = (struct lazy_stream *)base;

	CT_ASSERT(!s->queue.capture); /* destroyed during a recording that it belongs to */
	ct__lazy_drain((struct lazy_device *)base->device, &(struct fake_target){.stream = &s->queue});
	fake_stream_remove(&s->queue);
	ct_free(s);
}

enum ct_status ct__lazy_stream_wait_event(ct_stream *base, ct_event *event)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_stream *s = (struct lazy_stream *)base;
	struct lazy_event *e = (struct lazy_event *)event;

	CT_TRY(ct__lazy_enter(d));
	if (!e->last.moment && !e->last.capture_id)
		return CT_OK; /* never recorded */
	if (s->queue.capture || e->last.capture_id)
		return ct__lazy_recording_join(d, s, e);
	CT_TRY(ct__lazy_reserve(d, 1, 0));
	fake_post_wait(&s->queue, e->last.moment);
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
	fake_event_release(&e->last);
	d->n_events--;
	ct_free(e);
}

/* Adds a node that records the event each time the recording is posted. */
static enum ct_status record_later(struct lazy_event *e, ct_stream *s)
{
	struct lazy_work *w;

	CT_TRY(take_work(s, LAZY_EVENT, &w));
	w->base.kind = FAKE_EVENT_RECORD;
	w->base.event = &e->last;
	w->event = e;
	e->n_recorded++;
	post(s, w);
	return CT_OK;
}

enum ct_status ct__lazy_event_record(ct_event *base, ct_stream *s)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_event *e = (struct lazy_event *)base;
	struct fake_stream *queue = &((struct lazy_stream *)s)->queue;

	CT_TRY(ct__lazy_enter(d));
	CT_TRY(ct__lazy_reserve(d, 1, 1));
	if (queue->capture && base->timed)
		return record_later(e, s);
	if (queue->capture)
		fake_capture_record(queue, &e->last);
	else
		fake_post_record(queue, &e->last);
	return CT_OK;
}

enum ct_status ct__lazy_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns)
{
	const struct fake_moment *a = ((const struct lazy_event *)from)->last.moment;
	const struct fake_moment *b = ((const struct lazy_event *)to)->last.moment;

	CT_TRY(ct__lazy_enter((struct lazy_device *)from->device));
	if (!a || !b || !a->reached || !b->reached)
		return CT_FAIL(CT_BUG, "the time between two events was requested before the host waited for them");
	*ns = b->ns - a->ns;
	return CT_OK;
}
