/* A rank joins in these steps, which share one deadline: the init URL, the secret, the connection to the store, the
 * handshake. With tcp://, rank 0 serves the store and then connects to it through its public name like all others, so
 * that a wrong address is noticed here. With file://, the address is read from a file that may be an old one; therefore
 * the token is hashed together with a nonce from the file, so that an old store refuses it, and every error is taken to
 * be temporary until the deadline. If all ranks are on one host, loopback is used, and no secret is needed.
 *
 * A rank that fails reports its reason to the store before it leaves, or the others would only see that it disappears.
 * If the store has ended the wait because another process has a wrong number of ranks, its record replaces the loss of
 * a peer. */
#include "dist/rendezvous/rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash/sha256.h"
#include "base/mem.h"
#include "dist/net/net.h"
#include "dist/rendezvous/handshake_impl.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/place.h"
#include "dist/rendezvous/rendezvous_file_impl.h"
#include "dist/rendezvous/secret.h"
#include "dist/store/failure.h"
#include "dist/store/wire.h"

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"

#define MAX_WORLD 4096 /* two connections per rank and one per node; the store allows 16,384 */
#define LEAVE_NS (10 * CT_SEC)
#define LEAVE_FAILED_NS CT_SEC
#define OWN_ADDRESS_NS (2 * CT_SEC)

static void hash_text(char out[CT_TOKEN_HEX], const char *a, const char *b)
{
	struct ct_sha256 h;

	_Static_assert(CT_TOKEN_HEX == CT_SHA256_HEX, "a token is a hexadecimal digest");
	ct_sha256_init(&h);
	ct_sha256_update(&h, a, strlen(a));
	ct_sha256_update(&h, "\n", 1);
	ct_sha256_update(&h, b, strlen(b));
	ct_sha256_final_hex(&h, out);
}

void ct_run_id_of_attempt(char out[64], const char *run, int restart)
{
	if (restart > 0)
		snprintf(out, 64, "%.51s#%d", run, restart);
	else
		ct_wire_copy(out, 64, run);
}

static enum ct_status make_opts(const struct ct_identity *id, const struct ct_world_opts *opts,
				const struct ct__host_facts *me, struct ct_store_opts *out)
{
	const char *run = opts->run_id ? opts->run_id : id->run_id[0] ? id->run_id : "ctrain";

	*out = (struct ct_store_opts){.member = id->rank, .pid = me->pid, .world = id->world, .ports = opts->ports};
	/* Other launchers may count differently on each node, for example in heterogeneous jobs. */
	if (id->by == CT_LAUNCHER_CTRAIN && id->n_nodes > 0)
		out->n_nodes = id->n_nodes;
	ct_wire_copy(out->host, sizeof(out->host), me->host);
	if (strlen(run) >= sizeof(out->run_id) - 12) {
		CT_FAIL(CT_USAGE, "the run id \"%.80s\" is longer than %zu bytes", run, sizeof(out->run_id) - 13);
		return CT_USAGE;
	}
	ct_run_id_of_attempt(out->run_id, run, id->restart);
	return CT_OK;
}

/* Returns true if all ranks are on this host, according to the environment and the address. */
static bool is_one_host(const struct ct_identity *id, const struct ct_init_url *url)
{
	return url->scheme == CT_INIT_TCP &&
	       (id->local_world == id->world || strcmp(url->host, "localhost") == 0 || ct_net_is_loopback(url->host));
}

/* Finds the secret. If rank 0 creates it, the other ranks wait for it. */
static enum ct_status find_secret(const struct ct_identity *id, const struct ct_world_opts *opts,
				  const struct ct_init_url *url, int64_t deadline_ns, struct ct_secret *out)
{
	const struct ct_secret_opts so = {
		.run_dir = opts->run_dir, .open_network = opts->open_network, .first = id->rank == 0};
	int64_t start = ct_now_ns(), log_at = start + CT_SEC;
	enum ct_status st;

	while ((st = ct_secret_find(&so, out)) == CT_NOT_FOUND && opts->run_dir && ct_now_ns() < deadline_ns) {
		if (ct_now_ns() > log_at) {
			log_at = CT_FOREVER;
			CT_INFO("waiting for rank 0 to create the run's secret in %s/token", opts->run_dir);
		}
		(void)poll(NULL, 0, 20);
	}
	if (st == CT_NOT_FOUND)
		return ct_secret_missing(opts->run_dir, ct_seconds_since(start), url->host, url->port);
	if (st == CT_OK && out->made)
		CT_INFO("this run's secret is in %s", out->from);
	return st;
}

static enum ct_status choose_token(const struct ct_identity *id, const struct ct_world_opts *opts,
				   const struct ct_init_url *url, int64_t deadline_ns, struct ct_secret *out)
{
	const char *given = opts->token;

	*out = (struct ct_secret){.from = "the caller"};
	/* The launcher has chosen it; "" for an open network. */
	if (!given && id->by == CT_LAUNCHER_CTRAIN) {
		given = getenv("CTRAIN_TOKEN");
		given = given ? given : "";
	}
	if (given && strlen(given) >= sizeof(out->token))
		return CT_FAIL(CT_USAGE, "the token has %zu characters, but at most %zu are allowed", strlen(given),
			       sizeof(out->token) - 1);
	if (given)
		ct_wire_copy(out->token, sizeof(out->token), given);
	else if (url->scheme == CT_INIT_FILE || is_one_host(id, url)) /* the nonce is a secret; loopback needs none */
		CT_TRY(ct_secret_from_env(out));
	else
		CT_TRY(find_secret(id, opts, url, deadline_ns, out));
	return CT_OK;
}

/* NULL (all interfaces), unless the name is a loopback name or address. */
static const char *bind_host(const char *host)
{
	if (strcmp(host, "localhost") == 0)
		return ct_net_loopback();
	return ct_net_is_loopback(host) ? host : NULL;
}

/* Rank 0 connects through the public name, so that it uses the same address as the others. */
static enum ct_status connect_own(const struct ct_init_url *url, const struct ct_store_opts *o, int64_t deadline_ns,
				  ct_store **out)
{
	int64_t limit;

	/* The store counts a connection of rank 0 as rank 0, so it is kept. */
	CT_TRY(ct_place_check("MASTER_ADDR (--init)", "rank 0", url->host, url->port, o, out));
	if (*out)
		return CT_OK;
	limit = ct_deadline_in(OWN_ADDRESS_NS);
	if (ct_store_connect(url->host, url->port, o, limit < deadline_ns ? limit : deadline_ns, out) == CT_OK)
		return CT_OK;
	CT_WARN("rank 0 serves on %s port %d, but cannot connect to it: %s; the other ranks may not find it", url->host,
		url->port, ct_error_message());
	return ct_store_connect(ct_net_loopback(), url->port, o, deadline_ns, out);
}

static enum ct_status meet_tcp(struct ct_world *w, const struct ct_init_url *url, const struct ct_store_opts *o,
			       int64_t deadline_ns)
{
	if (w->id.rank != 0 || url->scheme == CT_INIT_STORE)
		return ct_store_connect(url->host, url->port, o, deadline_ns, &w->store);
	CT_TRY(ct_store_server_start(bind_host(url->host), url->port, o, &w->server));
	return connect_own(url, o, deadline_ns, &w->store);
}

static enum ct_status serve_file(struct ct_world *w, const char *path, struct ct_store_opts *o, const char *net_key,
				 int64_t deadline_ns)
{
	struct ct_rendezvous_file m;
	char token[CT_TOKEN_HEX];
	int port;

	CT_TRY(ct__rendezvous_file_init(&m, o->run_id, net_key, 0));
	hash_text(token, o->token, m.nonce);
	memcpy(o->token, token, sizeof(token));
	CT_TRY(ct_store_server_start(NULL, 0, o, &w->server));
	port = m.port = ct_store_server_port(w->server);
	CT_TRY_ALLOC(w->rendezvous_file = ct_strdup(path));
	memcpy(w->nonce, m.nonce, sizeof(w->nonce));
	CT_TRY(ct__rendezvous_file_publish(&m, path));
	return ct_store_connect(ct_net_loopback(), port, o, deadline_ns, &w->store);
}

/* Reads the file once and tries its addresses. */
static enum ct_status try_file(struct ct_world *w, const char *path, const struct ct_store_opts *o, const char *net_key,
			       int64_t each_ns)
{
	const char *addrs[CT_RENDEZVOUS_MAX_ADDRS];
	struct ct_store_opts with_nonce = *o;
	struct ct_rendezvous_file m;

	CT_TRY(ct__rendezvous_file_read(path, &m));
	if (strcmp(m.run_id, o->run_id) != 0)
		return CT_FAIL(CT_MISMATCH, "%s belongs to run \"%s\", not to run \"%s\"", path, m.run_id, o->run_id);
	hash_text(with_nonce.token, o->token, m.nonce);
	if (strcmp(m.net_key, net_key) == 0)
		return ct_store_connect(ct_net_loopback(), m.port, &with_nonce, ct_deadline_in(each_ns), &w->store);
	for (int i = 0; i < m.n_addrs; i++)
		addrs[i] = m.addrs[i];
	return ct_store_connect_any(addrs, m.n_addrs, m.port, &with_nonce, ct_deadline_in(each_ns), &w->store);
}

static enum ct_status no_meeting(const char *path, int64_t start)
{
	struct ct_error last;

	ct_error_save(&last);
	CT_FAIL(CT_TIMEOUT, "cannot join the run through %s within %.1f s: %s", path, ct_seconds_since(start),
		last.message);
	return ct_error_hint("check that rank 0 is running and uses the same file");
}

static enum ct_status join_file(struct ct_world *w, const char *path, const struct ct_store_opts *o,
				const char *net_key, int64_t deadline_ns)
{
	struct ct_backoff pause = {2 * CT_MS, 128 * CT_MS}, attempt = {50 * CT_MS, 1600 * CT_MS};
	int64_t start = ct_now_ns(), told = start + 5 * CT_SEC;

	for (;;) {
		enum ct_status st = try_file(w, path, o, net_key, ct_backoff_ns(&attempt));

		/* Any error may be temporary, because the file may be an old one. */
		if (st == CT_OK)
			return CT_OK;
		if (ct_now_ns() >= deadline_ns)
			return no_meeting(path, start);
		if (ct_now_ns() > told) {
			told = CT_FOREVER;
			CT_INFO("still waiting for rank 0: %s", ct_error_message());
		}
		(void)poll(NULL, 0, (int)(ct_backoff_ns(&pause) / CT_MS));
	}
}

static enum ct_status meet(struct ct_world *w, struct ct_store_opts *o, const struct ct__host_facts *me,
			   const struct ct_world_opts *opts, int64_t deadline_ns)
{
	struct ct_init_url url;
	struct ct_secret secret;
	enum ct_status st;

	CT_TRY(ct__init_url_parse(w->id.init, &url));
	CT_TRY(choose_token(&w->id, opts, &url, deadline_ns, &secret));
	memcpy(o->token, secret.token, sizeof(o->token));
	if (url.scheme == CT_INIT_TCP && w->id.local_world == w->id.world)
		ct_wire_copy(url.host, sizeof(url.host), ct_net_loopback());
	switch (url.scheme) {
	case CT_INIT_TCP:
	case CT_INIT_STORE:
		st = meet_tcp(w, &url, o, deadline_ns);
		if (st == CT_MISMATCH && ct_error_reason() == CT_REASON_WRONG_TOKEN)
			ct_error_hint("this rank %s%s", secret.from[0] ? "has its token from " : "has no token",
				      secret.from);
		return st;
	case CT_INIT_FILE:
		return w->id.rank == 0 ? serve_file(w, url.path, o, me->net_key, deadline_ns)
				       : join_file(w, url.path, o, me->net_key, deadline_ns);
	default:
		return CT_FAIL(CT_BUG, "the init URL %s of the identity has not been resolved", w->id.init);
	}
}

static void alone(struct ct_world *w, const struct ct__host_facts *me)
{
	struct ct_peer *p = &w->peers[0];

	p->pid = me->pid;
	ct_wire_copy(p->host, sizeof(p->host), me->host);
	ct_wire_copy(p->host_key, sizeof(p->host_key), me->host_key);
	ct_wire_copy(p->addr, sizeof(p->addr), "127.0.0.1");
	w->n_hosts = 1;
}

/* Reports the reason, because otherwise the other ranks would only see that this rank disappears. */
static void report_failure(struct ct_world *w, const struct ct__host_facts *me)
{
	const struct ct_member_state m = {.rank = w->id.rank, .pid = me->pid, .at = CT_POSITION_UNKNOWN};
	struct ct_failure f;
	struct ct_error e;

	if (!w->store)
		return;
	ct_error_save(&e);
	ct_failure_set(&f, &m, e.status, "could not join the run: %s", e.message);
	ct_wire_copy(f.host, sizeof(f.host), me->host);
	ct_wire_copy(f.hint, sizeof(f.hint), e.hint);
	(void)!ct_store_report(w->store, &f);
	(void)ct_error_restore(&e);
}

/* The store ended our wait because a process with another number of ranks connected. No peer was lost. */
static enum ct_status explain_mismatch(struct ct_world *w)
{
	struct ct_failure f;

	if (!w->store || ct_store_watch(w->store, 0, &f) != CT_OK || f.status != CT_MISMATCH)
		return CT_PEER_LOST;
	CT_FAIL(CT_MISMATCH, "%s", f.message);
	return ct_error_hint("%s", f.hint);
}

/* One line per host. Our launcher logs it, too. */
static void log_path(const struct ct_world *w)
{
	char path[400];

	if (w->id.by == CT_LAUNCHER_CTRAIN || w->id.node < 1 || w->id.local_rank != 0)
		return;
	ct_store_describe(w->store, path, sizeof(path));
	CT_INFO("rank %d has reached rank 0 at %s", w->id.rank, path);
}

enum ct_status ct_world_join(const struct ct_identity *id, const struct ct_world_opts *opts, struct ct_world *out)
{
	int64_t deadline_ns = ct_deadline_in(opts->timeout_ns);
	struct ct_world w = {.id = *id};
	struct ct_store_opts o;
	struct ct__host_facts me;
	enum ct_status st;

	if (id->world < 1 || id->rank < 0 || id->rank >= id->world)
		return CT_FAIL(CT_USAGE, "rank %d is not in a world of %d", id->rank, id->world);
	if (id->world > MAX_WORLD)
		return CT_FAIL(CT_UNSUPPORTED, "the world has %d ranks, but the store supports at most %d", id->world,
			       MAX_WORLD);
	ct__host_facts(&me);
	CT_TRY_ALLOC(w.peers = CT_NEW_ARRAY(struct ct_peer, (size_t)id->world));
	if (id->world == 1 && id->by != CT_LAUNCHER_CTRAIN) {
		alone(&w, &me);
		*out = w;
		return CT_OK;
	}
	CT_TRY_GOTO(make_opts(id, opts, &me, &o), st, fail);
	CT_TRY_GOTO(meet(&w, &o, &me, opts, deadline_ns), st, fail);
	CT_TRY_GOTO(ct__handshake(&w, &me, deadline_ns), st, fail);
	CT_DEBUG("rank %d of %d on %d hosts, address %s", w.id.rank, w.id.world, w.n_hosts, w.peers[w.id.rank].addr);
	log_path(&w);
	*out = w;
	return CT_OK;
fail:
	if (st == CT_PEER_LOST)
		st = explain_mismatch(&w);
	report_failure(&w, &me);
	ct_world_leave(&w, true);
	return st;
}

void ct_world_leave(struct ct_world *w, bool failed)
{
	if (failed)
		ct_store_drop(w->store);
	else
		ct_store_close(w->store);
	ct_store_server_stop(w->server, ct_deadline_in(failed ? LEAVE_FAILED_NS : LEAVE_NS));
	if (w->rendezvous_file)
		ct__rendezvous_file_remove(w->rendezvous_file, w->nonce);
	ct_free(w->rendezvous_file);
	ct_free(w->peers);
	*w = (struct ct_world){0};
}
