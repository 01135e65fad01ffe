/* Sends and receives of the mpi communicator. A message that is not done at once is in a list, which test, progress and
 * wait continue. */
#include "base/mem.h"
#include "dist/comm/mpi/mpi_impl.h"

/* Posting a send of up to this size also continues the receive in front of it, if that is as small: ranks often
 * exchange messages. */
#define SMALL_MESSAGE_BYTES 4096
/* The library copies a short message and does not wait for the receiver. Every k-th send to a rank through MPI waits
 * until the receive is posted, so that a sender cannot send many messages that have not been received, and notices that
 * the receiver is late. Rings have a similar limit (CT_RING_LIMIT). */
#define SENDS_PER_WAIT 32
static struct ct_mpi_exchange *exchange_of(const ct_work *w)
{
	return (struct ct_mpi_exchange *)(uintptr_t)w->scratch[EXCHANGE];
}

static size_t bytes_of(const ct_work *w)
{
	return w->n * ct_dtype_bytes(w->dtype);
}

static bool must_wait(struct comm_mpi *m, int peer)
{
	m->n_sent[peer] = (uint8_t)((m->n_sent[peer] + 1) % SENDS_PER_WAIT);
	return m->n_sent[peer] == 0;
}

/* Returns CT_OK if the message is done. All parts of a long message are started at once, so that they stay in front of
 * the parts of the next one. */
static enum ct_status start_message(struct comm_mpi *m, ct_work *w)
{
	size_t bytes = bytes_of(w), n = bytes > CT_MPI_MESSAGE_MAX ? (bytes - 1) / CT_MPI_MESSAGE_MAX + 1 : 1;
	bool sending = w->kind == CT_COMM_SEND;
	bool synchronous = sending && !ct__mpi_exchange_in_ring(m->exchanges, w->root, bytes) && must_wait(m, w->root);
	char *buf = sending ? (char *)(uintptr_t)w->src : w->dst;
	struct ct_mpi_message one, *parts = &one;
	struct ct_mpi_exchange *x = NULL;
	enum ct_status st;

	if (n > 1)
		CT_TRY_ALLOC(parts = CT_NEW_ARRAY(struct ct_mpi_message, n));
	for (size_t i = 0; i < n; i++) {
		size_t from = i * CT_MPI_MESSAGE_MAX, left = bytes - from;

		parts[i] = (struct ct_mpi_message){.buf = buf + from,
						   .bytes = left < CT_MPI_MESSAGE_MAX ? left : CT_MPI_MESSAGE_MAX,
						   .peer = w->root,
						   .sending = sending,
						   .same_host = ct__comm_on_this_host(&m->base, w->root),
						   .synchronous = synchronous};
	}
	st = ct__mpi_exchange_take(m->exchanges, n, &x);
	if (st == CT_OK)
		st = ct__mpi_exchange_start(x, CT_MPI_MESSAGES, (int)w->scratch[TAG], parts, n, sending);
	w->scratch[EXCHANGE] = (uint64_t)(uintptr_t)x;
	if (n > 1)
		ct_free(parts);
	return st;
}

/* now_ns: the time, or 0 if the caller has not read the clock. */
static void end_message(ct_work *w, int64_t now_ns)
{
	ct__mpi_set_done(w, now_ns);
	ct__mpi_exchange_put(exchange_of(w));
}

/* Returns CT_INPROGRESS if the message that *link points to is not done. Otherwise removes it from the list. */
static enum ct_status advance_message(ct_work **link, int calls, int64_t now_ns)
{
	ct_work *w = *link;
	const enum ct_status st = ct__mpi_exchange_test(exchange_of(w), calls);

	if (st != CT_OK)
		return st;
	*link = w->next;
	end_message(w, now_ns);
	return CT_OK;
}

enum ct_status ct__mpi_advance_messages(struct comm_mpi *m, int calls, bool *moved)
{
	for (ct_work **link = &m->first_message; *link;) {
		ct_work *w = *link;
		const enum ct_status st = advance_message(link, calls, 0);

		CT_TRY(st);
		if (st == CT_OK)
			*moved = true;
		else
			link = &w->next;
	}
	return CT_OK;
}

enum ct_status ct__mpi_post_message(struct comm_mpi *m, ct_work *w)
{
	ct_work *before = m->first_message;
	const enum ct_status st = start_message(m, w);

	ct__comm_record(&m->base, w);
	CT_TRY(st);
	if (st != CT_OK) {
		w->next = before;
		m->first_message = w;
		return CT_OK;
	}
	end_message(w, w->posted_ns);
	if (before && w->kind == CT_COMM_SEND && before->kind == CT_COMM_RECV && bytes_of(w) <= SMALL_MESSAGE_BYTES &&
	    bytes_of(before) <= SMALL_MESSAGE_BYTES)
		CT_TRY(advance_message(&m->first_message, m->calls_at_start, w->posted_ns));
	return CT_OK;
}
