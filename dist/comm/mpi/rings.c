#include "dist/comm/mpi/rings.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/segment_impl.h"

/* A sender is never further ahead of a receiver that makes no progress, so that it notices this. */
#define SLOTS 8
/* The memory grows with the square of the number of ranks: 35 MiB with 64 ranks. */
#define MAX_RANKS 64
#define LINE 64

struct slot {
	_Alignas(LINE) _Atomic uint64_t number; /* of the message, from 1; written last */
	uint64_t key;
	uint32_t bytes;
	unsigned char data[CT_RING_MESSAGE_MAX];
};

struct ring {
	struct slot slots[SLOTS];
	_Alignas(LINE) _Atomic uint64_t taken; /* messages that the receiver has taken out */
};

/* A message that has arrived before its receive was started. */
struct early {
	struct early *next;
	uint64_t key;
	uint32_t bytes;
	unsigned char data[];
};

struct peer {
	struct ring *to, *from;
	uint64_t n_sent, n_received;
	uint64_t taken; /* by the peer, when this rank last looked */
	struct ct_ring_request *sends, **sends_end;
	struct ct_ring_request *receives, **receives_end;
	struct early *early, **early_end;
};

struct ct_rings {
	struct ct_segment segment;
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

static void find_rings(const ct_comm *c, struct ct_rings *r, int n_here)
{
	struct ring *rings = (struct ring *)(r->segment.map + LINE);
	int own = 0;

	for (int q = 0; q < c->rank; q++)
		own += ct__comm_on_this_host(c, q);
	for (int q = 0, k = 0; q < c->size; q++) {
		if (!ct__comm_on_this_host(c, q))
			continue;
		if (q != c->rank) {
			r->peers[q].to = &rings[own * n_here + k];
			r->peers[q].from = &rings[k * n_here + own];
		}
		k++;
	}
}

static enum ct_status put(ct_comm *c, const char *key, bool yes)
{
	return ct_store_set(c->world->store, key, yes ? "1" : "0", 1);
}

static enum ct_status get(ct_comm *c, const char *key, int64_t deadline_ns, bool *yes)
{
	char *value;
	size_t len;

	CT_TRY(ct_store_get(c->world->store, key, deadline_ns, &value, &len));
	*yes = value[0] == '1';
	ct_free(value);
	return CT_OK;
}

/* Returns CT_OK with *yes false if this rank cannot share memory, and an error if another rank is lost. */
static enum ct_status share(ct_comm *c, struct ct_rings *r, int first, size_t bytes, int64_t deadline_ns, bool *yes)
{
	char key[128];
	enum ct_status st;

	_Static_assert(sizeof(struct ct_segment_head) <= LINE, "the rings are behind the head");
	snprintf(key, sizeof(key), "%s/rings/%d", c->scope, first);
	st = first == c->rank ? ct__segment_create(c, key, bytes, bytes, &r->segment)
			      : ct__segment_attach(c, key, first, bytes, deadline_ns, &r->segment);
	*yes = st == CT_OK;
	if (*yes || (st != CT_NOMEM && st != CT_UNSUPPORTED && st != CT_MISMATCH))
		return st;
	ct_error_clear();
	return first == c->rank ? put(c, key, false) : CT_OK;
}

/* The first rank of the host asks all others whether they can share memory, and tells them the result. */
static enum ct_status agree(ct_comm *c, int first, int64_t deadline_ns, bool *yes)
{
	char key[128];
	bool one;

	if (c->rank != first) {
		snprintf(key, sizeof(key), "%s/rings/%d/%d", c->scope, first, c->rank);
		CT_TRY(put(c, key, *yes));
		snprintf(key, sizeof(key), "%s/rings/%d/all", c->scope, first);
		return get(c, key, deadline_ns, yes);
	}
	for (int q = first + 1; q < c->size; q++) {
		if (!ct__comm_on_this_host(c, q))
			continue;
		snprintf(key, sizeof(key), "%s/rings/%d/%d", c->scope, first, q);
		CT_TRY(get(c, key, deadline_ns, &one));
		*yes = *yes && one;
	}
	snprintf(key, sizeof(key), "%s/rings/%d/all", c->scope, first);
	return put(c, key, *yes);
}

enum ct_status ct__rings_open(ct_comm *c, int64_t deadline_ns, struct ct_rings **out)
{
	int n_here = 0, first = c->rank;
	struct ct_rings *r;
	enum ct_status st;
	size_t bytes;
	bool yes;

	*out = NULL;
	for (int q = c->size - 1; q >= 0; q--) {
		n_here += ct__comm_on_this_host(c, q);
		first = ct__comm_on_this_host(c, q) && q < first ? q : first;
	}
	if (n_here < 2 || n_here > MAX_RANKS)
		return CT_OK;
	CT_TRY_ALLOC(r = ct_calloc(1, sizeof(*r) + (size_t)c->size * sizeof(*r->peers)));
	r->segment.fd = -1;
	init_peers(r, c->size);
	bytes = LINE + (size_t)n_here * (size_t)n_here * sizeof(struct ring);
	st = share(c, r, first, bytes, deadline_ns, &yes);
	if (st == CT_OK)
		st = agree(c, first, deadline_ns, &yes);
	if (st < 0 || !yes) {
		ct__rings_close(r);
		return st;
	}
	find_rings(c, r, n_here);
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

/* ---- messages */

/* Returns false if all slots are full. */
static bool put_message(struct peer *p, const struct ct_ring_request *q)
{
	struct slot *s = &p->to->slots[p->n_sent % SLOTS];

	if (p->n_sent - p->taken == SLOTS) {
		p->taken = atomic_load_explicit(&p->to->taken, memory_order_acquire);
		if (p->n_sent - p->taken == SLOTS)
			return false;
	}
	s->key = q->key;
	s->bytes = (uint32_t)q->bytes;
	if (q->bytes > 0)
		memcpy(s->data, q->buf, q->bytes);
	atomic_store_explicit(&s->number, ++p->n_sent, memory_order_release);
	return true;
}

static enum ct_status deliver(struct ct_ring_request *q, const void *data, uint32_t bytes)
{
	if (bytes != q->bytes)
		return CT_FAIL(CT_MISMATCH, "a message does not have the size that this rank expects");
	if (bytes > 0)
		memcpy(q->buf, data, bytes);
	q->done = true;
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
		st = deliver(q, e->data, e->bytes);
		ct_free(e);
		return st;
	}
	return CT_OK;
}

static enum ct_status receive(struct peer *p)
{
	while (p->receives) {
		struct slot *s = &p->from->slots[p->n_received % SLOTS];
		struct ct_ring_request *q;

		if (atomic_load_explicit(&s->number, memory_order_acquire) != p->n_received + 1)
			return CT_OK;
		q = find_receive(p, s->key);
		CT_TRY(q ? deliver(q, s->data, s->bytes) : keep(p, s));
		atomic_store_explicit(&p->from->taken, ++p->n_received, memory_order_release);
	}
	return CT_OK;
}

static void send_waiting(struct peer *p)
{
	struct ct_ring_request *q;

	while ((q = p->sends) && put_message(p, q)) {
		p->sends = q->next;
		if (!p->sends)
			p->sends_end = &p->sends;
		q->done = true;
	}
}

enum ct_status ct__rings_start(struct ct_rings *r, struct ct_ring_request *q)
{
	struct peer *p = &r->peers[q->peer];

	q->next = NULL;
	q->done = false;
	if (q->sending) {
		q->done = !p->sends && put_message(p, q);
		if (!q->done) {
			*p->sends_end = q;
			p->sends_end = &q->next;
		}
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
