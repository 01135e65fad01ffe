/* A rank writes its latest operations to the store under SCOPE/issued/RANK, and then increments the counter
 * SCOPE/waits/RANK. The others read the counter first, which does not wait for that rank, and get the operations only
 * if it is not 0. So the counter must be incremented last. Before the deadline, each rank asks only a few others; at
 * the deadline of a collective, it asks all, and names those that have not reached the operation. A rank writes its
 * operations again only if it has posted more since. The store contains struct issue as it is in memory, so its layout
 * must be the same on all ranks.
 *
 * Operations belong together if they have the same number. All operations that both ranks still know are compared, not
 * only the one that waits: a rank that did not have to wait in the operation on which they disagree has continued, and
 * now waits in a later one. For the same reason, the tag of a collective is a digest of all collectives up to it
 * (c->history). ct__comm_tag must be called exactly once for each operation, in the order of posting; messages do not
 * change the history, because their order may differ between ranks. */
#include "dist/comm/diagnose_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define ASK_NS (2 * CT_SEC)
#define NEIGHBOURS 16 /* ranks that a rank asks for before the deadline */

#define LATEST 16
#define NOTHING (-1) /* the kind of an unused entry */

/* An operation in the store. */
struct issue {
	int64_t number; /* as in struct ct_flight_record */
	int64_t n;
	int32_t kind, dtype, op, root, tag, bucket;
};

/* One multiplication per value, and few values, because every operation computes its tag. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15;
	return h ^ h >> 32;
}

uint32_t ct__comm_tag(const ct_work *w)
{
	ct_comm *c = w->comm;
	uint64_t tag = mix(0, 1);

	w = ct__work_whole(w);
	tag = mix(mix(tag, w->n), (uint64_t)w->dtype);
	if (ct__comm_is_p2p(w->kind))
		return (uint32_t)mix(tag, (uint64_t)(uint32_t)w->tag);
	tag = mix(tag, (uint64_t)w->kind | (uint64_t)w->op << 8 | (uint64_t)(uint32_t)w->root << 32);
	c->history = mix(c->history, mix(tag, (uint64_t)w->bucket));
	return (uint32_t)c->history;
}

/* A rank exchanges messages with few others, so a search is fast. */
enum ct_status ct__comm_number_message(ct_comm *c, const struct ct_request *w, int64_t *out)
{
	struct ct_message_count *m = c->counts, *end = m + c->n_counts;

	while (m < end && (m->peer != w->root || m->kind != w->kind || m->tag != w->tag))
		m++;
	if (m == end) {
		CT_TRY_GROW(c->counts, c->n_counts, c->max_counts);
		m = &c->counts[c->n_counts++];
		*m = (struct ct_message_count){.kind = w->kind, .peer = w->root, .tag = w->tag};
	}
	*out = -1 - m->n++;
	return CT_OK;
}

/* Gets the latest operations from the flight record. */
static void get_latest(const ct_comm *c, int64_t n_seq, struct issue latest[LATEST])
{
	struct ct_flight_record r;

	for (int k = 0; k < LATEST; k++) {
		latest[k] = (struct issue){.kind = NOTHING};
		if (ct__flight_at(c->flight, n_seq - 1 - k, &r))
			latest[k] = (struct issue){.number = r.number,
						   .n = (int64_t)r.n,
						   .kind = (int32_t)r.kind,
						   .dtype = (int32_t)r.dtype,
						   .op = (int32_t)r.op,
						   .root = r.root,
						   .tag = r.tag,
						   .bucket = r.bucket};
	}
}

static void key_of(const ct_comm *c, const char *what, int q, char *buf, size_t len)
{
	snprintf(buf, len, "%s/%s/%d", c->scope, what, q);
}

static enum ct_status publish(ct_comm *c, int64_t n_seq)
{
	struct issue latest[LATEST];
	char key[128];
	int64_t n;

	get_latest(c, n_seq, latest);
	key_of(c, "issued", c->rank, key, sizeof(key));
	CT_TRY(ct_store_set_by(c->world->store, key, latest, sizeof(latest),
			       ct_store_patience(c->world->store, ASK_NS)));
	/* Other ranks can read this counter without waiting, and the operations after it is set. */
	key_of(c, "waits", c->rank, key, sizeof(key));
	return ct_store_add_by(c->world->store, key, 1, ct_store_patience(c->world->store, ASK_NS), &n);
}

static enum ct_status publish_once(ct_comm *c)
{
	const int64_t n_seq = atomic_load(&c->seq);
	enum ct_status st;

	if (atomic_exchange(&c->published, n_seq) == n_seq)
		return CT_OK;
	st = publish(c, n_seq);
	if (st < 0)
		atomic_store(&c->published, -1);
	return st;
}

/* Reads the operations of rank q. *known is false if it has not published them. */
static enum ct_status ask(ct_comm *c, int q, struct issue issued[LATEST], bool *known)
{
	char key[128], *value;
	int64_t n;
	size_t len;

	*known = false;
	key_of(c, "waits", q, key, sizeof(key));
	CT_TRY(ct_store_add_by(c->world->store, key, 0, ct_store_patience(c->world->store, ASK_NS), &n));
	if (n == 0)
		return CT_OK;
	key_of(c, "issued", q, key, sizeof(key));
	CT_TRY(ct_store_get(c->world->store, key, ct_store_patience(c->world->store, ASK_NS), &value, &len));
	*known = len == LATEST * sizeof(*issued);
	if (*known)
		memcpy(issued, value, len);
	ct_free(value);
	return CT_OK;
}

static void issue_text(const ct_comm *c, const struct issue *i, char *buf, size_t len)
{
	const struct ct_flight_record r = {.kind = (enum ct_comm_kind)i->kind,
					   .dtype = (enum ct_dtype)i->dtype,
					   .op = (enum ct_redop)i->op,
					   .n = (uint64_t)i->n,
					   .root = i->root,
					   .tag = i->tag,
					   .bucket = i->bucket,
					   .step = -1};

	ct__flight_text(c, &r, buf, len);
}

static enum ct_status disagree(const ct_comm *c, const struct issue *own, int q, const struct issue *other)
{
	char me[128], who[128], mine[224], theirs[224];

	ct__comm_peer_text(c, c->rank, me, sizeof(me));
	ct__comm_peer_text(c, q, who, sizeof(who));
	issue_text(c, own, mine, sizeof(mine));
	issue_text(c, other, theirs, sizeof(theirs));
	if (own->number < 0)
		CT_FAIL(CT_MISMATCH, "ranks disagree on a message: %s issues %s, but %s issues %s", me, mine, who,
			theirs);
	else
		CT_FAIL(CT_MISMATCH, "ranks disagree at collective %lld: %s issues %s, but %s issues %s",
			(long long)other->number, me, mine, who, theirs);
	return ct_error_hint(CT_COMM_MISMATCH_HINT);
}

/* Returns true if `issued` by rank q is the other part of the operation `own` of this rank: the same collective, or the
 * other side of the message. */
static bool belongs_to(const ct_comm *c, const struct issue *own, int q, const struct issue *issued)
{
	if (issued->kind == NOTHING || issued->number != own->number)
		return false;
	return own->number >= 0 ||
	       (issued->kind != own->kind && issued->tag == own->tag && own->root == q && issued->root == c->rank);
}

static bool agrees(const struct issue *own, const struct issue *other)
{
	if (own->n != other->n || own->dtype != other->dtype)
		return false;
	return own->number < 0 || (own->kind == other->kind && own->op == other->op && own->root == other->root &&
				   own->bucket == other->bucket);
}

/* Compares an operation of this rank with those of rank q. *came is set if rank q has issued it, too. */
static enum ct_status compare_one(const ct_comm *c, const struct issue *own, int q, const struct issue *issued,
				  bool *came)
{
	*came = false;
	for (int k = 0; k < LATEST; k++) {
		if (!belongs_to(c, own, q, &issued[k]))
			continue;
		*came = true;
		if (!agrees(own, &issued[k]))
			return disagree(c, own, q, &issued[k]);
	}
	return CT_OK;
}

/* *came is set if rank q has issued w, too. Earlier operations are compared as well: a rank that did not have to wait
 * in the one on which the ranks disagree, such as the root of a broadcast or the sender of a short message, has
 * continued. */
static enum ct_status compare(const ct_comm *c, const ct_work *w, int q, const struct issue *issued, bool *came)
{
	const ct_work *d = ct__work_whole(w);
	const struct issue own = {.number = d->number,
				  .n = (int64_t)d->n,
				  .kind = (int32_t)d->kind,
				  .dtype = (int32_t)d->dtype,
				  .op = (int32_t)d->op,
				  .root = d->root,
				  .tag = d->tag,
				  .bucket = d->bucket - 1};
	struct issue mine[LATEST];
	bool earlier;

	*came = false;
	get_latest(c, atomic_load(&c->seq), mine);
	for (int k = 0; k < LATEST; k++) {
		if (mine[k].kind != NOTHING)
			CT_TRY(compare_one(c, &mine[k], q, issued, &earlier));
	}
	return compare_one(c, &own, q, issued, came);
}

static enum ct_status late(const ct_comm *c, const ct_work *w, const char *names, int n)
{
	char what[224];

	ct__work_text(w, what, sizeof(what));
	CT_FAIL(CT_TIMEOUT, "%s (operation %lld) has waited %.1f s for %s%s", what, (long long)w->seq,
		(double)c->opts.timeout_ns / 1e9, n ? names : "its peers",
		n == 0   ? ", although all of them have reached it: the network is slow or broken"
		: n == 1 ? ", which has not reached it"
			 : ", which have not reached it");
	return ct_error_hint("check whether that process is stopped, swapping, or busy for longer than dist.timeout");
}

/* Before the deadline, each rank asks only for some others, so that the requests of many ranks do not keep the store
 * busy. A rank that has issued another operation is one of these for some rank. */
static bool is_asked(const ct_comm *c, const ct_work *w, int q, bool final)
{
	if (ct__comm_is_p2p(w->kind))
		return q == w->root;
	return q != c->rank && (final || (q - c->rank + c->size) % c->size <= NEIGHBOURS);
}

/* Compares w with the operations of other ranks. Appends the names of those that have not come to w, until `names` is
 * full. */
static enum ct_status compare_all(ct_comm *c, const ct_work *w, bool final, char *names, size_t size, int *n)
{
	struct issue issued[LATEST];
	bool known, came;
	size_t len = 0;
	char who[128];

	CT_TRY(publish_once(c));
	for (int q = 0; q < c->size && len < size - 160; q++) {
		if (!is_asked(c, w, q, final))
			continue;
		CT_TRY(ask(c, q, issued, &known));
		came = false;
		if (known)
			CT_TRY(compare(c, w, q, issued, &came));
		if (came)
			continue;
		ct__comm_peer_text(c, q, who, sizeof(who));
		len += (size_t)snprintf(names + len, size - len, "%s%s", (*n)++ ? ", " : "", who);
	}
	return CT_OK;
}

enum ct_status ct__comm_diagnose(ct_comm *c, const ct_work *w, bool final)
{
	char names[512] = "";
	enum ct_status st;
	int n = 0;

	st = compare_all(c, w, final, names, sizeof(names), &n);
	if (st == CT_TIMEOUT && !final) { /* the store may be stopped for a short time */
		ct_error_clear();
		return CT_OK;
	}
	CT_TRY(st);
	return final ? late(c, w, names, n) : CT_OK;
}
