/* Requests of the store server that wait: for a key, or for the others of a barrier. */
#include <string.h>

#include "dist/store/server_impl.h"

void ct__srv_wait_add(struct ct_srv_conn *c, uint64_t tag, const char *name, uint32_t n)
{
	struct ct_srv_wait *w;

	if (c->n_waits >= SRV_MAX_WAITS) {
		ct__srv_reply(c, tag, CT_UNSUPPORTED, "more than %d waits at once on one connection", SRV_MAX_WAITS);
		return;
	}
	w = CT_NEW(struct ct_srv_wait);
	if (!w) {
		ct__srv_reply(c, tag, CT_NOMEM, "the store is out of memory");
		return;
	}
	w->conn = c;
	w->tag = tag;
	w->n = n;
	w->hash = ct_text_hash(name);
	ct_wire_copy(w->name, sizeof(w->name), name);
	w->next = c->srv->waits;
	c->srv->waits = w;
	c->n_waits++;
}

/* Unlinks *at. */
static void wait_free(struct ct_srv_wait **at)
{
	struct ct_srv_wait *w = *at;

	*at = w->next;
	w->conn->n_waits--;
	ct_free(w);
}

static bool same(const struct ct_srv_wait *w, bool barrier, uint64_t hash, const char *name)
{
	return (w->n > 0) == barrier && w->hash == hash && strcmp(w->name, name) == 0;
}

void ct__srv_waits_key_set(ct_store_server *s, const char *key, struct ct_blob *value)
{
	uint64_t hash = ct_text_hash(key);

	for (struct ct_srv_wait **at = &s->waits; *at;) {
		struct ct_srv_wait *w = *at;
		struct ct_str b = {0};

		if (!same(w, false, hash, key)) {
			at = &w->next;
			continue;
		}
		ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, w->tag);
		ct_wire_end(&b, value->len);
		ct__srv_conn_send_frame(w->conn, &b);
		ct__srv_conn_send(w->conn, ct_blob_ref(value));
		ct__srv_conn_flush(w->conn);
		wait_free(at);
	}
}

/* A rank waits at one barrier of a name at a time; observers have no rank to tell them apart. */
static bool here_already(const struct ct_srv_wait *w, const struct ct_srv_conn *c)
{
	return w->conn == c || (c->member && w->conn->member == c->member);
}

void ct__srv_barrier(struct ct_srv_conn *c, uint64_t tag, const char *name, uint32_t n)
{
	ct_store_server *s = c->srv;
	uint64_t hash = ct_text_hash(name);
	uint32_t came = 1;

	for (const struct ct_srv_wait *w = s->waits; w; w = w->next) {
		if (!same(w, true, hash, name))
			continue;
		if (w->n != n) {
			ct__srv_reply(c, tag, CT_MISMATCH, "barrier \"%s\" is for %u members here and for %u elsewhere",
				      name, (unsigned)n, (unsigned)w->n);
			return;
		}
		if (here_already(w, c)) {
			ct__srv_reply(c, tag, CT_USAGE, "this member waits at barrier \"%s\" already", name);
			return;
		}
		came++;
	}
	if (came < n) {
		ct__srv_wait_add(c, tag, name, n);
		return;
	}
	ct__srv_reply(c, tag, CT_OK, NULL);
	for (struct ct_srv_wait **at = &s->waits; *at;) {
		struct ct_srv_conn *other = (*at)->conn;

		if (!same(*at, true, hash, name)) {
			at = &(*at)->next;
			continue;
		}
		ct__srv_reply(other, (*at)->tag, CT_OK, NULL);
		ct__srv_conn_flush(other);
		wait_free(at);
	}
}

void ct__srv_wait_cancel(struct ct_srv_conn *c, uint64_t tag, uint64_t wait_tag)
{
	struct ct_srv_wait **at = &c->srv->waits;
	uint32_t came = 0;
	struct ct_str b = {0}, ranks = {0};

	while (*at && ((*at)->conn != c || (*at)->tag != wait_tag))
		at = &(*at)->next;
	for (const struct ct_srv_wait *w = *at && (*at)->n > 0 ? c->srv->waits : NULL; w; w = w->next) {
		if (!same(w, true, (*at)->hash, (*at)->name))
			continue;
		came++;
		if (w->conn->member && came <= 32)
			ct_str_addf(&ranks, "%s%d", ranks.len ? ", " : "", w->conn->member->state.rank);
	}
	if (*at)
		wait_free(at);
	ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, tag);
	ct_wire_put_u32(&b, came);
	ct_wire_put_str(&b, ct_str_text(&ranks));
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	ct_str_release(&ranks);
}

void ct__srv_waits_drop(struct ct_srv_conn *c)
{
	for (struct ct_srv_wait **at = &c->srv->waits; *at && c->n_waits > 0;) {
		if ((*at)->conn == c)
			wait_free(at);
		else
			at = &(*at)->next;
	}
}

void ct__srv_waits_fail(ct_store_server *s)
{
	while (s->waits) {
		struct ct_srv_conn *c = s->waits->conn;

		ct__srv_reply(c, s->waits->tag, CT_PEER_LOST, "%s", s->failure.message);
		wait_free(&s->waits);
		ct__srv_conn_flush(c);
	}
}
