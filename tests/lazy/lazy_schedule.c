/* Chooses the stream of the lazy device that gets the next turn, and runs its work. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/lazy/lazy_impl.h"

#define DRAIN_NS (10 * CT_SEC)

/* What the host waits for: the moment if there is one, else the stream if there is one, else all streams. */
struct target {
	struct lazy_stream *stream;
	struct lazy_moment *moment;
};

/* The error chain of this thread becomes the device's error. Posted work is dropped. */
static enum ct_status fail_device(struct lazy_device *d, enum ct_status st)
{
	if (ct_error_status() != st)
		(void)CT_FAIL(st, "posted work failed: %s", ct_status_text(st));
	ct_error_save(&d->error);
	d->failed = true;
	for (struct lazy_stream *s = d->streams; s; s = s->next) {
		while (s->first)
			ct__lazy_op_drop(d, s);
	}
	return st;
}

static bool has_work(const struct lazy_device *d)
{
	for (const struct lazy_stream *s = d->streams; s; s = s->next) {
		if (s->first)
			return true;
	}
	return false;
}

static bool is_done(const struct lazy_device *d, const struct target *t)
{
	if (t->moment)
		return t->moment->reached;
	return t->stream ? !t->stream->first : !has_work(d);
}

static bool is_blocked(const struct lazy_stream *s)
{
	return s->first->kind == LAZY_WAIT && !s->first->moment->reached;
}

/* Returns one of the streams that can continue, each with the same probability, or NULL if there is none. */
static struct lazy_stream *draw_stream(struct lazy_device *d, bool held_too)
{
	struct lazy_stream *chosen = NULL;
	uint32_t n = 0;

	for (struct lazy_stream *s = d->streams; s; s = s->next) {
		if (s->first && !is_blocked(s) && !s->unfinished && (held_too || !s->held) &&
		    ct_rng_below(&d->rng, ++n) == 0)
			chosen = s;
	}
	return chosen;
}

/* Returns a stream that must run before t is done. There always is one: an event is recorded before a stream is made
 * to wait for it, so streams cannot wait for each other in a cycle. */
static struct lazy_stream *needed_for(struct lazy_device *d, const struct target *t)
{
	struct lazy_stream *s = t->moment ? t->moment->stream : t->stream;
	uint32_t n = 0;

	for (struct lazy_stream *any = d->streams; !t->moment && !t->stream && any; any = any->next) {
		if (any->first && ct_rng_below(&d->rng, ++n) == 0)
			s = any;
	}
	while (is_blocked(s))
		s = s->first->moment->stream;
	return s;
}

static struct lazy_stream *next_stream(struct lazy_device *d, const struct target *t)
{
	struct lazy_stream *s = draw_stream(d, false);

	if (s)
		return s;
	s = needed_for(d, t);
	s->held = false;
	/* Unfinished work may need any other work, because another rank may be waiting for that work. */
	return s->unfinished ? draw_stream(d, true) : s;
}

/* Draws the number of operations of a turn: often one, sometimes a few, sometimes all. */
static uint32_t draw_length(struct lazy_device *d)
{
	switch (ct_rng_below(&d->rng, 4)) {
	case 0:
		return UINT32_MAX;
	case 1:
		return 2 + ct_rng_below(&d->rng, 8);
	default:
		return 1;
	}
}

static enum ct_status check_sources(const struct lazy_device *d)
{
	for (const struct lazy_op *op = d->sources; op; op = op->next_source) {
		if (ct__lazy_source_sum(op) != op->source_sum) {
			(void)CT_FAIL(CT_BUG, "host memory changed while a posted copy was waiting (%zu bytes at %p)",
				      op->move.bytes, op->move.src);
			ct_error_hint("record an event after the copy, and wait for it before the memory is changed");
			return CT_BUG;
		}
	}
	return CT_OK;
}

static enum ct_status call(struct lazy_device *d, struct lazy_op *op)
{
	enum ct_status st = CT_OK;

	switch (op->kind) {
	case LAZY_RUN:
		d->running = true;
		st = op->run.fn(op->run.args);
		d->running = false;
		break;
	case LAZY_COPY:
		memcpy(op->move.dst, op->move.src, op->move.bytes);
		break;
	case LAZY_FILL:
		memset(op->move.dst, op->move.byte, op->move.bytes);
		break;
	case LAZY_RECORD:
		op->moment->at_ns = ct_now_ns();
		op->moment->reached = true;
		break;
	case LAZY_WAIT:
		break;
	}
	return st;
}

/* Runs the first operation of s. */
static enum ct_status run_one(struct lazy_device *d, struct lazy_stream *s)
{
	enum ct_status st;

	CT_TRY(check_sources(d));
	st = call(d, s->first);
	/* Posted work may change host memory that a waiting copy reads. */
	for (struct lazy_op *op = d->sources; op; op = op->next_source)
		op->source_sum = ct__lazy_source_sum(op);
	if (st == CT_OK) {
		ct__lazy_op_drop(d, s);
		for (struct lazy_stream *other = d->streams; other; other = other->next)
			other->unfinished = false;
	}
	return st;
}

static enum ct_status run_turn(struct lazy_device *d, struct lazy_stream *s)
{
	for (uint32_t n = draw_length(d); n > 0 && s->first && !is_blocked(s); n--) {
		enum ct_status st = run_one(d, s);

		if (st < 0)
			return fail_device(d, st);
		if (st == CT_INPROGRESS) {
			s->unfinished = true;
			break;
		}
	}
	return CT_OK;
}

static enum ct_status run_until(struct lazy_device *d, const struct target *t, int64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = 20000};

	while (!is_done(d, t)) {
		struct lazy_stream *s = next_stream(d, t);

		if (s) {
			CT_TRY(run_turn(d, s));
		} else {
			nanosleep(&pause, NULL);
			for (s = d->streams; s; s = s->next)
				s->unfinished = false;
		}
		/* This check comes after a turn, so that waits with a deadline in the past make progress, too. */
		if (deadline_ns != CT_FOREVER && !is_done(d, t) && ct_now_ns() >= deadline_ns)
			return CT_FAIL(CT_TIMEOUT, "the work that was posted to a lazy device did not finish in time");
	}
	for (uint32_t n = ct_rng_below(&d->rng, 3); n > 0; n--) {
		struct lazy_stream *s = draw_stream(d, false);

		if (s)
			CT_TRY(run_turn(d, s));
	}
	return CT_OK;
}

/* Does what ct__lazy_wait does, without checking the caller. */
static enum ct_status wait_for(struct lazy_device *d, const struct target *t, int64_t deadline_ns)
{
	enum ct_status st;

	if (!has_work(d))
		return CT_OK;
	for (struct lazy_stream *s = d->streams; s; s = s->next) {
		s->held = s != t->stream && ct_rng_below(&d->rng, 2) == 0;
		s->unfinished = false;
	}
	CT_TRY(ct__lazy_memory_open(d));
	st = run_until(d, t, deadline_ns);
	if (!d->failed && ct__lazy_guards_check(d) < 0)
		st = fail_device(d, CT_BUG);
	ct__lazy_memory_close(d);
	d->reported |= d->failed;
	return st;
}

enum ct_status ct__lazy_wait(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m, int64_t deadline_ns)
{
	const struct target t = {.stream = s, .moment = m};

	CT_TRY(ct__lazy_enter_unrecorded(d, "the host waited"));
	return wait_for(d, &t, deadline_ns);
}

void ct__lazy_drain(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m)
{
	const struct target t = {.stream = s, .moment = m};
	bool keep = ct_error_status() < 0;
	struct ct_error before;

	CT_ASSERT(!d->running);                              /* posted work must not free memory or destroy a stream */
	CT_ASSERT(pthread_equal(d->thread, pthread_self())); /* only one thread may use the device */
	if (keep)
		ct_error_save(&before);
	if (d->recording)
		(void)ct__lazy_recording_spoil(d, "memory was freed, or a stream or recording destroyed,");
	if (!d->failed && !is_done(d, &t) && wait_for(d, &t, ct_deadline_in(DRAIN_NS)) < 0) {
		if (!d->failed)
			(void)fail_device(d, ct_error_status());
		d->reported = false;
	}
	if (keep)
		(void)ct_error_restore(&before);
	else
		ct_error_clear();
}
