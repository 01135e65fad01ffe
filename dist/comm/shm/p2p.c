/* Send and receive of the shared-memory communicator. There is one channel for each pair of ranks and direction. The
 * sender announces a message in one of 16 entries. The receiver accepts it when it has a matching receive, and writes
 * its number to order[]; if type or length differ, it refuses the message, and both ranks fail. The data of accepted
 * messages passes through two chunks, in the order of acceptance, so a message that no one receives yet holds up no
 * other one, unless all entries are in use. The receiver frees the entry when it has read the last chunk.
 *
 * Only the sender changes an entry that is free, and only the receiver changes one that is announced or accepted.
 * Messages with the same tag are matched in the order of posting. To keep this order, one pass over the operations
 * looks only at the messages that were announced when it began (`end`), and a channel that was found full stays full
 * for the rest of the pass (`full`): otherwise a later operation could be served before an earlier one. */
#include <stdio.h>
#include <string.h>

#include "dist/comm/shm/shm_impl.h"

/* Indexes of ct_work.scratch. ID: the number of the message (send) or of the acceptance (receive) in its channel. */
enum { ID, STAGE, BYTES };
enum { QUEUED, UNDER_WAY, FINISHED };

void ct__shm_p2p_post(struct shm *s, ct_work *w)
{
	w->next = NULL;
	w->scratch[STAGE] = QUEUED;
	w->scratch[BYTES] = 0;
	*s->p2p_tail = w;
	s->p2p_tail = &w->next;
}

static enum ct_status disagree(const struct shm *s, const ct_work *w, uint32_t dtype, uint64_t n)
{
	bool sending = w->kind == CT_COMM_SEND;
	char who[128];

	ct__comm_peer_text(&s->base, w->root, who, sizeof(who));
	return CT_FAIL(CT_MISMATCH, "rank %d %s %s[%zu] %s %s with tag %d, which %s %s[%llu]",
		       ct__comm_world_rank(&s->base, s->base.rank), sending ? "sends" : "expects",
		       ct_dtype_name(w->dtype), w->n, sending ? "to" : "from", who, w->tag,
		       sending ? "expects" : "sends", ct_dtype_name((enum ct_dtype)dtype), (unsigned long long)n);
}

/* ---- sender */

static bool announce(struct shm *s, ct_work *w)
{
	struct shm_channel *ch = shm_channel(s, s->base.rank, w->root);
	struct shm_p2p *p = &s->p2p[w->root];
	struct shm_msg *m = &ch->msgs[p->announced % SHM_P2P_RING];

	p->full = p->full || atomic_load_explicit(&m->state, memory_order_acquire) != SHM_MSG_FREE;
	if (p->full)
		return false;
	m->id = w->scratch[ID] = p->announced++;
	m->n = w->n;
	m->dtype = (uint32_t)w->dtype;
	m->tag = w->tag;
	atomic_store_explicit(&m->state, SHM_MSG_ANNOUNCED, memory_order_release);
	atomic_store_explicit(&ch->announced, p->announced, memory_order_release);
	w->scratch[STAGE] = UNDER_WAY;
	s->moved = true;
	ct__shm_wake(s, w->root);
	return true;
}

/* Returns true if this is the next message of the channel. */
static bool is_next(const struct shm_channel *ch, uint64_t written, uint64_t id)
{
	return atomic_load_explicit(&ch->accepted, memory_order_acquire) > written &&
	       ch->order[written % SHM_P2P_RING] == id;
}

static enum ct_status advance_send(struct shm *s, ct_work *w)
{
	struct shm_channel *ch = shm_channel(s, s->base.rank, w->root);
	struct shm_p2p *p = &s->p2p[w->root];
	size_t total = w->n * ct_dtype_bytes(w->dtype);
	const struct shm_msg *m;

	if (w->scratch[STAGE] == QUEUED && !announce(s, w))
		return CT_OK;
	m = &ch->msgs[w->scratch[ID] % SHM_P2P_RING];
	if (atomic_load_explicit(&m->state, memory_order_acquire) == SHM_MSG_REFUSED)
		return disagree(s, w, m->want_dtype, m->want_n);
	if (!is_next(ch, p->written, w->scratch[ID]))
		return CT_OK;
	while (w->scratch[BYTES] < total) {
		size_t at = w->scratch[BYTES], len = total - at < SHM_P2P_CHUNK ? total - at : SHM_P2P_CHUNK;
		uint64_t k = atomic_load_explicit(&ch->written, memory_order_relaxed);

		if (k - atomic_load_explicit(&ch->read, memory_order_acquire) == 2)
			return CT_OK;
		memcpy(ch->data[k & 1], (const char *)w->src + at, len);
		atomic_store_explicit(&ch->written, k + 1, memory_order_release);
		w->scratch[BYTES] += len;
		s->moved = true;
		ct__shm_wake(s, w->root);
	}
	p->written++;
	w->scratch[STAGE] = FINISHED;
	return CT_OK;
}

/* ---- receiver */

/* Finds the first message with the tag of w that no earlier receive has accepted. */
static struct shm_msg *match(struct shm *s, const ct_work *w)
{
	struct shm_channel *ch = shm_channel(s, w->root, s->base.rank);
	uint64_t *scan = &s->p2p[w->root].scan;

	for (uint64_t id = *scan; id < s->p2p[w->root].end; id++) {
		struct shm_msg *m = &ch->msgs[id % SHM_P2P_RING];
		bool waiting =
			atomic_load_explicit(&m->state, memory_order_acquire) == SHM_MSG_ANNOUNCED && m->id == id;

		if (!waiting && id == *scan)
			++*scan;
		if (waiting && m->tag == w->tag)
			return m;
	}
	return NULL;
}

static enum ct_status accept_msg(struct shm *s, ct_work *w)
{
	struct shm_channel *ch = shm_channel(s, w->root, s->base.rank);
	struct shm_msg *m = match(s, w);
	uint64_t k;

	if (!m)
		return CT_OK;
	if (m->n != w->n || m->dtype != (uint32_t)w->dtype) {
		m->want_n = w->n;
		m->want_dtype = (uint32_t)w->dtype;
		atomic_store_explicit(&m->state, SHM_MSG_REFUSED, memory_order_release);
		ct__shm_wake(s, w->root);
		return disagree(s, w, m->dtype, m->n);
	}
	atomic_store_explicit(&m->state, SHM_MSG_ACCEPTED, memory_order_relaxed);
	k = atomic_load_explicit(&ch->accepted, memory_order_relaxed);
	ch->order[k % SHM_P2P_RING] = m->id;
	w->scratch[ID] = k;
	w->scratch[STAGE] = UNDER_WAY;
	atomic_store_explicit(&ch->accepted, k + 1, memory_order_release);
	s->moved = true;
	ct__shm_wake(s, w->root);
	return CT_OK;
}

static enum ct_status advance_recv(struct shm *s, ct_work *w)
{
	struct shm_channel *ch = shm_channel(s, w->root, s->base.rank);
	struct shm_p2p *p = &s->p2p[w->root];
	size_t total = w->n * ct_dtype_bytes(w->dtype);

	if (w->scratch[STAGE] == QUEUED)
		CT_TRY(accept_msg(s, w));
	if (w->scratch[STAGE] != UNDER_WAY || w->scratch[ID] != p->read)
		return CT_OK;
	while (w->scratch[BYTES] < total) {
		size_t at = w->scratch[BYTES], len = total - at < SHM_P2P_CHUNK ? total - at : SHM_P2P_CHUNK;
		uint64_t k = atomic_load_explicit(&ch->read, memory_order_relaxed);

		if (atomic_load_explicit(&ch->written, memory_order_acquire) == k)
			return CT_OK;
		memcpy((char *)w->dst + at, ch->data[k & 1], len);
		atomic_store_explicit(&ch->read, k + 1, memory_order_release);
		w->scratch[BYTES] += len;
		s->moved = true;
		ct__shm_wake(s, w->root);
	}
	atomic_store_explicit(&ch->msgs[ch->order[p->read % SHM_P2P_RING] % SHM_P2P_RING].state, SHM_MSG_FREE,
			      memory_order_release);
	p->read++;
	w->scratch[STAGE] = FINISHED;
	ct__shm_wake(s, w->root);
	return CT_OK;
}

static void begin_pass(struct shm *s, int q)
{
	struct shm_p2p *p = &s->p2p[q];

	if (p->pass == s->p2p_pass)
		return;
	p->pass = s->p2p_pass;
	p->full = false;
	p->end = atomic_load_explicit(&shm_channel(s, q, s->base.rank)->announced, memory_order_acquire);
}

enum ct_status ct__shm_p2p_advance(struct shm *s)
{
	ct_work **link = &s->p2p_head, *w;

	s->p2p_pass++;
	while ((w = *link)) {
		begin_pass(s, w->root);
		CT_TRY(w->kind == CT_COMM_SEND ? advance_send(s, w) : advance_recv(s, w));
		if (w->scratch[STAGE] != FINISHED) {
			link = &w->next;
			continue;
		}
		*link = w->next;
		if (!w->next)
			s->p2p_tail = link;
		s->moved = true;
		ct__flight_done(s->base.flight, w->seq);
		atomic_store_explicit(&w->status, CT_OK, memory_order_relaxed);
	}
	return CT_OK;
}
