/* Recordings of the lazy device: posted work that is stored and can be posted again. */
#include "base/mem.h"
#include "tests/lazy/lazy_impl.h"

enum ct_status ct__lazy_recording_spoil(struct lazy_device *d, const char *what)
{
	enum ct_status st = CT_FAIL(CT_BUG, "%s during a recording", what);

	if (d->recording->spoiled.status == CT_OK)
		ct_error_save(&d->recording->spoiled);
	return st;
}

enum ct_status ct__lazy_recording_begin(ct_stream *base)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_stream *s = (struct lazy_stream *)base;
	struct lazy_recording *r;

	CT_TRY(ct__lazy_enter_unrecorded(d, "another recording was begun"));
	CT_TRY_ALLOC(r = CT_NEW(struct lazy_recording));
	r->base.device = &d->base;
	r->id = ++d->recording_id;
	r->origin = s;
	r->end = &r->first;
	s->recorded = true;
	s->lane = NULL;
	d->recording = r;
	d->n_recordings++;
	return CT_OK;
}

void ct__lazy_recording_add(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op)
{
	struct lazy_recording *r = d->recording;

	op->lane = s->lane;
	*r->end = op;
	r->end = &op->next;
}

static enum ct_status add_lane(struct lazy_device *d, struct lazy_stream *s)
{
	ct_stream *lane;

	CT_TRY(ct__lazy_stream_create(&d->base, false, &lane));
	s->recorded = true;
	s->lane = (struct lazy_stream *)lane;
	s->lane->owner = d->recording;
	return CT_OK;
}

enum ct_status ct__lazy_recording_join(struct lazy_device *d, struct lazy_stream *s, const struct lazy_moment *m)
{
	if (s->recorded && !m->recording)
		return ct__lazy_recording_spoil(d, "a recorded stream waited for an event from outside");
	if (s->recorded && m->recording != d->recording->id)
		return ct__lazy_recording_spoil(d, "a recorded stream waited for an event of another recording");
	if (!d->recording || m->recording != d->recording->id)
		return CT_FAIL(CT_BUG, "a stream waits for an event of a recording that has ended");
	return s->recorded ? CT_OK : add_lane(d, s);
}

/* ---- end of a recording */

static struct lazy_op *reversed(struct lazy_op *op)
{
	struct lazy_op *head = NULL;

	while (op) {
		struct lazy_op *next = op->next;

		op->next = head;
		head = op;
		op = next;
	}
	return head;
}

/* Visits an operation; later operations are visited first. The operations before it in its stream, and those before
 * an event that it waits for, are visited later. Returns false if the origin does not wait for this work. */
static bool visit(struct lazy_op *op)
{
	bool joined = !op->lane || op->lane->joined;

	if (op->kind == LAZY_RECORD && !op->event) {
		if (op->moment->awaited && op->lane)
			op->lane->joined = true;
		return true;
	}
	if (op->kind == LAZY_WAIT) {
		op->moment->awaited |= joined;
		return true;
	}
	return joined;
}

static enum ct_status check_joined(struct lazy_recording *r)
{
	struct lazy_op *last = reversed(r->first);
	bool joined = true;

	for (struct lazy_op *op = last; op; op = op->next)
		joined &= visit(op);
	r->first = reversed(last);
	return joined ? CT_OK
		      : CT_FAIL(CT_BUG, "a recording ended before its stream was made to wait for all work of the "
					"streams that joined");
}

static void free_recording(struct lazy_device *d, struct lazy_recording *r)
{
	while (r->first) {
		struct lazy_op *op = r->first;

		r->first = op->next;
		ct__lazy_op_free(d, op);
	}
	ct__lazy_moment_drop(d, r->last);
	for (struct lazy_stream **place = &d->streams; *place;) {
		struct lazy_stream *s = *place;

		if (s->owner != r) {
			place = &s->next;
			continue;
		}
		*place = s->next;
		ct_free(s);
	}
	d->n_recordings--;
	ct_free(r);
}

enum ct_status ct__lazy_recording_end(ct_stream *base, ct_recording **out)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_recording *r = d->recording;
	enum ct_status st = ct__lazy_enter(d);

	if (st < 0 && !d->failed)
		return st;
	if (!r || &r->origin->base != base)
		return CT_FAIL(CT_BUG, "no recording was begun on the stream on which ct_recording_end was called");
	d->recording = NULL;
	for (struct lazy_stream *s = d->streams; s; s = s->next)
		s->recorded = false;
	if (st == CT_OK && r->spoiled.status < 0)
		st = ct_error_restore(&r->spoiled);
	if (st == CT_OK)
		st = check_joined(r);
	if (st < 0) {
		free_recording(d, r);
		return st;
	}
	*out = &r->base;
	return CT_OK;
}

/* ---- posting a recording */

/* Memory that the recording uses may have been freed since it was recorded. */
static enum ct_status check_ranges(const struct lazy_device *d, const struct lazy_recording *r)
{
	for (const struct lazy_op *op = r->first; op; op = op->next) {
		if (op->kind == LAZY_COPY)
			CT_TRY(ct__lazy_range_check(d, "the source of a recorded copy", op->move.src, op->move.bytes));
		if (op->kind == LAZY_COPY || op->kind == LAZY_FILL)
			CT_TRY(ct__lazy_range_check(d, "the destination of a recorded copy or fill", op->move.dst,
						    op->move.bytes));
	}
	return CT_OK;
}

/* The moments of the copy belong to this post. In a copy, `event` is only a note for append_copies. */
static enum ct_status copy_op(struct lazy_device *d, const struct lazy_op *op, struct lazy_stream *s,
			      struct lazy_op **out)
{
	struct lazy_moment *m = NULL;
	struct lazy_op *copy;
	enum ct_status st;

	if (op->kind == LAZY_RECORD)
		CT_TRY(ct__lazy_moment_take(d, op->lane ? op->lane : s, &m));
	st = ct__lazy_op_take(d, op->kind, &copy);
	if (st < 0) {
		ct__lazy_moment_drop(d, m);
		return st;
	}
	*copy = *op;
	copy->next = NULL;
	if (op->kind == LAZY_RECORD) {
		copy->moment = m;
		if (op->event)
			op->event->n_recorded++;
		else
			op->moment->again = m;
	} else if (op->kind == LAZY_WAIT) {
		copy->moment = op->moment->again;
		copy->moment->n_refs++;
	}
	*out = copy;
	return CT_OK;
}

static void append_copies(struct lazy_device *d, struct lazy_op *copy, struct lazy_stream *s)
{
	while (copy) {
		struct lazy_op *next = copy->next;

		copy->next = NULL;
		if (copy->event) {
			ct__lazy_event_set(d, copy->event, copy->moment);
			copy->event->n_recorded--;
			copy->event = NULL;
		}
		ct__lazy_op_append(d, copy->lane ? copy->lane : s, copy);
		copy = next;
	}
}

/* Appends an operation to the list *end: one that reaches a new moment, or one that waits for m. */
static enum ct_status add_edge(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m,
			       struct lazy_op **end)
{
	const struct lazy_op record = {.kind = LAZY_RECORD, .moment = &(struct lazy_moment){0}};
	const struct lazy_op wait = {.kind = LAZY_WAIT, .moment = &(struct lazy_moment){.again = m}};

	return copy_op(d, m ? &wait : &record, s, end);
}

static enum ct_status copy_all(struct lazy_device *d, struct lazy_recording *r, struct lazy_stream *s,
			       struct lazy_op **first, struct lazy_op **last)
{
	struct lazy_op **end = first;

	if (r->last) {
		CT_TRY(add_edge(d, s, r->last, end));
		end = &(*end)->next;
	}
	for (const struct lazy_op *op = r->first; op; op = op->next) {
		CT_TRY(copy_op(d, op, s, end));
		end = &(*end)->next;
	}
	CT_TRY(add_edge(d, s, NULL, end));
	*last = *end;
	return CT_OK;
}

enum ct_status ct__lazy_recording_post(ct_recording *base, ct_stream *to)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_recording *r = (struct lazy_recording *)base;
	struct lazy_stream *s = (struct lazy_stream *)to;
	struct lazy_op *first = NULL, *last;

	CT_TRY(ct__lazy_enter(d));
	if (s->recorded)
		return ct__lazy_recording_spoil(d, "a recording was posted to a recorded stream");
	CT_TRY(check_ranges(d, r));
	if (copy_all(d, r, s, &first, &last) < 0) {
		while (first) {
			struct lazy_op *op = first;

			first = op->next;
			ct__lazy_op_free(d, op);
		}
		return CT_NOMEM;
	}
	ct__lazy_moment_drop(d, r->last);
	r->last = last->moment;
	r->last->n_refs++;
	append_copies(d, first, s);
	return CT_OK;
}

void ct__lazy_recording_destroy(ct_recording *base)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_recording *r = (struct lazy_recording *)base;

	if (r->last && !r->last->reached)
		ct__lazy_drain(d, NULL, r->last);
	free_recording(d, r);
}
