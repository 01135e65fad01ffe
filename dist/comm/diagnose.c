#include "dist/comm/diagnose_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define ASK_NS (2 * CT_SEC)

/* Indexes of ct_work.scratch. */
enum { NUMBER = 5 };
#define NOTHING (-1) /* the kind of an unused entry */

static uint32_t mix(uint32_t h, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		h = (h ^ (uint32_t)(v >> (8 * i) & 0xff)) * 16777619u;
	return h;
}

void ct__comm_history_init(struct ct_comm_history *h)
{
	pthread_mutex_init(&h->lock, NULL);
	for (int i = 0; i < CT_COMM_HISTORY; i++)
		h->last[i].kind = NOTHING;
	h->ready = true;
}

void ct__comm_history_release(struct ct_comm_history *h)
{
	if (h->ready)
		pthread_mutex_destroy(&h->lock);
	h->ready = false;
}

static int64_t note(struct ct_comm_history *h, const ct_work *w)
{
	int64_t number;

	pthread_mutex_lock(&h->lock);
	number = ct__comm_is_p2p(w->kind) ? -1 - h->n_messages++ : h->n_collectives++;
	h->last[h->n_issued++ % CT_COMM_HISTORY] = (struct ct_comm_issue){.number = number,
									  .n = (int64_t)w->n,
									  .kind = (int32_t)w->kind,
									  .dtype = (int32_t)w->dtype,
									  .op = (int32_t)w->op,
									  .root = w->root,
									  .tag = w->tag};
	pthread_mutex_unlock(&h->lock);
	return number;
}

uint32_t ct__comm_history_add(struct ct_comm_history *h, ct_work *w)
{
	int64_t number = note(h, w);
	uint32_t tag = 2166136261u;

	w->scratch[NUMBER] = (uint64_t)number;
	tag = mix(tag, w->n);
	tag = mix(tag, (uint64_t)w->dtype);
	if (ct__comm_is_p2p(w->kind))
		return mix(tag, (uint64_t)(uint32_t)w->tag);
	tag = mix(tag, (uint64_t)w->kind);
	tag = mix(tag, (uint64_t)w->op);
	tag = mix(tag, (uint64_t)(uint32_t)w->root);
	return mix(tag, (uint64_t)number);
}

static void key_of(const ct_comm *c, const char *what, int q, char *buf, size_t len)
{
	snprintf(buf, len, "%s/%s/%d", c->scope, what, q);
}

static enum ct_status publish(ct_comm *c, struct ct_comm_history *h)
{
	struct ct_comm_issue copy[CT_COMM_HISTORY];
	int64_t n_issued, n;
	char key[128];

	pthread_mutex_lock(&h->lock);
	n_issued = h->published == h->n_issued ? -1 : h->n_issued;
	memcpy(copy, h->last, sizeof(copy));
	h->published = h->n_issued;
	pthread_mutex_unlock(&h->lock);
	if (n_issued < 0)
		return CT_OK;
	key_of(c, "issued", c->rank, key, sizeof(key));
	CT_TRY(ct_store_set(c->world->store, key, copy, sizeof(copy)));
	/* Other ranks can read this counter without waiting, and the operations after it is set. */
	key_of(c, "waits", c->rank, key, sizeof(key));
	return ct_store_add(c->world->store, key, 1, &n);
}

/* Reads the operations of rank q. *known is false if it has not published them. */
static enum ct_status ask(ct_comm *c, int q, struct ct_comm_issue issued[CT_COMM_HISTORY], bool *known)
{
	char key[128], *value;
	int64_t n;
	size_t len;

	*known = false;
	key_of(c, "waits", q, key, sizeof(key));
	CT_TRY(ct_store_add(c->world->store, key, 0, &n));
	if (n == 0)
		return CT_OK;
	key_of(c, "issued", q, key, sizeof(key));
	CT_TRY(ct_store_get(c->world->store, key, ct_deadline_in(ASK_NS), &value, &len));
	*known = len == CT_COMM_HISTORY * sizeof(*issued);
	if (*known)
		memcpy(issued, value, len);
	ct_free(value);
	return CT_OK;
}

static void issue_text(const ct_comm *c, const struct ct_comm_issue *i, char *buf, size_t len)
{
	ct__comm_op_text(c, (enum ct_comm_kind)i->kind, (enum ct_dtype)i->dtype, (enum ct_redop)i->op, (uint64_t)i->n,
			 i->root, i->tag, buf, len);
}

static enum ct_status disagree(const ct_comm *c, const ct_work *w, int q, const struct ct_comm_issue *other)
{
	char me[128], who[128], mine[128], theirs[128];

	ct__comm_peer_text(c, c->rank, me, sizeof(me));
	ct__comm_peer_text(c, q, who, sizeof(who));
	ct__work_text(w, mine, sizeof(mine));
	issue_text(c, other, theirs, sizeof(theirs));
	if (ct__comm_is_p2p(w->kind))
		(void)CT_FAIL(CT_MISMATCH, "ranks disagree on a message: %s issues %s, but %s issues %s", me, mine, who,
			      theirs);
	else
		(void)CT_FAIL(CT_MISMATCH, "ranks disagree at collective %lld: %s issues %s, but %s issues %s",
			      (long long)other->number, me, mine, who, theirs);
	ct_error_hint("all ranks must run the same program with the same config");
	return CT_MISMATCH;
}

/* Returns true if i is a message in the other direction with the same tag. */
static bool is_counterpart(const ct_comm *c, const ct_work *w, int q, const struct ct_comm_issue *i)
{
	return ct__comm_is_p2p((enum ct_comm_kind)i->kind) && i->number < 0 && i->kind != (int32_t)w->kind &&
	       w->root == q && i->root == c->rank && i->tag == w->tag;
}

/* *came is set if rank q has issued w, too. */
static enum ct_status compare(const ct_comm *c, const ct_work *w, int q, const struct ct_comm_issue *issued, bool *came)
{
	const struct ct_comm_issue *misfit = NULL;

	*came = false;
	for (int k = 0; k < CT_COMM_HISTORY; k++) {
		const struct ct_comm_issue *i = &issued[k];
		bool same;

		if (i->kind == NOTHING)
			continue;
		same = i->n == (int64_t)w->n && i->dtype == (int32_t)w->dtype;

		if (ct__comm_is_p2p(w->kind)) {
			if (is_counterpart(c, w, q, i)) {
				*came |= same;
				misfit = same ? misfit : i;
			}
		} else if (i->number == (int64_t)w->scratch[NUMBER] && !ct__comm_is_p2p((enum ct_comm_kind)i->kind)) {
			*came = true;
			if (!same || i->kind != (int32_t)w->kind || i->op != (int32_t)w->op || i->root != w->root)
				return disagree(c, w, q, i);
		}
	}
	return misfit && !*came ? disagree(c, w, q, misfit) : CT_OK;
}

static enum ct_status late(const ct_comm *c, const ct_work *w, const char *names, int n)
{
	char what[128];

	ct__work_text(w, what, sizeof(what));
	(void)CT_FAIL(CT_TIMEOUT, "%s (operation %lld) has waited %.1f s for %s%s", what, (long long)w->seq,
		      (double)c->opts.timeout_ns / 1e9, n ? names : "its peers",
		      n == 0   ? ", although all of them have reached it: the network is slow or broken"
		      : n == 1 ? ", which has not reached it"
			       : ", which have not reached it");
	ct_error_hint("check whether that process is stopped, swapping, or busy for longer than dist.timeout");
	return CT_TIMEOUT;
}

enum ct_status ct__comm_diagnose(ct_comm *c, struct ct_comm_history *h, const ct_work *w, bool final)
{
	struct ct_comm_issue issued[CT_COMM_HISTORY];
	char names[512] = "", who[128];
	bool known, came;
	size_t len = 0;
	int n = 0;

	CT_TRY(publish(c, h));
	for (int q = 0; q < c->size; q++) {
		if (q == c->rank || (ct__comm_is_p2p(w->kind) && q != w->root))
			continue;
		CT_TRY(ask(c, q, issued, &known));
		came = false;
		if (known)
			CT_TRY(compare(c, w, q, issued, &came));
		if (came || len >= sizeof(names) - 160)
			continue;
		ct__comm_peer_text(c, q, who, sizeof(who));
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", n++ ? ", " : "", who);
	}
	return final ? late(c, w, names, n) : CT_OK;
}
