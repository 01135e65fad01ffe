/* Members and the failure record of the store server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dist/store/failure.h"
#include "dist/store/server_impl.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

/* How long a report waits for one that explains more. A launcher knows within milliseconds how its child process ended.
 * A consequence (a rank has lost its peer) arrives shortly before or after the end of that peer's connection. */
#define LAUNCHER_GRACE_NS (100 * CT_MS)
#define CONSEQUENCE_GRACE_NS (300 * CT_MS)

/* Index of the first member whose rank is not lower. */
static int place_of(const ct_store_server *s, int rank)
{
	int lo = 0, hi = s->n_members;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (s->members[mid]->state.rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct ct_srv_member *ct__srv_member_find(ct_store_server *s, int rank)
{
	int i = place_of(s, rank);

	return i < s->n_members && s->members[i]->state.rank == rank ? s->members[i] : NULL;
}

struct ct_srv_member *ct__srv_member_add(ct_store_server *s, int rank)
{
	int at = place_of(s, rank);
	struct ct_srv_member *m;

	if (s->n_members == s->cap_members) {
		int cap = s->cap_members ? s->cap_members * 2 : 16;
		struct ct_srv_member **grown = ct_realloc(s->members, (size_t)cap, sizeof(struct ct_srv_member *));

		if (!grown)
			return NULL;
		s->members = grown;
		s->cap_members = cap;
	}
	m = CT_NEW(struct ct_srv_member);
	if (!m)
		return NULL;
	m->state.rank = rank;
	m->state.at = CT_POSITION_UNKNOWN;
	memmove(s->members + at + 1, s->members + at, (size_t)(s->n_members - at) * sizeof(struct ct_srv_member *));
	s->members[at] = m;
	s->n_members++;
	return m;
}

void ct__srv_member_remove(ct_store_server *s, struct ct_srv_member *m)
{
	int at = place_of(s, m->state.rank);

	for (struct ct_srv_conn *c = s->ready.first; c; c = c->next) {
		if (c->member == m)
			c->member = NULL;
	}
	s->n_members--;
	memmove(s->members + at, s->members + at + 1, (size_t)(s->n_members - at) * sizeof(struct ct_srv_member *));
	ct_free(m);
}

void ct__srv_send_failure(struct ct_srv_conn *c)
{
	struct ct_str b = {0};

	ct_wire_begin(&b, CT_WIRE_FAILED, CT_PEER_LOST, 0);
	ct_wire_put_failure(&b, &c->srv->failure);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
}

static void record(ct_store_server *s)
{
	struct ct_str b = {0};
	struct ct_blob *frame;

	s->have_pending = false;
	pthread_mutex_lock(&s->lock); /* other threads read them in ct_store_server_failure */
	s->failure = s->pending;
	s->failed = true;
	pthread_mutex_unlock(&s->lock);
	if (!s->quiet)
		CT_DEBUG("the run has failed: %s", s->failure.message);
	ct_wire_begin(&b, CT_WIRE_FAILED, CT_PEER_LOST, 0);
	ct_wire_put_failure(&b, &s->failure);
	ct_wire_end(&b, 0);
	frame = b.failed ? NULL : ct_blob_make(&s->used, b.s, b.len);
	ct_str_release(&b);
	/* Send the record to all connections before the replies to waits, so that a client whose wait ends already has
	 * the record. */
	for (struct ct_srv_conn *c = s->ready.first; c; c = c->next) {
		ct__srv_conn_send(c, frame ? ct_blob_ref(frame) : NULL);
		ct__srv_conn_flush(c);
	}
	ct_blob_unref(frame);
	ct__srv_waits_fail(s);
}

void ct__srv_offer_failure(ct_store_server *s, const struct ct_failure *f, enum ct_srv_weight weight)
{
	int64_t grace = weight == SRV_CAUSE         ? 0
			: weight == SRV_CONSEQUENCE ? CONSEQUENCE_GRACE_NS
			: s->opts.member < 0        ? LAUNCHER_GRACE_NS
						    : 0;
	int64_t due = ct_deadline_in(grace);

	if (s->failed)
		return;
	if (!s->have_pending || (int)weight > s->pending_weight) {
		s->pending = *f;
		s->pending_weight = (int)weight;
	}
	if (!s->have_pending || due < s->pending_due)
		s->pending_due = due;
	s->have_pending = true;
	if (grace == 0)
		record(s);
}

void ct__srv_add_last_seen(ct_store_server *s, struct ct_failure *f)
{
	const struct ct_srv_member *m = f->rank >= 0 ? ct__srv_member_find(s, f->rank) : NULL;
	char where[CT_WHERE_TEXT];

	if (!m)
		return;
	/* The launcher has read the page of the rank, which is more recent than its last heartbeat. */
	if (f->at.phase == CT_RANK_UNKNOWN)
		f->at.phase = m->state.at.phase;
	if (f->at.step < 0)
		f->at.step = m->state.at.step;
	if (f->at.collective < 0)
		f->at.collective = m->state.at.collective;
	ct_where_text(where, sizeof(where), &f->at);
	ct_wire_copy(f->message, sizeof(f->message) - strlen(where), f->message); /* a long message is cut */
	memcpy(f->message + strlen(f->message), where, strlen(where) + 1);
}

bool ct__srv_has_left(ct_store_server *s, const struct ct_failure *f)
{
	const struct ct_srv_member *m = ct__srv_member_find(s, f->rank);

	return f->status == CT_INTERRUPTED && m && m->state.left;
}

void ct__srv_record_tick(ct_store_server *s, int64_t now)
{
	if (s->have_pending && now >= s->pending_due)
		record(s);
}

void ct__srv_member_lost(ct_store_server *s, struct ct_srv_member *m, int err)
{
	struct ct_failure f;

	if (m->reported)
		return;
	if (ct_errno_is_silence(err)) {
		ct_failure_set(&f, &m->state, CT_PEER_LOST, "has not answered on the network for 15 s (%s)",
			       strerror(err));
		ct_wire_copy(f.hint, sizeof(f.hint), "check that its host is up and that the network to it works");
	} else if (err == EPROTO) {
		ct_failure_set(&f, &m->state, CT_BUG, "sent a malformed message to the store");
	} else {
		ct_failure_set(&f, &m->state, CT_PEER_LOST, "is gone: it closed its connection without BYE");
		ct_wire_copy(f.hint, sizeof(f.hint),
			     "it was killed (out of memory?) or crashed: see its own output and its host's kernel log");
	}
	ct__srv_offer_failure(s, &f, SRV_ENDED);
}
