/* Recordings of the lazy device: captures of the core, with the rules of base/device/device.h. */
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
	struct lazy_recording *r;

	CT_TRY(ct__lazy_enter_unrecorded(d, "another recording was begun"));
	CT_TRY_ALLOC(r = CT_NEW(struct lazy_recording));
	r->base.device = &d->base;
	fake_capture_begin(&r->capture, &((struct lazy_stream *)base)->queue);
	d->recording = r;
	d->n_recordings++;
	return CT_OK;
}

enum ct_status ct__lazy_recording_join(struct lazy_device *d, struct lazy_stream *s, const struct lazy_event *e)
{
	struct fake_capture *c = fake_capture_find(&d->machine, e->last.capture_id);

	if (s->queue.capture && !e->last.capture_id)
		return ct__lazy_recording_spoil(d, "a recorded stream waited for an event from outside");
	if (s->queue.capture && !c)
		return ct__lazy_recording_spoil(d, "a recorded stream waited for an event of another recording");
	if (!c)
		return CT_FAIL(CT_BUG, "a stream waits for an event of a recording that has ended");
	fake_capture_wait(c, &s->queue, &e->last);
	return CT_OK;
}

static void free_recording(struct lazy_device *d, struct lazy_recording *r)
{
	fake_graph_drop(r->capture.graph);
	fake_moment_drop(r->last);
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
	if (!r || r->capture.origin != &((struct lazy_stream *)base)->queue)
		return CT_FAIL(CT_BUG, "no recording was begun on the stream on which ct_recording_end was called");
	d->recording = NULL;
	const bool joined = fake_capture_end(&r->capture);
	if (st == CT_OK && r->spoiled.status < 0)
		st = ct_error_restore(&r->spoiled);
	if (st == CT_OK && !joined)
		st = CT_FAIL(CT_BUG, "a recording ended before its stream was made to wait for all work of the "
				     "streams that joined");
	if (st < 0) {
		free_recording(d, r);
		return st;
	}
	*out = &r->base;
	return CT_OK;
}

/* Memory that the recording uses may have been freed since it was recorded. */
static enum ct_status check_ranges(const struct lazy_device *d, const struct fake_graph *g)
{
	for (int i = 0; i < g->n_nodes; i++) {
		const struct lazy_work *w = (const struct lazy_work *)g->nodes[i].work;

		if (w->kind == LAZY_COPY)
			CT_TRY(ct__lazy_range_check(d, "the source of a recorded copy", w->move.src, w->move.bytes));
		if (w->kind == LAZY_COPY || w->kind == LAZY_FILL)
			CT_TRY(ct__lazy_range_check(d, "the destination of a recorded copy or fill", w->move.dst,
						    w->move.bytes));
	}
	return CT_OK;
}

static int n_events(const struct fake_graph *g)
{
	int n = 0;

	for (int i = 0; i < g->n_nodes; i++)
		n += g->nodes[i].work->kind == FAKE_EVENT_RECORD;
	return n;
}

enum ct_status ct__lazy_recording_post(ct_recording *base, ct_stream *to)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_recording *r = (struct lazy_recording *)base;
	struct fake_stream *s = &((struct lazy_stream *)to)->queue;
	struct fake_graph *g = r->capture.graph;

	CT_TRY(ct__lazy_enter(d));
	if (s->capture)
		return ct__lazy_recording_spoil(d, "a recording was posted to a recorded stream");
	CT_TRY(check_ranges(d, g));
	/* The launch, the wait for the one before, and its end; the end, and events that the recording records. */
	CT_TRY(ct__lazy_reserve(d, 3, 1 + n_events(g)));
	for (int i = 0; i < g->n_nodes; i++)
		ct__lazy_source_waits((struct lazy_work *)g->nodes[i].work);
	fake_launch(g, s, &r->last, 0);
	return CT_OK;
}

void ct__lazy_recording_destroy(ct_recording *base)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_recording *r = (struct lazy_recording *)base;

	if (r->last && !r->last->reached)
		ct__lazy_drain(d, &(struct fake_target){.moment = r->last});
	free_recording(d, r);
}
