/* Requests to the store server that wait for a key. All waits are in one list, which is searched whenever a key is set;
 * the hash makes this cheap. A wait ends with the value, with the failure of the run, by a cancellation, or with its
 * connection, and each of these removes it from the list. When the run has failed, all waits are answered, because the
 * keys may never be set. */
#include <string.h>

#include "base/rng.h"
#include "dist/store/server_impl.h"

void ct__srv_wait_add(struct ct_srv_conn *c, uint64_t tag, const char *key)
{
	struct ct_srv_wait *w;

	if (c->n_waits >= SRV_MAX_WAITS) {
		ct__srv_reply(c, tag, CT_UNSUPPORTED, "one connection has more than %d waits at the same time",
			      SRV_MAX_WAITS);
		return;
	}
	w = CT_NEW(struct ct_srv_wait);
	if (!w) {
		ct__srv_reply(c, tag, CT_NOMEM, "the store is out of memory");
		return;
	}
	w->conn = c;
	w->tag = tag;
	w->hash = ct_hash64(key, strlen(key));
	ct_wire_copy(w->key, sizeof(w->key), key);
	w->next = c->srv->waits;
	c->srv->waits = w;
	c->n_waits++;
}

/* Unlinks and frees *at. */
static void wait_free(struct ct_srv_wait **at)
{
	struct ct_srv_wait *w = *at;

	*at = w->next;
	w->conn->n_waits--;
	ct_free(w);
}

void ct__srv_waits_key_set(ct_store_server *s, const char *key, struct ct_blob *value)
{
	uint64_t hash = ct_hash64(key, strlen(key));

	for (struct ct_srv_wait **at = &s->waits; *at;) {
		struct ct_srv_wait *w = *at;
		struct ct_str b = {0};

		if (w->hash != hash || strcmp(w->key, key) != 0) {
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

void ct__srv_wait_cancel(struct ct_srv_conn *c, uint64_t tag, uint64_t wait_tag)
{
	struct ct_srv_wait **at = &c->srv->waits;

	while (*at && ((*at)->conn != c || (*at)->tag != wait_tag))
		at = &(*at)->next;
	if (*at)
		wait_free(at);
	ct__srv_reply(c, tag, CT_OK, NULL);
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
