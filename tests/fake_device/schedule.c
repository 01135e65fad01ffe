/* Chooses the stream that has the next turn while the host waits. A missing event is found only if the stream that
 * should have waited runs too early, or the one that should have been waited for too late. Therefore half of the
 * streams, drawn for each wait, are held back: they run only if what the host waits for needs their work. Each of the
 * others is chosen with the same probability, for one operation. */
#include "tests/fake_device/fake_device.h"

static bool is_blocked(const struct fake_stream *s)
{
	return s->first->kind == FAKE_OP_WAIT && !s->first->moment->reached;
}

static bool can_go(const struct fake_stream *s)
{
	return s->first && !s->busy && !s->stalled && !is_blocked(s);
}

static bool has_work(const struct fake_machine *m, int device)
{
	for (int i = 0; i < m->n_streams; i++) {
		if (m->streams[i]->device == device && m->streams[i]->first)
			return true;
	}
	return false;
}

bool fake_is_done(const struct fake_machine *m, const struct fake_target *t)
{
	if (t->moment)
		return t->moment->reached;
	return t->stream ? !t->stream->first : !has_work(m, t->device);
}

/* A thread may still be inside the first operation of a busy stream. */
void fake_drop_work(struct fake_machine *m, int device)
{
	for (int i = 0; i < m->n_streams; i++) {
		struct fake_stream *s = m->streams[i];

		while (s->device == device && s->first && !s->busy) {
			if (s->first->kind == FAKE_OP_RECORD)
				fake_moment_reach(s->first->moment);
			fake_pop(s);
		}
	}
}

/* One of the streams that can continue, each with the same probability, or NULL if there is none. */
static struct fake_stream *draw_stream(struct fake_machine *m, bool held_too)
{
	struct fake_stream *chosen = NULL;
	unsigned n = 0;

	for (int i = 0; i < m->n_streams; i++) {
		struct fake_stream *s = m->streams[i];

		if (can_go(s) && (held_too || !s->held) && fake_draw(m, ++n) == 0)
			chosen = s;
	}
	return chosen;
}

/* A stream that must run before t is done. There always is one: an event is recorded before a stream is made to wait
 * for it, so streams cannot wait for each other in a cycle. */
static struct fake_stream *needed_for(struct fake_machine *m, const struct fake_target *t)
{
	struct fake_stream *s = t->moment ? t->moment->stream : t->stream;
	unsigned n = 0;

	for (int i = 0; !s && i < m->n_streams; i++) {
		if (m->streams[i]->device == t->device && m->streams[i]->first && fake_draw(m, ++n) == 0)
			s = m->streams[i];
	}
	for (int i = 0; s->first && is_blocked(s); i++) {
		if (i > m->n_streams)
			fake_fail("streams wait for each other");
		s = s->first->moment->stream;
	}
	return s;
}

static struct fake_stream *next_stream(struct fake_machine *m, const struct fake_target *t)
{
	struct fake_stream *s = draw_stream(m, false);

	if (s)
		return s;
	s = needed_for(m, t);
	s->held = false;
	/* Work that is not ready may need any other work, because another rank may be waiting for that work. */
	return can_go(s) ? s : draw_stream(m, true);
}

static void clear_stalled(struct fake_machine *m)
{
	for (int i = 0; i < m->n_streams; i++)
		m->streams[i]->stalled = false;
}

/* Runs the first operation of s, or one node of a graph. */
static void run_one(struct fake_machine *m, struct fake_stream *s)
{
	bool done = true;
	int error = 0;

	s->busy = true;
	switch (s->first->kind) {
	case FAKE_OP_RECORD:
		fake_moment_reach(s->first->moment);
		break;
	case FAKE_OP_WAIT:
		break;
	case FAKE_OP_WORK:
		error = fake_run(s, s->first->work);
		break;
	case FAKE_OP_LAUNCH:
		error = fake_launch_step(s->first->launch, s, &done);
		break;
	}
	s->busy = false;
	if (error == FAKE_NOT_READY) {
		s->stalled = true;
		return;
	}
	clear_stalled(m);
	if (done || error)
		fake_pop(s);
	if (error) {
		fake_failed(s, error);
		fake_drop_work(m, s->device);
	}
}

static void hold_back(struct fake_machine *m, const struct fake_stream *wanted)
{
	for (int i = 0; i < m->n_streams; i++)
		m->streams[i]->held = fake_draw(m, 2) && m->streams[i] != wanted;
	clear_stalled(m);
}

bool fake_wait(struct fake_machine *m, const struct fake_target *t, int64_t deadline_ns)
{
	bool done;

	if (t->moment)
		fake_moment_keep(t->moment);
	hold_back(m, t->stream);
	while (!(done = fake_is_done(m, t))) {
		struct fake_stream *s = next_stream(m, t);

		if (s) {
			run_one(m, s);
		} else {
			fake_pause(m);
			clear_stalled(m);
		}
		if (deadline_ns != FAKE_FOREVER && !(done = fake_is_done(m, t)) && fake_now_ns() >= deadline_ns)
			break;
	}
	fake_moment_drop(t->moment);
	return done;
}

void fake_progress(struct fake_machine *m)
{
	struct fake_stream *s;
	unsigned n = fake_draw(m, 4) ? fake_draw(m, 64) : 0;

	hold_back(m, NULL);
	for (; n > 0; n--) {
		s = draw_stream(m, false);
		if (!s)
			s = draw_stream(m, true);
		if (!s)
			break;
		run_one(m, s);
	}
	clear_stalled(m);
}
