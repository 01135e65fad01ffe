/* Whether a message goes through a ring depends on its length and on the peer, which both sides know, so they decide in
 * the same way. Messages in rings are started before those of MPI, sends first, because another rank may already wait
 * for them. While both kinds are in progress, the rings are looked at several times between two calls of MPI, which
 * take much longer. Requests in rings are linked into lists of the rings, so an exchange must not move or end before
 * all of them are done. Exchanges for one message are reused, so that sending a message allocates nothing. */
#include "dist/comm/mpi/exchange.h"

#include "base/mem.h"

/* Polling a ring takes a few nanoseconds, much less than a call of MPI. */
#define LOOKS_PER_POLL 8

struct ct_mpi_exchange {
	struct ct_mpi_exchanges *all;
	struct ct_mpi_exchange *next; /* idle */
	struct ct_mpi_batch *batch;
	bool in_mpi;   /* the batch is not done */
	size_t n_ring; /* messages in rings, of which the first n_done are done */
	size_t n_done, max;
	struct ct_ring_request ring[]; /* [max] */
};

struct ct_mpi_exchanges {
	const struct ct_mpi_module *module;
	struct ct_mpi_engine *engine;
	struct ct_rings *rings;
	struct ct_mpi_exchange *idle; /* for one message */
};

enum ct_status ct__mpi_exchanges_open(const struct ct_mpi_module *module, struct ct_mpi_engine *engine,
				      struct ct_rings *rings, struct ct_mpi_exchanges **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(struct ct_mpi_exchanges));
	**out = (struct ct_mpi_exchanges){.module = module, .engine = engine, .rings = rings};
	return CT_OK;
}

static void destroy(struct ct_mpi_exchange *x)
{
	x->all->module->batch_destroy(x->batch);
	ct_free(x);
}

void ct__mpi_exchanges_close(struct ct_mpi_exchanges *all)
{
	struct ct_mpi_exchange *x;

	while (all && (x = all->idle)) {
		all->idle = x->next;
		destroy(x);
	}
	ct_free(all);
}

enum ct_status ct__mpi_exchange_take(struct ct_mpi_exchanges *all, size_t max, struct ct_mpi_exchange **out)
{
	struct ct_mpi_exchange *x = all->idle;
	enum ct_status st;

	*out = NULL;
	if (max == 1 && x) {
		all->idle = x->next;
		*out = x;
		return CT_OK;
	}
	CT_TRY_ALLOC(x = ct_calloc(1, sizeof(*x) + max * sizeof(*x->ring)));
	x->all = all;
	x->max = max;
	st = all->module->batch_create(all->engine, max, &x->batch);
	if (st < 0)
		ct_free(x);
	else
		*out = x;
	return st;
}

void ct__mpi_exchange_put(struct ct_mpi_exchange *x)
{
	if (x && x->max == 1) {
		x->next = x->all->idle;
		x->all->idle = x;
	} else if (x) {
		destroy(x);
	}
}

bool ct__mpi_exchange_in_ring(const struct ct_mpi_exchanges *all, int peer, size_t bytes)
{
	return bytes <= CT_RING_MESSAGE_MAX && ct__rings_reach(all->rings, peer);
}

/* Moves the messages that do not go through rings to the front of m, and returns their number. */
static size_t divide(struct ct_mpi_exchange *x, enum ct_mpi_channel channel, int tag, struct ct_mpi_message *m,
		     size_t n)
{
	size_t n_mpi = 0;

	x->n_ring = x->n_done = 0;
	for (size_t i = 0; i < n; i++) {
		if (!ct__mpi_exchange_in_ring(x->all, m[i].peer, m[i].bytes))
			m[n_mpi++] = m[i];
		else
			x->ring[x->n_ring++] = (struct ct_ring_request){.buf = m[i].buf,
									.bytes = m[i].bytes,
									.key = (uint64_t)channel << 32 | (uint32_t)tag,
									.peer = m[i].peer,
									.sending = m[i].sending,
									.limited = channel == CT_MPI_MESSAGES};
	}
	return n_mpi;
}

/* Sends first, because the other ranks may wait for them. */
static enum ct_status start_ring(struct ct_mpi_exchange *x)
{
	for (size_t i = 0; i < x->n_ring; i++) {
		if (x->ring[i].sending)
			CT_TRY(ct__rings_start(x->all->rings, &x->ring[i]));
	}
	for (size_t i = 0; i < x->n_ring; i++) {
		if (!x->ring[i].sending)
			CT_TRY(ct__rings_start(x->all->rings, &x->ring[i]));
	}
	return CT_OK;
}

/* Returns CT_OK if the messages in rings are done. */
static enum ct_status look(struct ct_mpi_exchange *x)
{
	for (size_t i = x->n_done; i < x->n_ring; i++) {
		if (!x->ring[i].done)
			CT_TRY(ct__rings_poll(x->all->rings, x->ring[i].peer));
	}
	while (x->n_done < x->n_ring && x->ring[x->n_done].done)
		x->n_done++;
	return x->n_done == x->n_ring ? CT_OK : CT_INPROGRESS;
}

static enum ct_status test_mpi(struct ct_mpi_exchange *x, int polls)
{
	const enum ct_status st = x->all->module->test(x->batch, polls);

	x->in_mpi = st != CT_OK;
	return st;
}

enum ct_status ct__mpi_exchange_test(struct ct_mpi_exchange *x, int polls)
{
	enum ct_status st = look(x);

	for (; polls > 0 && st == CT_INPROGRESS; polls--) {
		if (x->in_mpi)
			CT_TRY(test_mpi(x, 1));
		for (int i = 0; i < LOOKS_PER_POLL && st == CT_INPROGRESS; i++)
			st = look(x);
	}
	CT_TRY(st);
	if (x->in_mpi && polls > 0)
		CT_TRY(test_mpi(x, polls));
	return x->in_mpi ? CT_INPROGRESS : st;
}

enum ct_status ct__mpi_exchange_start(struct ct_mpi_exchange *x, enum ct_mpi_channel channel, int tag,
				      struct ct_mpi_message *m, size_t n, int polls)
{
	const size_t n_mpi = divide(x, channel, tag, m, n);
	enum ct_status st = CT_OK;

	CT_TRY(start_ring(x));
	if (n_mpi > 0)
		st = x->all->module->start(x->batch, channel, tag, m, n_mpi, x->n_ring > 0 ? 0 : polls);
	CT_TRY(st);
	x->in_mpi = st != CT_OK;
	return x->n_ring > 0 ? ct__mpi_exchange_test(x, polls) : st;
}
