/* The server's side of the handshake: the challenge, and checks of the client's answer. The proof is checked first, and
 * a client without it learns nothing about the run. A client of this run that does not fit, because it was started with
 * another number of ranks or nodes, or with a rank that is taken, is refused with the reason. If ranks are still
 * missing, this also becomes the failure of the run, which could not start.
 *
 * A process may connect twice: if it has stopped waiting for the welcome of its first connection, the second one
 * replaces the first. Until READY has arrived, the end of a connection is no failure for the same reason. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dist/store/failure.h"
#include "dist/store/server_impl.h"

static void send_magic(struct ct_srv_conn *c)
{
	ct__srv_conn_send(c, ct_blob_make(&c->srv->used, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN));
}

static void refuse(struct ct_srv_conn *c, enum ct_status st, enum ct_reason reason, const char *fmt, ...)
	CT_PRINTF(4, 5);
static void refuse(struct ct_srv_conn *c, enum ct_status st, enum ct_reason reason, const char *fmt, ...)
{
	struct ct_str b = {0};
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ct__srv_warn_refused(c, "%s", why);
	if (!c->challenged)
		send_magic(c);
	ct_wire_begin(&b, CT_WIRE_REFUSED, st, 0);
	ct_wire_put_u8(&b, (uint8_t)reason);
	ct_wire_put_str(&b, why);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	c->closing = true;
}

/* Ranks that have joined and not left. */
static int n_joined(const ct_store_server *s)
{
	int n = 0;

	for (int i = 0; i < s->n_members; i++)
		n += s->members[i]->conn || s->members[i]->state.left;
	return n;
}

/* Refuses a client of this run that cannot take part in it. While ranks are still missing, the run then cannot start,
 * so this becomes the run's failure. If the number of nodes may change (world is 0), the run can start without this
 * client. */
static void refuse_and_fail(struct ct_srv_conn *c, const struct ct_wire_handshake *h, const char *what,
			    const char *hint)
{
	const struct ct_store_opts *o = &c->srv->opts;
	struct ct_member_state m = {.rank = h->role == CT_ROLE_LAUNCHER ? CT_STORE_LAUNCHER : h->member,
				    .pid = h->pid,
				    .at = CT_POSITION_UNKNOWN};
	struct ct_failure f;

	ct_wire_copy(m.host, sizeof(m.host), h->host);
	ct_failure_set(&f, &m, CT_MISMATCH, "%s", what);
	ct_wire_copy(f.hint, sizeof(f.hint), hint);
	refuse(c, CT_MISMATCH, CT_REASON_NONE, "%s", f.message);
	if (n_joined(c->srv) < o->world)
		ct__srv_offer_failure(c->srv, &f, SRV_CAUSE);
}

/* Checks that a client of this run expects the same number of ranks and nodes. */
static bool same_size(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	bool ranks = o->world != 0 && h->world != 0 && o->world != h->world;
	/* A launcher has compared the nodes of its ranks, which may be fewer in some attempts of the job. */
	bool same_kind = (o->member < 0) == (h->role == CT_ROLE_LAUNCHER);
	bool nodes = same_kind && o->n_nodes != 0 && h->n_nodes != 0 && o->n_nodes != h->n_nodes;
	char owner[CT_MEMBER_TEXT], what[320];

	if (!ranks && !nodes)
		return true;
	ct_member_text(owner, sizeof(owner), o->member, o->pid, o->host);
	if (nodes)
		snprintf(what, sizeof(what),
			 "was started for a world of %d ranks on %d node%s, but %s for %d on %d node%s", h->world,
			 h->n_nodes, ct_plural(h->n_nodes), owner, o->world, o->n_nodes, ct_plural(o->n_nodes));
	else
		snprintf(what, sizeof(what), "was started for a world of %d ranks, but %s for %d", h->world, owner,
			 o->world);
	refuse_and_fail(c, h, what, "start every node with the same number of nodes and processes (--nodes, --procs)");
	return false;
}

static bool is_same_process(int pid, const char *host, const struct ct_wire_handshake *h)
{
	return pid == h->pid && strcmp(host, h->host) == 0;
}

/* Checks that no other launcher has the node rank of this one. */
static bool node_is_free(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	const char *host = NULL;
	char other[CT_MEMBER_TEXT], what[320], hint[128];
	int pid = 0;

	if (h->role != CT_ROLE_LAUNCHER || h->n_nodes == 0)
		return true;
	/* The server of such a run belongs to a launcher, too. */
	if (o->member < 0 && o->n_nodes != 0 && o->node == h->node && !is_same_process(o->pid, o->host, h)) {
		pid = o->pid;
		host = o->host;
	}
	for (const struct ct_srv_conn *q = c->srv->ready.first; q && !host; q = q->next) {
		if (q->role != CT_ROLE_LAUNCHER || q->node != h->node || q->gone || is_same_process(q->pid, q->host, h))
			continue;
		pid = q->pid;
		host = q->host;
	}
	if (!host)
		return true;
	ct_member_text(other, sizeof(other), CT_STORE_LAUNCHER, pid, host);
	snprintf(what, sizeof(what), "was started with node rank %d, which %s already has", h->node, other);
	snprintf(hint, sizeof(hint), "give each node a different --node-rank, from 0 to %d", h->n_nodes - 1);
	refuse_and_fail(c, h, what, hint);
	return false;
}

/* After a restart of the job, the run id is that of the run, '#' and the number of restarts. Launchers may omit the
 * number, because those of other nodes read it from this store. */
static bool same_run(const char *run_id, const struct ct_wire_handshake *h)
{
	const char *number = strrchr(run_id, '#');
	size_t len = number ? (size_t)(number - run_id) : 0;

	if (strcmp(h->run_id, run_id) == 0)
		return true;
	return number && h->role == CT_ROLE_LAUNCHER && strlen(h->run_id) == len && memcmp(h->run_id, run_id, len) == 0;
}

static bool may_enter(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	char owner[CT_MEMBER_TEXT];

	if (!same_run(o->run_id, h)) {
		ct_member_text(owner, sizeof(owner), o->member, o->pid, o->host);
		refuse(c, CT_MISMATCH, CT_REASON_NONE, "port %d serves run \"%s\" of %s, not run \"%s\"", c->srv->port,
		       o->run_id, owner, h->run_id);
		return false;
	}
	return same_size(c, h) && node_is_free(c, h);
}

/* A rank that stopped waiting for its welcome and connects again replaces its own earlier connection. */
static void supersede(struct ct_srv_member *m, const struct ct_wire_handshake *h)
{
	struct ct_srv_conn *old = m->conn;

	if (!old || old->confirmed || m->state.pid != h->pid || strcmp(m->state.host, h->host) != 0)
		return;
	old->member = NULL;
	m->conn = NULL;
	ct__srv_conn_lost(old, 0);
}

static void rank_is_taken(struct ct_srv_conn *c, const struct ct_wire_handshake *h, int pid, const char *host)
{
	char what[256];

	snprintf(what, sizeof(what), "cannot join, because rank %d is taken by pid %d on host %s", h->member, pid,
		 host);
	refuse_and_fail(
		c, h, what,
		"give each node a different --node-rank, and each rank a different RANK: LOCAL_RANK is not the rank if there are several nodes");
}

static bool enter_member(struct ct_srv_conn *c, const struct ct_wire_handshake *h)
{
	const struct ct_store_opts *o = &c->srv->opts;
	struct ct_srv_member *m = ct__srv_member_find(c->srv, h->member);

	if (m)
		supersede(m, h);
	if (m && m->conn) {
		rank_is_taken(c, h, m->state.pid, m->state.host);
		return false;
	}
	/* The rank that serves the store has its place from the beginning. */
	if (h->member == o->member && o->world != 0 && !is_same_process(o->pid, o->host, h)) {
		rank_is_taken(c, h, o->pid, o->host);
		return false;
	}
	if (!m)
		m = ct__srv_member_add(c->srv, h->member);
	if (!m) {
		refuse(c, CT_NOMEM, CT_REASON_NONE, "the store is out of memory");
		return false;
	}
	m->state = (struct ct_member_state){.rank = h->member, .pid = h->pid, .at = CT_POSITION_UNKNOWN};
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
		refuse(c, CT_MISMATCH, CT_REASON_NONE,
		       "rank %d (pid %d on host %s) has no first connection, so it cannot open another one", h->member,
		       h->pid, h->host);
		return false;
	}
	c->member = m;
	return true;
}

void ct__srv_other_version(struct ct_srv_conn *c)
{
	ct__srv_warn_refused(c, "it uses another version of ctrain's protocol");
	send_magic(c);
	c->closing = true;
}

void ct__srv_hello(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	struct ct_str b = {0};

	if (f->len != CT_NONCE_BYTES) {
		refuse(c, CT_MISMATCH, CT_REASON_NONE, "this version of ctrain does not understand the handshake");
		return;
	}
	memcpy(c->nonces.client, f->body, CT_NONCE_BYTES);
	if (c->fd >= 0 && ct_nonce_make(c->nonces.server) != CT_OK) {
		ct__srv_warn_refused(c, "%s", ct_error_message());
		ct__srv_conn_lost(c, EIO);
		return;
	}
	send_magic(c);
	c->challenged = true;
	ct_wire_begin(&b, CT_WIRE_CHALLENGE, CT_OK, 0);
	ct_str_add_bytes(&b, c->nonces.server, CT_NONCE_BYTES);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
}

void ct__srv_handshake(struct ct_srv_conn *c, const struct ct_wire_frame *f)
{
	const struct ct_store_opts *o = &c->srv->opts;
	struct ct_wire_frame proven = *f;
	struct ct_wire_handshake h;
	struct ct_str b = {0};

	/* This is checked first, and the refusal contains no information about the run, because anyone could have sent
	 * this. */
	if (!ct_wire_take_proof(&proven, o->token, CT_PROOF_OF_CLIENT, &c->nonces)) {
		refuse(c, CT_MISMATCH, CT_REASON_WRONG_TOKEN, "wrong token");
		return;
	}
	if (!ct_wire_get_handshake(&proven, &h)) {
		refuse(c, CT_MISMATCH, CT_REASON_NONE, "this version of ctrain does not understand the handshake");
		return;
	}
	if (!may_enter(c, &h) || (h.role == CT_ROLE_MEMBER && !enter_member(c, &h)) ||
	    (h.role == CT_ROLE_AUXILIARY && !enter_auxiliary(c, &h)))
		return;
	c->role = h.role;
	c->node = h.role == CT_ROLE_LAUNCHER && h.n_nodes > 0 ? h.node : -1;
	c->pid = h.pid;
	ct_wire_copy(c->host, sizeof(c->host), h.host);
	c->ready = true;
	ct__srv_conn_count_node(c, 1);
	ct__srv_list_drop(&c->srv->handshakes, c);
	ct__srv_list_push(&c->srv->ready, c);
	ct_wire_begin(&b, CT_WIRE_WELCOME, CT_OK, 0);
	ct_wire_put_u32(&b, (uint32_t)o->member);
	ct_wire_put_u32(&b, (uint32_t)o->pid);
	ct_wire_put_str(&b, o->host);
	ct_wire_put_proof(&b, o->token, CT_PROOF_OF_SERVER, &c->nonces);
	ct_wire_end(&b, 0);
	ct__srv_conn_send_frame(c, &b);
	if (c->srv->failed)
		ct__srv_send_failure(c);
}
