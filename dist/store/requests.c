/* What each request to the store server does. */
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

static void send_magic(struct ct_srv_conn *c)
{
	ct__srv_conn_send(c, ct_blob_make(&c->srv->used, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN));
}

static void refuse(struct ct_srv_conn *c, enum ct_status st, const char *fmt, ...) CT_PRINTF(3, 4);
static void refuse(struct ct_srv_conn *c, enum ct_status st, const char *fmt, ...)
{
	struct ct_str b = {0};
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ct__srv_stranger(c, "%s", why);
	send_magic(c);
	ct_wire_begin(&b, CT_WIRE_REFUSED, st, 0);
	ct_wire_put_str(&b, why);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	c->closing = true;
}

/* In constant time: compares the complete fields, whatever they contain. */
static bool same_token(const char a[CT_TOKEN_HEX], const char b[CT_TOKEN_HEX])
{
	unsigned char diff = 0;

	for (size_t i = 0; i < CT_TOKEN_HEX; i++)
		diff |= (unsigned char)(a[i] ^ b[i]);
	return diff == 0;
}

/* Ranks that have joined and not left. */
static int n_joined(const ct_store_server *s)
{
	int n = 0;

	for (int i = 0; i < s->n_members; i++)
		n += s->members[i]->conn || s->members[i]->state.left;
	return n;
}

/* A client of this run that counts other ranks than we do. While ranks are missing the run cannot start as it is: that
 * becomes its failure. */
static bool same_world(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	struct ct_member_state m = {
		.rank = h->role == CT_ROLE_LAUNCHER ? CT_STORE_LAUNCHER : h->member, .pid = h->pid, .seq = -1};
	char who[CT_MEMBER_TEXT], owner[CT_MEMBER_TEXT];
	struct ct_failure f;

	if (o->world == 0 || h->world == 0 || o->world == h->world)
		return true;
	ct_wire_copy(m.host, sizeof(m.host), h->host);
	ct_member_text(who, sizeof(who), m.rank, m.pid, m.host);
	ct_member_text(owner, sizeof(owner), o->member, o->pid, o->host);
	refuse(c, CT_MISMATCH, "%s was started for a world of %d ranks, %s for %d", who, h->world, owner, o->world);
	if (n_joined(c->srv) < o->world) {
		ct_failure_set(&f, &m, CT_MISMATCH, "was started for a world of %d ranks, %s for %d", h->world, owner,
			       o->world);
		ct_wire_copy(f.hint, sizeof(f.hint),
			     "start every node with the same number of nodes and processes (--nodes, --procs)");
		ct__srv_offer_failure(c->srv, &f, SRV_CAUSE);
	}
	return false;
}

static bool may_enter(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	char owner[CT_MEMBER_TEXT];

	/* First of all, and without a word about the run: whoever has no token may be anyone. */
	if (!same_token(h->token, o->token)) {
		refuse(c, CT_MISMATCH, "wrong token");
		return false;
	}
	if (strcmp(h->run_id, o->run_id) != 0) {
		ct_member_text(owner, sizeof(owner), o->member, o->pid, o->host);
		refuse(c, CT_MISMATCH, "port %d serves run \"%s\" of %s, not run \"%s\"", c->srv->port, o->run_id,
		       owner, h->run_id);
		return false;
	}
	return same_world(c, h);
}

/* A rank that gave up waiting for its welcome and comes again takes the place of its own former self. */
static void supersede(struct ct_srv_member *m, const struct ct_wire_handshake *h)
{
	struct ct_srv_conn *old = m->conn;

	if (!old || old->confirmed || m->state.pid != h->pid || strcmp(m->state.host, h->host) != 0)
		return;
	old->member = NULL;
	m->conn = NULL;
	ct__srv_conn_lost(old, 0);
}

static bool enter_member(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	struct ct_srv_member *m = ct__srv_member_find(c->srv, h->member);

	if (m)
		supersede(m, h);
	if (m && m->conn) {
		refuse(c, CT_MISMATCH,
		       "rank %d is taken: pid %d on host %s has joined as rank %d, and so wants pid %d on host %s",
		       h->member, m->state.pid, m->state.host, h->member, h->pid, h->host);
		return false;
	}
	if (!m)
		m = ct__srv_member_add(c->srv, h->member);
	if (!m) {
		refuse(c, CT_NOMEM, "the store is out of memory");
		return false;
	}
	m->state = (struct ct_member_state){.rank = h->member, .pid = h->pid, .seq = -1};
	ct_wire_copy(m->state.host, sizeof(m->state.host), h->host);
	m->beat_ns = 0;
	m->conn = c;
	c->member = m;
	return true;
}

static bool enter_auxiliary(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	struct ct_srv_member *m = ct__srv_member_find(c->srv, h->member);

	if (!m || !m->conn || m->state.pid != h->pid || strcmp(m->state.host, h->host) != 0) {
		refuse(c, CT_MISMATCH, "rank %d of pid %d on host %s has no first connection to add one to", h->member,
		       h->pid, h->host);
		return false;
	}
	c->member = m;
	return true;
}

void ct__srv_handshake(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	const struct ct_store_opts *o = &c->srv->opts;
	struct ct_wire_handshake h;
	struct ct_str b = {0};

	if (!ct_wire_get_handshake(f, &h)) {
		refuse(c, CT_MISMATCH, "a handshake that this version of ctrain does not understand");
		return;
	}
	if (!may_enter(c, &h) || (h.role == CT_ROLE_MEMBER && !enter_member(c, &h)) ||
	    (h.role == CT_ROLE_AUXILIARY && !enter_auxiliary(c, &h)))
		return;
	c->role = h.role;
	ct_wire_copy(c->host, sizeof(c->host), h.host);
	c->ready = true;
	ct__srv_list_drop(&c->srv->handshakes, c);
	ct__srv_list_push(&c->srv->ready, c);
	send_magic(c);
	ct_wire_begin(&b, CT_WIRE_WELCOME, CT_OK, 0);
	ct_wire_put_u32(&b, (uint32_t)o->member);
	ct_wire_put_u32(&b, (uint32_t)o->pid);
	ct_wire_put_str(&b, o->host);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	if (c->srv->failed)
		ct__srv_send_failure(c);
}

/* Room for n more bytes? Answers the request when there is not. */
static bool has_room(struct ct_srv_conn *c, uint64_t tag, size_t n)
{
	if (n > CT_STORE_MAX_VALUE) {
		ct__srv_reply(c, tag, CT_UNSUPPORTED, "a value of %zu bytes; the store takes %zu", n,
			      CT_STORE_MAX_VALUE);
		return false;
	}
	if (c->srv->used + n > SRV_MAX_BYTES) {
		ct__srv_reply(c, tag, CT_NOMEM, "the store is full (64 MiB)");
		return false;
	}
	return true;
}

/* Stores and wakes who waits for it; answers on failure. */
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
		ct__srv_wait_add(c, tag, key.s, 0);
	}
	return true;
}

/* The number under a key, 0 when it is absent. */
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
		ct__srv_reply(c, tag, CT_DATA, "key \"%s\" of the store does not hold a number", key.s);
		return true;
	}
	if (__builtin_add_overflow(v, delta, &v)) {
		ct__srv_reply(c, tag, CT_DATA, "key \"%s\" of the store would leave the 64-bit range", key.s);
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

static bool do_cas(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	const uint8_t *expected, *value;
	size_t expected_len, len;
	const struct ct_blob *now;
	struct ct_str b = {0};
	bool want_absent, swap;
	struct key key;

	ct_wire_str(r, key.s, sizeof(key.s));
	want_absent = !ct_wire_u8(r);
	expected = ct_wire_bytes(r, &expected_len);
	value = ct_wire_bytes(r, &len);
	if (!ct_wire_done(r))
		return false;
	now = ct_store_table_get(&c->srv->table, key.s);
	if (want_absent || !now)
		swap = want_absent && !now;
	else
		swap = now->len == expected_len &&
		       (expected_len == 0 || memcmp(now->data, expected, expected_len) == 0);
	if (swap && !put(c, tag, key.s, value, len))
		return true;
	ct_wire_begin(&b, CT_WIRE_REPLY, CT_OK, tag);
	ct_wire_put_u8(&b, swap);
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

static bool do_barrier(struct ct_srv_conn *c, uint64_t tag, struct ct_wire_reader *r)
{
	struct key name;
	uint32_t n;

	ct_wire_str(r, name.s, sizeof(name.s));
	n = ct_wire_u32(r);
	if (!ct_wire_done(r) || n == 0)
		return false;
	if (c->srv->failed)
		ct__srv_reply(c, tag, CT_PEER_LOST, "%s", c->srv->failure.message);
	else
		ct__srv_barrier(c, tag, name.s, n);
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
	int64_t seq = ct_wire_i64(r);
	struct ct_member_state *m;
	char phase[sizeof(m->phase)];

	ct_wire_str(r, phase, sizeof(phase));
	if (!ct_wire_done(r))
		return false;
	if (!c->member)
		return true;
	m = &c->member->state;
	c->member->beat_ns = ct_now_ns();
	m->seq = seq;
	if (phase[0])
		ct_wire_copy(m->phase, sizeof(m->phase), phase);
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

/* A member reports its own failure, a launcher that of a rank on its host (or of one that never joined). */
static bool may_report(const struct ct_srv_conn *c, const struct ct_failure *x)
{
	const struct ct_srv_member *m;

	if (c->role == CT_ROLE_MEMBER || c->role == CT_ROLE_AUXILIARY)
		return c->member && c->member->state.rank == x->rank;
	if (c->role != CT_ROLE_LAUNCHER || x->rank < 0)
		return false;
	m = ct__srv_member_find(c->srv, x->rank);
	return !m || strcmp(m->state.host, c->host) == 0;
}

static bool do_report(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	struct ct_failure x;
	bool consequence;

	if (!ct_wire_get_failure(f, &x))
		return false;
	if (!may_report(c, &x)) {
		ct__srv_stranger(c, "it reported the failure of rank %d, which is not its own", x.rank);
		ct__srv_reply(c, f->tag, CT_USAGE, "rank %d is not yours to report", x.rank);
		return true;
	}
	if (c->member && c->member->state.rank == x.rank)
		c->member->reported = true;
	if (ct__srv_has_left(c->srv, &x)) {
		ct__srv_reply(c, f->tag, CT_OK, NULL);
		return true;
	}
	/* A launcher saw how the process ended. */
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
	case CT_WIRE_CAS:
		return do_cas(c, f->tag, &r);
	case CT_WIRE_DELETE:
		return do_delete(c, f->tag, &r);
	case CT_WIRE_BARRIER:
		return do_barrier(c, f->tag, &r);
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
	ct__srv_stranger(c, "a broken request (operation %u, %" PRIu32 " bytes)", f->op, f->len);
	ct__srv_conn_lost(c, EPROTO);
}
