/* What each request to the store server does. Arguments are decoded completely before anything changes; a body that is
 * malformed ends the connection. Everything else that can go wrong is answered by a reply with a status. Every request
 * except heartbeats and READY gets exactly one reply, now or, if it waits for a key, later (waits.c); a client without
 * a reply would wait until its deadline. Who may report whose failure is checked here, because a report ends the
 * run. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dist/store/failure.h"
#include "dist/store/server_impl.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

struct key {
	char s[CT_STORE_MAX_KEY + 1];
};

void ct__srv_reply(struct ct_srv_conn *c, uint64_t tag, enum ct_status st, const char *fmt, ...)
{
	struct ct_str b = {0}, text = {0};
	va_list ap;

	if (fmt) {
		va_start(ap, fmt);
		ct_str_addv(&text, fmt, ap);
		va_end(ap);
	}
	ct_wire_begin(&b, CT_WIRE_REPLY, st, tag);
	if (fmt)
		ct_wire_put_str(&b, ct_str_text(&text));
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	ct_str_release(&text);
}

/* Checks that there is room for n more bytes; if not, replies with an error. */
static bool has_room(struct ct_srv_conn *c, uint64_t tag, size_t n)
{
	if (n > CT_STORE_MAX_VALUE) {
		ct__srv_reply(c, tag, CT_UNSUPPORTED, "the value has %zu bytes, but the store allows at most %zu", n,
			      CT_STORE_MAX_VALUE);
		return false;
	}
	if (c->srv->used + n > SRV_MAX_BYTES) {
		ct__srv_reply(c, tag, CT_NOMEM, "the store is full (64 MiB)");
		return false;
	}
	return true;
}

/* Stores the value and wakes the clients that wait for the key. On failure, replies with an error. */
static bool put(struct ct_srv_conn *c, uint64_t tag, const char *key, const void *value, size_t len)
{
	struct ct_blob *b;

	if (!has_room(c, tag, len))
		return false;
	b = ct_blob_make(&c->srv->used, value, len);
	if (b && ct_store_table_set(&c->srv->table, key, ct_blob_ref(b)) == CT_OK) {
		ct__srv_waits_key_set(c->srv, key, b);
		ct_blob_unref(b);
		return true;
	}
	ct_blob_unref(b);
	ct__srv_reply(c, tag, CT_NOMEM, "the store is out of memory");
	return false;
}

static bool do_set(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	struct key key;
	const uint8_t *value;
	size_t len;

	ct_wire_str(r, key.s, sizeof(key.s));
	value = ct_wire_bytes(r, &len);
	if (!ct_wire_done(r))
		return false;
	if (put(c, tag, key.s, value, len))
		ct__srv_reply(c, tag, CT_OK, NULL);
	return true;
}

static bool do_get(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	struct ct_blob *value;
	struct ct_str b = {0};
	struct key key;
	bool wait;

	ct_wire_str(r, key.s, sizeof(key.s));
	wait = ct_wire_u8(r);
	if (!ct_wire_done(r))
		return false;
	value = ct_store_table_get(&c->srv->table, key.s);
	if (value) {
		ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, tag);
		ct_wire_end(&b, value->len);
		ct__srv_conn_send_frame(c, &b);
		ct__srv_conn_send(c, ct_blob_ref(value));
	} else if (!wait) {
		ct__srv_reply(c, tag, CT_NOT_FOUND, "the store has no key \"%s\"", key.s);
	} else if (c->srv->failed) {
		ct__srv_reply(c, tag, CT_PEER_LOST, "%s", c->srv->failure.message);
	} else {
		ct__srv_wait_add(c, tag, key.s);
	}
	return true;
}

/* Reads the number that is stored under a key; 0 if the key does not exist. False if the value is not a number. */
static bool number_of(const ct_store_server *s, const char *key, int64_t *out)
{
	const struct ct_blob *b = ct_store_table_get(&s->table, key);
	char text[32];

	*out = 0;
	if (!b)
		return true;
	if (b->len == 0 || b->len >= sizeof(text))
		return false;
	memcpy(text, b->data, b->len);
	text[b->len] = '\0';
	return ct_parse_i64(text, out) == CT_OK;
}

static bool do_add(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	struct key key;
	int64_t delta, v;
	struct ct_str b = {0};
	char text[32];

	ct_wire_str(r, key.s, sizeof(key.s));
	delta = ct_wire_i64(r);
	if (!ct_wire_done(r))
		return false;
	if (!number_of(c->srv, key.s, &v)) {
		ct__srv_reply(c, tag, CT_DATA, "the value of store key \"%s\" is not a number", key.s);
		return true;
	}
	if (__builtin_add_overflow(v, delta, &v)) {
		ct__srv_reply(c, tag, CT_DATA, "the number in store key \"%s\" would exceed 64 bits", key.s);
		return true;
	}
	snprintf(text, sizeof(text), "%" PRId64, v);
	if (!put(c, tag, key.s, text, strlen(text)))
		return true;
	ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, tag);
	ct_wire_put_i64(&b, v);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	return true;
}

static bool do_delete(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	struct key key;

	ct_wire_str(r, key.s, sizeof(key.s));
	if (!ct_wire_done(r))
		return false;
	(void)ct_store_table_delete(&c->srv->table, key.s);
	ct__srv_reply(c, tag, CT_OK, NULL);
	return true;
}

static bool do_cancel(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	int64_t wait_tag = ct_wire_i64(r);

	if (!ct_wire_done(r))
		return false;
	ct__srv_wait_cancel(c, tag, (uint64_t)wait_tag);
	return true;
}

static bool do_beat(struct ct_srv_conn *c, struct ct_wire_reader *r)
{
	const struct ct_position at = ct_wire_read_position(r);

	if (!ct_wire_done(r))
		return false;
	if (!c->member)
		return true;
	c->member->beat_ns = ct_now_ns();
	c->member->state.at = at;
	return true;
}

static void do_members(struct ct_srv_conn *c, uint64_t tag)
{
	const ct_store_server *s = c->srv;
	int64_t now = ct_now_ns();
	struct ct_str b = {0};

	ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, tag);
	ct_wire_put_u32(&b, (uint32_t)s->n_members);
	for (int i = 0; i < s->n_members; i++) {
		struct ct_member_state m = s->members[i]->state;

		m.beat_age_s = s->members[i]->beat_ns ? (double)(now - s->members[i]->beat_ns) / 1e9 : -1;
		m.connected = s->members[i]->conn;
		ct_wire_put_member(&b, &m);
	}
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
}

/* A member may report only its own failure. A launcher may report its own failure, and that of a rank that is on its
 * host or never joined. */
static bool may_report(const struct ct_srv_conn *c, const struct ct_failure *x)
{
	const struct ct_srv_member *m;

	if (c->role == CT_ROLE_MEMBER || c->role == CT_ROLE_AUXILIARY)
		return c->member && c->member->state.rank == x->rank;
	if (c->role != CT_ROLE_LAUNCHER)
		return false;
	if (x->rank < 0)
		return x->pid == c->pid && strcmp(x->host, c->host) == 0;
	m = ct__srv_member_find(c->srv, x->rank);
	return !m || strcmp(m->state.host, c->host) == 0;
}

static bool do_report(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	char who[CT_MEMBER_TEXT];
	struct ct_failure x;
	bool consequence;

	if (!ct_wire_get_failure(f, &x))
		return false;
	if (!may_report(c, &x)) {
		ct_member_text(who, sizeof(who), x.rank, x.pid, x.host);
		ct__srv_warn_refused(c, "it reported a failure of %s, which it may not do", who);
		ct__srv_reply(c, f->tag, CT_USAGE, "you may not report a failure of %s", who);
		return true;
	}
	if (c->member && c->member->state.rank == x.rank)
		c->member->reported = true;
	if (ct__srv_has_left(c->srv, &x)) {
		ct__srv_reply(c, f->tag, CT_OK, NULL);
		return true;
	}
	/* A launcher knows how the process ended, so its reports are never mere consequences. */
	consequence = c->role != CT_ROLE_LAUNCHER && (x.status == CT_PEER_LOST || x.status == CT_CANCELLED);
	if (c->role == CT_ROLE_LAUNCHER)
		ct__srv_add_last_seen(c->srv, &x);
	ct__srv_offer_failure(c->srv, &x, consequence ? SRV_CONSEQUENCE : SRV_CAUSE);
	ct__srv_reply(c, f->tag, CT_OK, NULL);
	return true;
}

static void do_bye(struct ct_srv_conn *c, uint64_t tag)
{
	c->bye = true;
	if (c->role == CT_ROLE_MEMBER && c->member)
		c->member->state.left = true;
	ct__srv_reply(c, tag, CT_OK, NULL);
}

static bool serve(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	struct ct_wire_reader r = ct_wire_reader(f);

	switch (f->op) {
	case CT_WIRE_SET:
		return do_set(c, f->tag, &r);
	case CT_WIRE_GET:
		return do_get(c, f->tag, &r);
	case CT_WIRE_ADD:
		return do_add(c, f->tag, &r);
	case CT_WIRE_DELETE:
		return do_delete(c, f->tag, &r);
	case CT_WIRE_CANCEL:
		return do_cancel(c, f->tag, &r);
	case CT_WIRE_BEAT:
		return do_beat(c, &r);
	case CT_WIRE_MEMBERS:
		do_members(c, f->tag);
		return ct_wire_done(&r);
	case CT_WIRE_REPORT:
		return do_report(c, f);
	case CT_WIRE_BYE:
		do_bye(c, f->tag);
		return ct_wire_done(&r);
	case CT_WIRE_READY:
		c->confirmed = true;
		return ct_wire_done(&r);
	default:
		return false;
	}
}

void ct__srv_request(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	if (serve(c, f))
		return;
	ct__srv_warn_refused(c, "it sent a malformed request (operation %u, %" PRIu32 " bytes)", f->op, f->len);
	ct__srv_conn_lost(c, EPROTO);
}
