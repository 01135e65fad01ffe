/* The first rank of a host creates the segment, the others map it, and each one writes to the store whether it
 * succeeded. Since all ranks read all answers, they come to the same result, and none uses a ring that its peer does
 * not read.
 *
 * A sender fills a slot, then stores its number (release); a receiver reads the number (acquire), then the slot, and
 * counts it in `taken`, which allows the sender to use the slot again. Each side keeps a copy of the other's counters
 * and reads them again only when the copy says that there is no space, so that the cache lines stay with their owner.
 * Messages with the same key must keep their order: waiting sends and receives are lists, early messages are one as
 * well, and a limited send that has to wait may be overtaken only by sends that are not limited. Slots are taken out
 * only for the sake of a receive, so a rank that receives nothing stops its senders. */
#include "dist/comm/mpi/rings.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/segment_impl.h"

/* The memory of each communicator grows with the square of the number of ranks: 32 MiB with 32 ranks. */
#define MAX_RANKS 32
#define LINE 64

struct slot {
	_Alignas(LINE) _Atomic uint64_t number; /* of the message, from 1; written last */
	uint64_t key;
	uint32_t bytes;
	bool limited;
	unsigned char data[CT_RING_MESSAGE_MAX];
};

struct ring {
	struct slot slots[CT_RING_SLOTS];
	/* Written by the receiver. */
	_Alignas(LINE) _Atomic uint64_t taken; /* messages that it has taken out */
	_Atomic uint64_t matched;              /* limited ones that have been received */
};

/* What a rank publishes to the others of its host. */
struct member {
	_Alignas(LINE) struct ct_rank_cpus cpus;
};

/* A message that has arrived before its receive was started. */
struct early {
	struct early *next;
	uint64_t key;
	uint32_t bytes;
	bool limited;
	unsigned char data[];
};

struct peer {
	struct ring *to, *from;
	uint64_t n_sent, n_received;
	uint64_t n_limited, n_matched; /* limited messages sent, received */
	uint64_t taken, matched;       /* by the peer, when this rank last looked */
	struct ct_ring_request *sends, **sends_end;
	struct ct_ring_request *receives, **receives_end;
	struct early *early, **early_end;
};

struct ct_rings {
	struct ct_segment segment;
	bool crowded;
	int size;
	struct peer peers[]; /* [size]; those of other hosts have no rings */
};

/* ---- opening */

static void init_peers(struct ct_rings *r, int size)
{
	r->size = size;
	for (int q = 0; q < size; q++) {
		struct peer *p = &r->peers[q];

		p->sends_end = &p->sends;
		p->receives_end = &p->receives;
		p->early_end = &p->early;
	}
}

/* The ranks of this host. */
struct host {
	ct_comm *comm;
	int n, first, index; /* their number, the first one, and the index of this one among them */
	int64_t limit_ns;
};

static struct host host_of(ct_comm *c, int64_t limit_ns)
{
	struct host h = {.comm = c, .first = -1, .limit_ns = limit_ns};

	for (int q = 0; q < c->size; q++) {
		if (!ct__comm_on_this_host(c, q))
			continue;
		h.first = h.first < 0 ? q : h.first;
		h.index += q < c->rank;
		h.n++;
	}
	return h;
}

static struct member *members_of(const struct ct_rings *r)
{
	return (struct member *)(r->segment.map + LINE);
}

static size_t segment_bytes(int n)
{
	_Static_assert(sizeof(struct ct_segment_head) <= LINE, "the members come after the head");

	return LINE + (size_t)n * sizeof(struct member) + (size_t)n * (size_t)n * sizeof(struct ring);
}

/* Called when all ranks share the segment. */
static void find_rings(const struct host *h, struct ct_rings *r)
{
	struct member *members = members_of(r);
	struct ring *rings = (struct ring *)(members + h->n);
	struct ct_rank_cpus cpus = {.quota = 0};

	for (int q = 0, k = 0; q < h->comm->size; q++) {
		if (!ct__comm_on_this_host(h->comm, q))
			continue;
		ct__comm_add_cpus(&cpus, &members[k].cpus);
		if (k != h->index) {
			r->peers[q].to = &rings[h->index * h->n + k];
			r->peers[q].from = &rings[k * h->n + h->index];
		}
		k++;
	}
	r->crowded = !ct__comm_has_cpus(&cpus, h->n);
}

static enum ct_status put(ct_comm *c, const char *key, bool yes)
{
	return ct_store_set(c->world->store, key, yes ? "1" : "0", 1);
}

/* Gets what rank q has put. */
static enum ct_status get(const struct host *h, const char *key, int q, int64_t deadline_ns, bool *yes)
{
	char *value, who[128];
	enum ct_status st;
	size_t len;

	st = ct_store_get(h->comm->world->store, key, deadline_ns, &value, &len);
	ct__comm_peer_text(h->comm, q, who, sizeof(who));
	if (st == CT_TIMEOUT) {
		CT_FAIL(CT_TIMEOUT, "%s has not opened the communicator within %.1f s", who, (double)h->limit_ns / 1e9);
		ct_error_hint("look at the output of this rank; it may be stopped, or very slow");
		return ct__comm_caused_by(h->comm, q, CT_TIMEOUT);
	}
	CT_TRY(st);
	*yes = value[0] == '1';
	if (!*yes)
		CT_DEBUG("short messages use MPI: %s cannot share memory", who);
	ct_free(value);
	return CT_OK;
}

/* Sets *yes to whether this rank can share memory. Fails if another rank is late or lost. If this process cannot see
 * the owner of the segment, it looks as if the owner had ended. If it has in fact ended, `agree` fails. */
static enum ct_status share(const struct host *h, struct ct_rings *r, bool *yes)
{
	const bool owner = h->first == h->comm->rank;
	const size_t bytes = segment_bytes(h->n);
	enum ct_status st;
	char key[128];

	snprintf(key, sizeof(key), "%s/rings/%d", h->comm->scope, h->first);
	st = owner ? ct__segment_create(h->comm, key, bytes, bytes, &r->segment)
		   : ct__segment_attach(h->comm, key, h->first, bytes, h->limit_ns, &r->segment);
	*yes = st == CT_OK;
	if (*yes)
		ct__comm_get_cpus(&members_of(r)[h->index].cpus);
	if (*yes || (st != CT_NOMEM && st != CT_UNSUPPORTED && st != CT_MISMATCH && st != CT_PEER_LOST))
		return st;
	CT_DEBUG("short messages use MPI: %s", ct_error_message());
	ct_error_clear();
	return owner ? put(h->comm, key, false) : CT_OK;
}

static const char *answer_key(const struct host *h, int q, char key[128])
{
	snprintf(key, 128, "%s/rings/%d/%d", h->comm->scope, h->first, q);
	return key;
}

/* Sets *yes to whether all ranks of the host can share memory. */
static enum ct_status agree(const struct host *h, bool *yes)
{
	const int64_t deadline = ct_deadline_in(h->limit_ns);
	const int rank = h->comm->rank;
	char key[128];
	bool one = false;

	CT_TRY(put(h->comm, answer_key(h, rank, key), *yes));
	for (int q = 0; q < h->comm->size; q++) {
		if (q == rank || !ct__comm_on_this_host(h->comm, q))
			continue;
		CT_TRY(get(h, answer_key(h, q, key), q, deadline, &one));
		*yes = *yes && one;
	}
	return CT_OK;
}

enum ct_status ct__rings_open(ct_comm *c, int64_t limit_ns, struct ct_rings **out)
{
	const struct host h = host_of(c, limit_ns);
	struct ct_rings *r;
	enum ct_status st;
	bool yes;

	*out = NULL;
	if (h.n > MAX_RANKS)
		CT_DEBUG("short messages use MPI: there are more than %d ranks on this host", MAX_RANKS);
	if (h.n < 2 || h.n > MAX_RANKS)
		return CT_OK;
	CT_TRY_ALLOC(r = ct_calloc(1, sizeof(*r) + (size_t)c->size * sizeof(*r->peers)));
	r->segment.fd = -1;
	init_peers(r, c->size);
	st = share(&h, r, &yes);
	if (st == CT_OK)
		st = agree(&h, &yes);
	if (st < 0 || !yes) {
		ct__rings_close(r);
		return st;
	}
	find_rings(&h, r);
	*out = r;
	return CT_OK;
}

void ct__rings_close(struct ct_rings *r)
{
	if (!r)
		return;
	for (int q = 0; q < r->size; q++) {
		struct early *e;

		while ((e = r->peers[q].early)) {
			r->peers[q].early = e->next;
			ct_free(e);
		}
	}
	ct__segment_close(&r->segment);
	ct_free(r);
}

bool ct__rings_reach(const struct ct_rings *r, int peer)
{
	return r && r->peers[peer].to;
}

bool ct__rings_crowded(const struct ct_rings *r, ct_comm *c)
{
	return r ? r->crowded : host_of(c, 0).n > get_nprocs();
}

/* ---- messages */

static bool has_space(struct peer *p)
{
	if (p->n_sent - p->taken == CT_RING_SLOTS)
		p->taken = atomic_load_explicit(&p->to->taken, memory_order_acquire);
	return p->n_sent - p->taken < CT_RING_SLOTS;
}

/* Returns how many limited messages may be sent now. */
static uint64_t n_allowed(struct peer *p)
{
	if (p->n_limited - p->matched == CT_RING_LIMIT)
		p->matched = atomic_load_explicit(&p->to->matched, memory_order_relaxed);
	return CT_RING_LIMIT - (p->n_limited - p->matched);
}

/* Called if there is space. */
static void put_message(struct peer *p, struct ct_ring_request *q)
{
	struct slot *s = &p->to->slots[p->n_sent % CT_RING_SLOTS];

	s->key = q->key;
	s->bytes = (uint32_t)q->bytes;
	s->limited = q->limited;
	if (q->bytes > 0)
		memcpy(s->data, q->buf, q->bytes);
	atomic_store_explicit(&s->number, ++p->n_sent, memory_order_release);
	p->n_limited += q->limited;
	q->done = true;
}

static enum ct_status deliver(struct peer *p, struct ct_ring_request *q, const void *data, uint32_t bytes, bool limited)
{
	if (bytes != q->bytes)
		return CT_FAIL(CT_MISMATCH, "a message does not have the size that this rank expects");
	if (bytes > 0)
		memcpy(q->buf, data, bytes);
	q->done = true;
	if (limited)
		atomic_store_explicit(&p->from->matched, ++p->n_matched, memory_order_relaxed);
	return CT_OK;
}

/* Removes the first receive with this key from the list. Returns NULL if there is none. */
static struct ct_ring_request *find_receive(struct peer *p, uint64_t key)
{
	for (struct ct_ring_request **link = &p->receives, *q; (q = *link); link = &q->next) {
		if (q->key != key)
			continue;
		*link = q->next;
		if (!q->next)
			p->receives_end = link;
		return q;
	}
	return NULL;
}

static enum ct_status keep(struct peer *p, const struct slot *s)
{
	struct early *e;

	CT_TRY_ALLOC(e = ct_calloc(1, sizeof(*e) + s->bytes));
	e->key = s->key;
	e->bytes = s->bytes;
	e->limited = s->limited;
	memcpy(e->data, s->data, s->bytes);
	*p->early_end = e;
	p->early_end = &e->next;
	return CT_OK;
}

/* Finds the first message with the key of q among those that have arrived early. */
static enum ct_status deliver_early(struct peer *p, struct ct_ring_request *q)
{
	enum ct_status st;

	for (struct early **link = &p->early, *e; (e = *link); link = &e->next) {
		if (e->key != q->key)
			continue;
		*link = e->next;
		if (!e->next)
			p->early_end = link;
		st = deliver(p, q, e->data, e->bytes, e->limited);
		ct_free(e);
		return st;
	}
	return CT_OK;
}

static enum ct_status receive(struct peer *p)
{
	while (p->receives) {
		struct slot *s = &p->from->slots[p->n_received % CT_RING_SLOTS];
		struct ct_ring_request *q;

		if (atomic_load_explicit(&s->number, memory_order_acquire) != p->n_received + 1)
			return CT_OK;
		q = find_receive(p, s->key);
		CT_TRY(q ? deliver(p, q, s->data, s->bytes, s->limited) : keep(p, s));
		atomic_store_explicit(&p->from->taken, ++p->n_received, memory_order_release);
	}
	return CT_OK;
}

/* A limited message that must wait does not delay the others, for example those of a collective, but all limited ones
 * after it: the order of messages with the same key must not change. */
static void send_waiting(struct peer *p)
{
	struct ct_ring_request **link = &p->sends, *q;
	uint64_t allowed = n_allowed(p);

	while ((q = *link) && has_space(p)) {
		if (q->limited && allowed == 0) {
			link = &q->next;
			continue;
		}
		allowed -= q->limited;
		*link = q->next;
		if (!q->next)
			p->sends_end = link;
		put_message(p, q);
	}
}

enum ct_status ct__rings_start(struct ct_rings *r, struct ct_ring_request *q)
{
	struct peer *p = &r->peers[q->peer];

	q->next = NULL;
	q->done = false;
	if (q->sending && !p->sends && has_space(p) && (!q->limited || n_allowed(p) > 0)) {
		put_message(p, q);
		return CT_OK;
	}
	if (q->sending) {
		*p->sends_end = q;
		p->sends_end = &q->next;
		send_waiting(p);
		return CT_OK;
	}
	if (p->early)
		CT_TRY(deliver_early(p, q));
	if (q->done)
		return CT_OK;
	*p->receives_end = q;
	p->receives_end = &q->next;
	return receive(p);
}

enum ct_status ct__rings_poll(struct ct_rings *r, int peer)
{
	struct peer *p = &r->peers[peer];

	if (p->sends)
		send_waiting(p);
	return p->receives ? receive(p) : CT_OK;
}
