/* Collectives of the shared-memory communicator (shm_impl.h describes its three algorithms). Collectives wait in one
 * queue, head to tail. A collective is published when its slot is free, decided when all ranks have published it, then
 * worked on, and completed. Inline and direct collectives may be worked on before earlier ones are complete, so that a
 * rank has work while it waits for an earlier one. Staged ones may not, because all of them use the same two buffers.
 * Completion is always in order.
 *
 * A tile is reduced over all ranks in rank order, so it does not matter which rank draws it. Rank 0 resets the tickets
 * of a slot before it publishes the slot, and no rank draws before all have published; likewise for the two staging
 * buffers, each of which is used again only after all ranks have read its previous round. Each rank counts collectives
 * and staged rounds for itself. The counts index the slots and the buffers, so they must be the same on all ranks. A
 * rank that publishes something and then sees that it was the last one wakes the others; the fences ensure that at
 * least one rank sees this. */
#include <stdio.h>
#include <string.h>

#include "dist/comm/shm/shm_impl.h"

enum way { UNDECIDED, INLINE, DIRECT, STAGED, FINISHED };

/* Indexes of ct_work.scratch. */
enum { SEQ, WAY, DRAWN, PUT, GOT };

#define TILE_MIN ((size_t)16 << 10)
#define TILE_MAX ((size_t)128 << 10)

static size_t total_bytes(const ct_work *w)
{
	return w->n * ct_dtype_bytes(w->dtype);
}

/* Returns true if each rank provides a separate part for each rank, instead of one for all. */
static bool in_parts(const ct_work *w)
{
	return w->kind == CT_COMM_SCATTER || w->kind == CT_COMM_REDUCE_SCATTER;
}

static bool reduces(const ct_work *w)
{
	return w->kind == CT_COMM_ALLREDUCE || w->kind == CT_COMM_REDUCE;
}

/* ---- copying into and out of slots and staging buffers */

/* Copies bytes [at, at + len) of each part of the source to `to`. The copies are `pitch` bytes apart. */
static void put_in(const struct shm *s, const ct_work *w, size_t at, size_t len, size_t pitch, char *to)
{
	const char *src = w->src;
	bool rooted = w->kind == CT_COMM_BROADCAST || w->kind == CT_COMM_SCATTER;

	if (len == 0 || (rooted && w->root != s->base.rank))
		return;
	if (!in_parts(w)) {
		memcpy(to, src + at, len);
		return;
	}
	for (int q = 0; q < s->base.size; q++)
		memcpy(to + (size_t)q * pitch, src + (size_t)q * total_bytes(w) + at, len);
}

/* Computes the result for the same range from the input of each rank (s->in). If `reduced` is true, s->in[0] already
 * contains the reduction. */
static void take_out(struct shm *s, const ct_work *w, size_t at, size_t len, size_t pitch, bool reduced)
{
	char *dst = w->dst;
	int rank = s->base.rank, size = s->base.size;
	size_t elems = len / ct_dtype_bytes(w->dtype);
	void *out = dst ? dst + at : NULL;
	bool all = w->kind == CT_COMM_ALLREDUCE || w->kind == CT_COMM_ALLGATHER;

	if (len == 0)
		return;
	switch (w->kind) {
	case CT_COMM_ALLREDUCE:
	case CT_COMM_REDUCE:
		if (!all && w->root != rank)
			return;
		if (reduced)
			memcpy(out, s->in[0], len);
		else
			ct__reduce_ranks((void *const *)s->in, size, &out, 1, elems, w->dtype, w->op);
		return;
	case CT_COMM_BROADCAST:
		if (w->root != rank)
			memcpy(out, s->in[w->root], len);
		return;
	case CT_COMM_ALLGATHER:
	case CT_COMM_GATHER:
		for (int q = 0; (all || w->root == rank) && q < size; q++)
			memcpy(dst + (size_t)q * total_bytes(w) + at, s->in[q], len);
		return;
	case CT_COMM_SCATTER:
		memcpy(out, s->in[w->root] + (size_t)rank * pitch, len);
		return;
	case CT_COMM_REDUCE_SCATTER:
		for (int q = 0; q < size; q++)
			s->in[q] += (size_t)rank * pitch;
		ct__reduce_ranks((void *const *)s->in, size, &out, 1, elems, w->dtype, w->op);
		return;
	case CT_COMM_BARRIER:
	case CT_COMM_SEND:
	case CT_COMM_RECV:
		return;
	}
}

/* ---- tickets */

struct tiles {
	size_t bytes; /* of one tile; the last one may be shorter */
	uint64_t n;
};

static struct tiles cut(const struct shm *s, size_t bytes)
{
	size_t tile = (bytes / 4 / (size_t)s->base.size + 4095) & ~(size_t)4095;

	tile = tile < TILE_MIN ? TILE_MIN : tile > TILE_MAX ? TILE_MAX : tile;
	while (bytes / tile >= UINT32_MAX / 2) /* tickets have 32 bits */
		tile *= 2;
	return (struct tiles){.bytes = tile, .n = (bytes + tile - 1) / tile};
}

static void do_tile(struct shm *s, const ct_work *w, char *const *base, struct tiles t, uint64_t i, size_t bytes,
		    bool staged)
{
	size_t at = i * t.bytes, len = bytes - at < t.bytes ? bytes - at : t.bytes;
	int size = s->base.size, n_out = size;

	for (int q = 0; q < size; q++)
		s->in[q] = s->out[q] = base[q] + at;
	if (w->kind == CT_COMM_BROADCAST) {
		for (int q = 0; q < size; q++) {
			if (q != w->root)
				memcpy(s->out[q], s->in[w->root], len);
		}
		return;
	}
	if (staged || w->kind == CT_COMM_REDUCE) {
		s->out[0] = s->in[staged ? 0 : w->root];
		n_out = 1;
	}
	ct__reduce_ranks((void *const *)s->in, size, (void *const *)s->out, n_out, len / ct_dtype_bytes(w->dtype),
			 w->dtype, w->op);
}

/* Draws a ticket for a tile. Even ranks draw tiles from the front (counted in the low half of `next`), odd ranks from
 * the back (high half). If two ranks repeat an operation, each stays in its own half of the vector, which is in its
 * cache. Every draw increments the sum of both counts, so the first t.n draws give different tiles. Returns false if
 * none is left. */
static bool draw(const struct shm *s, struct shm_share *share, struct tiles t, uint64_t *tile)
{
	uint64_t old = atomic_load_explicit(&share->next, memory_order_relaxed);

	if ((old & UINT32_MAX) + (old >> 32) >= t.n)
		return false;
	if (s->base.rank % 2 == 0) {
		old = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
		*tile = old & UINT32_MAX;
	} else {
		old = atomic_fetch_add_explicit(&share->next, (uint64_t)1 << 32, memory_order_relaxed);
		*tile = t.n - 1 - (old >> 32);
	}
	return (old & UINT32_MAX) + (old >> 32) < t.n;
}

/* Draws tickets and processes their tiles: all that are left if greedy, else at most this rank's fair share. Returns
 * true if the tiles of all ranks are finished. */
static bool do_tiles(struct shm *s, ct_work *w, struct shm_share *share, char *const *base, size_t bytes, bool staged,
		     bool greedy)
{
	struct tiles t = cut(s, bytes);
	uint64_t fair = (t.n + (uint64_t)s->base.size - 1) / (uint64_t)s->base.size, tile;
	struct shm_rank *me = shm_me(s);

	while (greedy || w->scratch[DRAWN] < fair) {
		atomic_store_explicit(&me->busy, w->scratch[SEQ] + 1, memory_order_relaxed);
		if (!draw(s, share, t, &tile))
			break;
		do_tile(s, w, base, t, tile, bytes, staged);
		w->scratch[DRAWN]++;
		s->moved = true;
		if (atomic_fetch_add_explicit(&share->finished, 1, memory_order_acq_rel) + 1 == t.n)
			ct__shm_wake_all(s);
	}
	atomic_store_explicit(&me->busy, 0, memory_order_relaxed);
	return atomic_load_explicit(&share->finished, memory_order_acquire) == t.n;
}

static void reset(struct shm_share *share)
{
	atomic_store_explicit(&share->next, 0, memory_order_relaxed);
	atomic_store_explicit(&share->finished, 0, memory_order_relaxed);
}

/* ---- posting and agreeing */

static bool all_at_least(const struct shm *s, size_t counter, uint64_t v)
{
	for (int q = 0; q < s->base.size; q++) {
		const _Atomic uint64_t *p = (const _Atomic uint64_t *)((const char *)&s->ranks[q] + counter);

		if (atomic_load_explicit(p, memory_order_acquire) < v)
			return false;
	}
	return true;
}

#define ALL_AT_LEAST(s, field, v) all_at_least((s), offsetof(struct shm_rank, field), (v))

static bool is_inline(const struct shm *s, const ct_work *w)
{
	return total_bytes(w) <= SHM_INLINE / (in_parts(w) ? (size_t)s->base.size : 1);
}

static void describe(struct shm *s, ct_work *w)
{
	uint64_t seq = w->scratch[SEQ];
	struct shm_slot *slot = shm_slot(s, s->base.rank, seq);
	const ct_work *d = ct__work_whole(w);

	slot->number = d->number;
	slot->n = d->n;
	slot->kind = (uint8_t)d->kind;
	slot->dtype = (uint8_t)d->dtype;
	slot->op = (uint8_t)d->op;
	slot->root = d->root;
	slot->bucket = d->bucket;
	if (is_inline(s, w))
		put_in(s, w, 0, total_bytes(w), total_bytes(w), (char *)slot->data);
	else
		ct__shm_locate(s, w->dst, total_bytes(w), &slot->region, &slot->off);
	if (s->base.rank == 0)
		reset(&s->ctl->direct[seq % SHM_RING]);
}

/* Publishes queued collectives. A slot is free again when all ranks have completed the collective that used it last. */
static void publish(struct shm *s)
{
	while (s->unpublished) {
		ct_work *w = s->unpublished;
		uint64_t seq = w->scratch[SEQ];

		if (seq >= SHM_RING && s->seen_done < seq - SHM_RING + 1) {
			if (!ALL_AT_LEAST(s, done, seq - SHM_RING + 1))
				return;
			s->seen_done = seq - SHM_RING + 1;
		}
		describe(s, w);
		s->n_published = seq + 1;
		atomic_store_explicit(&shm_me(s)->posted, seq + 1, memory_order_release);
		s->unpublished = w->next;
		s->moved = true;
		/* The last rank to arrive wakes the others. The fence ensures that at least one rank sees that all have
		 * arrived. */
		atomic_thread_fence(memory_order_seq_cst);
		if (ALL_AT_LEAST(s, posted, seq + 1))
			ct__shm_wake_all(s);
	}
}

void ct__shm_coll_post(struct shm *s, ct_work *w)
{
	w->next = NULL;
	w->scratch[SEQ] = s->n_posted++;
	w->scratch[WAY] = UNDECIDED;
	w->scratch[DRAWN] = w->scratch[PUT] = w->scratch[GOT] = 0;
	if (s->tail)
		s->tail->next = w;
	else
		s->head = w;
	s->tail = w;
	if (!s->unpublished)
		s->unpublished = w;
	publish(s);
}

static bool same_op(const struct shm_slot *a, const struct shm_slot *b)
{
	return a->n == b->n && a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
	       a->bucket == b->bucket;
}

static void slot_text(const struct shm *s, const struct shm_slot *d, char *buf, size_t len)
{
	const struct ct_flight_record r = {.kind = (enum ct_comm_kind)d->kind,
					   .dtype = (enum ct_dtype)d->dtype,
					   .op = (enum ct_redop)d->op,
					   .n = d->n,
					   .root = d->root,
					   .bucket = d->bucket - 1,
					   .step = -1};

	ct__flight_text(&s->base, &r, buf, len);
}

enum ct_status ct__shm_coll_compare(struct shm *s, uint64_t seq)
{
	char who_a[128], who_b[128], what_a[224], what_b[224];
	const struct shm_slot *a = NULL, *b;
	int first = 0;

	for (int q = 0; q < s->base.size; q++) {
		if (atomic_load_explicit(&s->ranks[q].posted, memory_order_acquire) <= seq)
			continue;
		b = shm_slot(s, q, seq);
		if (!a) {
			a = b;
			first = q;
		}
		if (same_op(a, b))
			continue;
		ct__comm_peer_text(&s->base, first, who_a, sizeof(who_a));
		ct__comm_peer_text(&s->base, q, who_b, sizeof(who_b));
		slot_text(s, a, what_a, sizeof(what_a));
		slot_text(s, b, what_b, sizeof(what_b));
		CT_FAIL(CT_MISMATCH, "ranks disagree at collective %lld: %s issues %s, but %s issues %s",
			(long long)a->number, who_a, what_a, who_b, what_b);
		return ct_error_hint(CT_COMM_MISMATCH_HINT);
	}
	return CT_OK;
}

static enum ct_status decide(struct shm *s, ct_work *w)
{
	uint64_t seq = w->scratch[SEQ];
	int32_t region = shm_slot(s, 0, seq)->region;
	bool direct = reduces(w) || w->kind == CT_COMM_BROADCAST;

	CT_TRY(ct__shm_coll_compare(s, seq));
	ct__flight_begun(s->base.flight, w->seq, ct_now_ns());
	if (is_inline(s, w)) {
		w->scratch[WAY] = INLINE;
		return CT_OK;
	}
	for (int q = 0; q < s->base.size; q++)
		direct &= region >= 0 && shm_slot(s, q, seq)->region == region;
	w->scratch[WAY] = direct ? DIRECT : STAGED;
	return CT_OK;
}

/* ---- the three ways */

static void do_inline(struct shm *s, ct_work *w)
{
	for (int q = 0; q < s->base.size; q++)
		s->in[q] = (char *)shm_slot(s, q, w->scratch[SEQ])->data;
	take_out(s, w, 0, total_bytes(w), total_bytes(w), false);
	w->scratch[WAY] = FINISHED;
}

static void do_direct(struct shm *s, ct_work *w, bool greedy)
{
	uint64_t seq = w->scratch[SEQ];
	char *base[SHM_MAX_RANKS];

	for (int q = 0; q < s->base.size; q++) {
		const struct shm_slot *d = shm_slot(s, q, seq);
		const struct shm_region *r = &s->regions[d->region];

		base[q] = r->base + (size_t)q * r->stride + d->off;
	}
	if (do_tiles(s, w, &s->ctl->direct[seq % SHM_RING], base, total_bytes(w), false, greedy))
		w->scratch[WAY] = FINISHED;
}

struct round {
	uint64_t g; /* the number of this round, over all staged collectives */
	size_t at, len, pitch;
};

static size_t pitch_of(const struct shm *s, const ct_work *w)
{
	return in_parts(w) ? SHM_CHUNK / (size_t)s->base.size & ~(size_t)(SHM_LINE - 1) : SHM_CHUNK;
}

static struct round round_at(const struct shm *s, const ct_work *w, uint64_t i)
{
	size_t pitch = pitch_of(s, w), at = i * pitch, left = total_bytes(w) - at;

	return (struct round){.g = s->staged_rounds + i, .at = at, .len = left < pitch ? left : pitch, .pitch = pitch};
}

/* Publishes the next round, if all ranks have read the previous contents of the buffer. */
static void hand_in(struct shm *s, ct_work *w)
{
	struct round r = round_at(s, w, w->scratch[PUT]);

	if (r.g >= 2 && !ALL_AT_LEAST(s, staged_out, r.g - 1))
		return;
	if (s->base.rank == 0)
		reset(&s->ctl->staged[r.g & 1]);
	put_in(s, w, r.at, r.len, r.pitch, shm_staging(s, s->base.rank, r.g));
	w->scratch[PUT]++;
	s->moved = true;
	atomic_store_explicit(&shm_me(s)->staged_in, r.g + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (ALL_AT_LEAST(s, staged_in, r.g + 1))
		ct__shm_wake_all(s);
}

static void take(struct shm *s, ct_work *w, bool greedy)
{
	struct round r = round_at(s, w, w->scratch[GOT]);
	char *base[SHM_MAX_RANKS];

	if (!ALL_AT_LEAST(s, staged_in, r.g + 1))
		return;
	for (int q = 0; q < s->base.size; q++)
		base[q] = shm_staging(s, q, r.g);
	if (reduces(w) && !do_tiles(s, w, &s->ctl->staged[r.g & 1], base, r.len, true, greedy))
		return;
	for (int q = 0; q < s->base.size; q++)
		s->in[q] = base[q];
	take_out(s, w, r.at, r.len, r.pitch, true);
	w->scratch[DRAWN] = 0;
	w->scratch[GOT]++;
	s->moved = true;
	atomic_store_explicit(&shm_me(s)->staged_out, r.g + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (ALL_AT_LEAST(s, staged_out, r.g + 1))
		ct__shm_wake_all(s);
}

static void do_staged(struct shm *s, ct_work *w, bool greedy)
{
	size_t pitch = pitch_of(s, w);
	uint64_t n = (total_bytes(w) + pitch - 1) / pitch, before;

	do {
		before = w->scratch[PUT] + w->scratch[GOT];
		if (w->scratch[PUT] < n && w->scratch[PUT] < w->scratch[GOT] + 2)
			hand_in(s, w);
		if (w->scratch[GOT] < w->scratch[PUT])
			take(s, w, greedy);
	} while (w->scratch[GOT] < n && w->scratch[PUT] + w->scratch[GOT] != before);
	if (w->scratch[GOT] == n) {
		s->staged_rounds += n;
		w->scratch[WAY] = FINISHED;
	}
}

static void complete_head(struct shm *s)
{
	ct_work *w = s->head;

	s->head = w->next;
	if (!s->head)
		s->tail = NULL;
	s->moved = true;
	s->n_done++;
	ct__flight_done(s->base.flight, w->seq);
	atomic_store_explicit(&w->status, CT_OK, memory_order_relaxed);
	atomic_store_explicit(&shm_me(s)->done, s->n_done, memory_order_release);
	ct__shm_wake_for_done(s);
}

enum ct_status ct__shm_coll_advance(struct shm *s, bool greedy)
{
	publish(s);
	for (ct_work *w = s->head; w && w != s->unpublished; w = w->next) {
		uint64_t seq = w->scratch[SEQ];

		if (s->seen_posted <= seq) {
			if (!ALL_AT_LEAST(s, posted, seq + 1))
				return CT_OK;
			s->seen_posted = seq + 1;
		}
		if (w->scratch[WAY] == UNDECIDED)
			CT_TRY(decide(s, w));
		if (w->scratch[WAY] == INLINE)
			do_inline(s, w);
		else if (w->scratch[WAY] == DIRECT)
			do_direct(s, w, greedy);
		else if (w->scratch[WAY] == STAGED && w == s->head)
			do_staged(s, w, greedy);
		while (s->head && s->head != s->unpublished && s->head->scratch[WAY] == FINISHED)
			complete_head(s);
	}
	return CT_OK;
}
