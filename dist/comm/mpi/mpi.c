/* The mpi communicator. It has no thread: posting an operation starts its messages, and test, progress and wait
 * continue it. If all ranks post a small collective at the same time, it is done when post returns. MPI itself makes
 * progress only during its calls, so a thread would have to compete with the computation for a CPU. All waiting is
 * polling with a deadline, of MPI_Testall, and of rings (rings.h) for short messages on one host: an MPI call that
 * waits would never return if a rank is lost. Tags contain a digest of the operation, so that messages of different
 * operations never match, and diagnose_impl.h finds out which rank issued another operation. After a failure, MPI is
 * not used any more, and MPI_Finalize is not called: it would wait for ranks that have ended. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "dist/comm/diagnose_impl.h"
#include "dist/comm/mpi/mpi_impl.h"
#include "dist/comm/mpi/mpi_load.h"

/* MPI_Init may take longer than a collective; all ranks have joined the run before. */
#define OPEN_NS (60 * CT_SEC)
/* A wait that takes longer than this looks for the reason, then again at increasing intervals. */
#define DIAGNOSE_NS CT_SEC
/* A wait polls continuously at first, then lets other threads run between polls, then sleeps between polls. At first it
 * also makes many calls of MPI at once and does not look at the clock, because a small operation takes less than a
 * microsecond. */
#define EAGER_POLLS 32
#define CALLS_PER_EAGER_POLL 32
/* Posting a small collective also makes this many calls, which is enough if all ranks post it at the same time. Then no
 * time passes with a second lock, the deadline, and the time at which it was done. */
#define CALLS_AT_START 64
/* After this many calls that post or continue operations, MPI is called once, so that it makes progress even if only
 * rings are in use. */
#define CALLS_PER_PROGRESS 64
#define YIELD_NS (2 * CT_MS)
#define SLEEP_NS (100 * 1000)

/* The low bits of a tag of a collective: the number of the piece, which distinguishes the pieces in the window of any
 * rank, and the phase. */
#define PIECE_TAGS 4
#define COLLECTIVE_TAGS (2 * PIECE_TAGS)
/* The low bits of a tag of a message contain its own tag. */
#define MESSAGE_TAGS 4096

/* ---- opening */

static void close_comm(ct_comm *c)
{
	struct comm_mpi *m = (struct comm_mpi *)c;
	struct ct_error closed = {.status = CT_CANCELLED, .message = "communicator was closed"};
	bool failed;

	if (m->head || m->first_message)
		ct__comm_die_of(c, &closed);
	failed = atomic_load(&c->dead);
	/* After a failure MPI may still use the requests. */
	for (int i = 0; i < WINDOW; i++) {
		if (!m->slots[i].work)
			ct__mpi_exchange_put(m->slots[i].exchange);
		if (!m->slots[i].work)
			ct_free_aligned(m->slots[i].piece.scratch);
		ct_free(m->slots[i].piece.inputs);
	}
	ct__mpi_exchanges_close(m->exchanges);
	ct__rings_close(m->rings);
	ct_free(m->messages);
	ct_free(m->n_sent);
	if (m->engine)
		m->module->close(m->engine, failed);
	ct__comm_release(c);
	ct_free(m);
}

static enum ct_status prepare_slots(struct comm_mpi *m)
{
	int size = m->base.size;
	size_t max = 2 * (size_t)(size - 1);

	CT_TRY_ALLOC(m->messages = CT_NEW_ARRAY(struct ct_mpi_message, max));
	CT_TRY_ALLOC(m->n_sent = CT_NEW_ARRAY(uint8_t, (size_t)size));
	for (int i = 0; i < WINDOW; i++) {
		struct ct_mpi_piece *p = &m->slots[i].piece;

		p->rank = m->base.rank;
		p->size = size;
		CT_TRY_ALLOC(p->scratch = ct_calloc_aligned(4096, ct__mpi_scratch_bytes(size)));
		CT_TRY_ALLOC(p->inputs = CT_NEW_ARRAY(void *, (size_t)size));
		CT_TRY(ct__mpi_exchange_take(m->exchanges, max, &m->slots[i].exchange));
	}
	return CT_OK;
}

static enum ct_status open_comm(struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	struct comm_mpi *m;
	enum ct_status st;
	int64_t limit;

	CT_TRY_ALLOC(m = CT_NEW(struct comm_mpi));
	CT_TRY_GOTO(ct__mpi_load(&m->module), st, fail);
	CT_TRY_GOTO(ct__comm_init(&m->base, &ct__comm_ops_mpi, world, opts), st, fail);
	limit = m->base.opts.timeout_ns > OPEN_NS ? m->base.opts.timeout_ns : OPEN_NS;
	CT_TRY_GOTO(m->module->open(m->base.rank, m->base.size, ct_deadline_in(limit), &m->engine), st, fail);
	m->n_tags = (uint64_t)m->module->tag_max(m->engine) + 1;
	CT_TRY_GOTO(ct__rings_open(&m->base, limit, &m->rings), st, fail);
	CT_TRY_GOTO(ct__mpi_exchanges_open(m->module, m->engine, m->rings, &m->exchanges), st, fail);
	CT_TRY_GOTO(prepare_slots(m), st, fail);
	/* If there are more ranks than CPUs, a rank that waits must let others run. */
	m->eager_polls = ct__rings_crowded(m->rings, &m->base) ? 0 : EAGER_POLLS;
	m->calls_at_start = ct__rings_crowded(m->rings, &m->base) ? 1 : CALLS_AT_START;
	*out = &m->base;
	return CT_OK;

fail:
	if (!m->base.ops) {
		ct_free(m);
		return st;
	}
	atomic_store(&m->base.dead, true); /* a rank may be lost, so nothing may wait for it */
	close_comm(&m->base);
	return st;
}

/* MPI may have reported a send as done although it has not passed all of its data on. */
static void let_mpi_progress(struct comm_mpi *m)
{
	if (++m->n_calls % CALLS_PER_PROGRESS == 0)
		m->module->progress(m->engine);
}

/* ---- collectives */

/* Starts the messages of a phase, and tests them up to `calls` times. Returns CT_OK if they are done, else
 * CT_INPROGRESS. */
static enum ct_status start_phase(struct comm_mpi *m, struct slot *s, int calls)
{
	size_t n = ct__mpi_phase_messages(&s->piece, m->messages);

	for (size_t i = 0; i < n; i++)
		m->messages[i].same_host = ct__comm_on_this_host(&m->base, m->messages[i].peer);
	return ct__mpi_exchange_start(s->exchange, CT_MPI_COLLECTIVES, s->tag + s->piece.phase, m->messages, n, calls);
}

/* st: whether the messages of the current phase of a piece are done. If so, continues the piece. */
static enum ct_status continue_piece(struct comm_mpi *m, struct slot *s, enum ct_status st)
{
	while (st == CT_OK) {
		ct__mpi_phase_finish(&s->piece);
		if (++s->piece.phase == ct__mpi_n_phases(&s->piece)) {
			s->work->scratch[FINISHED]++;
			s->work = NULL;
			return CT_OK;
		}
		st = start_phase(m, s, s->piece.small ? m->calls_at_start : 0);
	}
	return st < 0 ? st : CT_OK;
}

/* Starts pieces in the slots that are idle. posting: the operation that is being posted and that is not in the flight
 * record yet, or NULL. */
static enum ct_status start_pieces(struct comm_mpi *m, const ct_work *posting)
{
	while (m->starting && !m->slots[m->n_pieces % WINDOW].work) {
		struct slot *s = &m->slots[m->n_pieces % WINDOW];
		ct_work *w = m->starting;

		s->work = w;
		s->piece.work = w;
		s->tag = (int)w->scratch[TAG] + 2 * (int)(m->n_pieces % PIECE_TAGS);
		if (w->scratch[STARTED] == 0 && w != posting)
			ct__flight_begun(m->base.flight, w->seq, ct_now_ns());
		ct__mpi_piece_init(&s->piece, w->scratch[STARTED]++);
		m->n_pieces++;
		if (w->scratch[STARTED] == w->scratch[N_PIECES])
			m->starting = w->next;
		CT_TRY(continue_piece(m, s, start_phase(m, s, 0)));
	}
	return CT_OK;
}

void ct__mpi_set_done(ct_work *w, int64_t now_ns)
{
	ct__flight_done_at(w->comm->flight, w->seq, now_ns ? now_ns : ct_now_ns());
	atomic_store_explicit(&w->status, CT_OK, memory_order_release);
}

/* Ends the collectives of which all pieces are finished. now_ns: the time, or 0 if the caller has not read the clock.
 */
static void end_collectives(struct comm_mpi *m, int64_t now_ns)
{
	while (m->head && m->head->scratch[FINISHED] == m->head->scratch[N_PIECES]) {
		ct_work *w = m->head;

		m->head = w->next;
		if (!m->head)
			m->tail = NULL;
		ct__mpi_set_done(w, now_ns);
	}
}

static enum ct_status advance_collectives(struct comm_mpi *m, int calls, bool *moved)
{
	for (int i = 0; i < WINDOW; i++) {
		struct slot *s = &m->slots[i];
		enum ct_status st;

		if (!s->work)
			continue;
		st = ct__mpi_exchange_test(s->exchange, calls);
		*moved |= st == CT_OK;
		CT_TRY(continue_piece(m, s, st));
	}
	CT_TRY(start_pieces(m, NULL));
	end_collectives(m, 0);
	return CT_OK;
}

/* The operation is recorded after its messages have been started, because this takes about as long as a short message.
 */
static enum ct_status post_collective(struct comm_mpi *m, ct_work *w)
{
	enum ct_status st;
	struct slot *s;

	w->next = NULL;
	w->scratch[N_PIECES] = ct__mpi_n_pieces(w, m->base.size);
	w->scratch[STARTED] = w->scratch[FINISHED] = 0;
	if (m->tail)
		m->tail->next = w;
	else
		m->head = w;
	m->tail = w;
	if (!m->starting)
		m->starting = w;
	st = start_pieces(m, w);
	ct__comm_record(&m->base, w);
	CT_TRY(st);
	if (w->scratch[STARTED] > 0)
		ct__flight_begun(m->base.flight, w->seq, w->posted_ns);
	s = &m->slots[(m->n_pieces - 1) % WINDOW];
	if (s->work == w && s->piece.small)
		CT_TRY(continue_piece(m, s, ct__mpi_exchange_test(s->exchange, m->calls_at_start)));
	end_collectives(m, w->posted_ns);
	return CT_OK;
}

/* ---- all operations */

static enum ct_status post(ct_comm *c, ct_work *w)
{
	struct comm_mpi *m = (struct comm_mpi *)c;
	const uint64_t digest = ct__comm_tag(w);

	let_mpi_progress(m);
	if (!ct__comm_is_p2p(w->kind)) {
		w->scratch[TAG] = (digest * (m->n_tags / COLLECTIVE_TAGS) >> 32) * COLLECTIVE_TAGS;
		return post_collective(m, w);
	}
	if (w->tag < 0 || w->tag >= MESSAGE_TAGS) {
		ct__comm_record(c, w);
		return CT_FAIL(CT_BUG, "message tag %d is too large: communicator mpi supports tags up to %d", w->tag,
			       MESSAGE_TAGS - 1);
	}
	w->scratch[TAG] = (digest * (m->n_tags / MESSAGE_TAGS) >> 32) * MESSAGE_TAGS + (uint32_t)w->tag;
	return ct__mpi_post_message(m, w);
}

/* Continues everything that is under way; for each part, MPI is called up to `calls` times. */
static enum ct_status advance(struct comm_mpi *m, int calls, bool *moved)
{
	*moved = false;
	let_mpi_progress(m);
	CT_TRY(ct__mpi_advance_messages(m, calls, moved));
	return advance_collectives(m, calls, moved);
}

static enum ct_status progress(ct_comm *c)
{
	struct comm_mpi *m = (struct comm_mpi *)c;
	bool moved;

	return m->head || m->first_message ? advance(m, 1, &moved) : CT_OK;
}

static enum ct_status test(ct_comm *c, ct_work *w)
{
	CT_TRY(progress(c));
	return atomic_load_explicit(&w->status, memory_order_relaxed) == CT_OK ? CT_OK : CT_INPROGRESS;
}

static void rest(int64_t idle_ns)
{
	const struct timespec pause = {.tv_nsec = SLEEP_NS};

	if (idle_ns < YIELD_NS)
		sched_yield();
	else
		nanosleep(&pause, NULL);
}

/* The store may know which rank is late. */
static enum ct_status look(struct comm_mpi *m, const ct_work *w, bool final)
{
	enum ct_status st = ct__comm_diagnose(&m->base, w, final);

	if (st == CT_TIMEOUT)
		ct__comm_attribute_failure(&m->base, w);
	return st;
}

static enum ct_status wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	struct comm_mpi *m = (struct comm_mpi *)c;
	int64_t pause = c->opts.timeout_ns / 4 < DIAGNOSE_NS ? c->opts.timeout_ns / 4 : DIAGNOSE_NS;
	int64_t moved_ns = 0, look_ns = 0; /* 0: the clock has not been read since then */

	for (int polls = 0;; polls++) {
		int64_t now;
		bool moved;

		if (atomic_load_explicit(&c->dead, memory_order_acquire))
			return ct_error_restore(&c->error);
		CT_TRY(advance(m, polls < m->eager_polls ? CALLS_PER_EAGER_POLL : 1, &moved));
		if (atomic_load_explicit(&w->status, memory_order_relaxed) == CT_OK)
			return CT_OK;
		if (moved) {
			moved_ns = 0;
			polls = 0;
		}
		if (polls < m->eager_polls)
			continue;
		m->module->progress(m->engine);
		now = ct_now_ns();
		moved_ns = moved_ns ? moved_ns : now;
		look_ns = look_ns ? look_ns : now + pause;
		if (now >= look_ns || now >= deadline_ns) {
			CT_TRY(look(m, w, now >= deadline_ns));
			pause = pause < 16 * DIAGNOSE_NS ? pause * 2 : pause;
			look_ns = ct_now_ns() + pause;
		}
		rest(now - moved_ns);
	}
}

/* Waiting threads poll c->dead. */
static void abort_comm(ct_comm *c)
{
	(void)c;
}

const struct ct_comm_ops ct__comm_ops_mpi = {
	.name = "mpi",
	.supports = ct__mpi_supports,
	.open = open_comm,
	.close = close_comm,
	.post = post,
	.test = test,
	.wait = wait,
	.progress = progress,
	.cooperative = true,
	.records = true,
	.abort = abort_comm,
};
