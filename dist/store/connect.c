/* Opening and closing the connection of a store client; client_handshake.c contains the handshake. Every address of the
 * server is tried, and one that accepts connections is not yet the right one: the handshake decides. Attempts repeat
 * until the deadline, because the server may start later, unless a server of this protocol has refused the client,
 * which would happen again. Of several errors, that of a refusal is kept, since it explains most. An address that
 * accepts but does not answer must not use up the time of the others. A further connection of the same member goes
 * directly to the address that has answered.
 *
 * BYE is sent as a request: if the connection were closed with unread data, the server might never read it, and take
 * the end of the connection for a failure. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "dist/net/local_addr.h"
#include "dist/net/race.h"
#include "dist/store/call_impl.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

#define RETRY_FIRST_NS (2 * CT_MS)
#define RETRY_MAX_NS (200 * CT_MS)
#define HANDSHAKE_NS (5 * CT_SEC)  /* a stopped server accepts connections but sends nothing */
#define HANDSHAKE_OF_ONE_NS CT_SEC /* the same, while other addresses have not been tried */
#define CONNECT_NS (5 * CT_SEC)    /* an address that drops our packets must not use up the deadline */
#define BYE_NS CT_SEC

static void client_free(ct_store *s)
{
	ct_net_close(&s->fd);
	ct_net_close(&s->wake_fd);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->send_lock);
	ct_free(s->in);
	ct_free(s->host);
	ct_free(s);
}

static enum ct_status client_new(const char *host, int port, const struct ct_store_opts *opts, ct_store **out)
{
	ct_store *s;

	CT_TRY_ALLOC(s = CT_NEW(ct_store));
	s->fd = -1;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->host = ct_strdup(host);
	s->port = port;
	s->opts = *opts;
	CT_ASSERT(pthread_mutex_init(&s->send_lock, NULL) == 0);
	CT_ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
	ct_cond_init(&s->changed);
	if (s->wake_fd < 0)
		CT_FAIL(CT_NOMEM, "cannot reach the store: %s", strerror(errno));
	if (!s->host || s->wake_fd < 0) {
		client_free(s);
		return CT_NOMEM;
	}
	*out = s;
	return CT_OK;
}

/* An address that has not answered before another one did is probably dead; each further connection would try it first.
 */
static void note_winner(ct_store *s, const struct ct_race *race, int won, enum ct_wire_role role)
{
	const int err = won > 0 ? race->e[0].err : 0;
	char dead[CT_ADDR_LEN] = "";

	if (ct_net_addr_text(&race->e[won].addr, s->peer, sizeof(s->peer)) != CT_OK) {
		ct_error_clear();
		ct_wire_copy(s->peer, sizeof(s->peer), s->host);
	}
	if (err == 0 || role == CT_ROLE_AUXILIARY)
		return;
	if (ct_net_addr_text(&race->e[0].addr, dead, sizeof(dead)) == CT_OK)
		CT_INFO("reached %s at %s; %s: %s", s->host, s->peer, dead,
			err == EINPROGRESS ? "no answer" : strerror(err));
	else
		ct_error_clear();
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* An address that accepts connections but does not answer leaves half of the time to the others. */
static int64_t handshake_deadline(const struct ct_race *race, int64_t deadline_ns)
{
	const int64_t left = deadline_ns - ct_now_ns();

	if (!ct_race_has_more(race))
		return earlier(ct_deadline_in(HANDSHAKE_NS), deadline_ns);
	return ct_deadline_in(earlier(HANDSHAKE_OF_ONE_NS, left / 2));
}

/* Does the handshake with each address that answers, until one belongs to the store of this run. On failure, the error
 * chain is that of the most informative address: one that has refused this client, else one that has answered. */
static enum ct_status try_addresses(ct_store *s, struct ct_race *race, enum ct_wire_role role, int64_t deadline_ns)
{
	struct ct_error best = {.status = CT_OK};
	int won;

	while ((won = ct_race_next(race, earlier(ct_deadline_in(CONNECT_NS), deadline_ns), &s->fd)) >= 0) {
		enum ct_status st = ct__call_handshake(s, role, handshake_deadline(race, deadline_ns));

		if (st == CT_OK) {
			note_winner(s, race, won, role);
			return CT_OK;
		}
		ct_net_close(&s->fd);
		if (best.status == CT_OK || (best.status != CT_MISMATCH && st == CT_MISMATCH))
			ct_error_save(&best);
	}
	return best.status == CT_OK ? ct_race_failed(race, s->host, s->port) : ct_error_restore(&best);
}

/* *again is set if another attempt may succeed. */
static enum ct_status attempt(ct_store *s, const char *const *hosts, int n_hosts, enum ct_wire_role role,
			      int64_t deadline_ns, bool *again)
{
	struct ct_race race;
	enum ct_status st;

	*again = true;
	CT_TRY(ct_race_begin(&race, hosts, n_hosts, s->port));
	st = try_addresses(s, &race, role, deadline_ns);
	ct_race_end(&race);
	*again = st == CT_COMM || st == CT_TIMEOUT;
	return st;
}

static enum ct_status fail_timeout(const ct_store *s, int64_t start)
{
	struct ct_error last;

	ct_error_save(&last);
	CT_FAIL(CT_TIMEOUT, "cannot reach the store within %.1f s: %s", ct_seconds_since(start), last.message);
	if (last.hint[0])
		ct_error_hint("%s", last.hint);
	else
		ct_error_hint(
			"check that rank 0 (or the launcher) is running, that its address is %s port %d, and that no firewall blocks it",
			s->host, s->port);
	return CT_TIMEOUT;
}

/* After the deadline, the error is that of the last attempt. */
static enum ct_status connect_role(ct_store *s, const char *const *hosts, int n_hosts, enum ct_wire_role role,
				   int64_t start, int64_t deadline_ns, bool *again)
{
	struct ct_backoff backoff = {RETRY_FIRST_NS, RETRY_MAX_NS};
	bool logged = false;

	for (;;) {
		enum ct_status st = attempt(s, hosts, n_hosts, role, deadline_ns, again);
		int64_t now = ct_now_ns(), left = deadline_ns - now;

		if (st == CT_OK || !*again || left <= 0)
			return st;
		if (!logged && now - start > 5 * CT_SEC) {
			logged = true;
			CT_INFO("still waiting for the store: %s", ct_error_message());
		}
		const int64_t pause = ct_backoff_ns(&backoff);
		(void)poll(NULL, 0, (int)(((pause < left ? pause : left) + CT_MS - 1) / CT_MS));
	}
}

static enum ct_status open_role(const char *const *hosts, int n_hosts, int port, const struct ct_store_opts *opts,
				enum ct_wire_role role, int64_t deadline_ns, ct_store **out)
{
	const int64_t start = ct_now_ns();
	enum ct_status st;
	bool again;
	ct_store *s;

	CT_TRY(client_new(hosts[0], port, opts, &s));
	st = connect_role(s, hosts, n_hosts, role, start, deadline_ns, &again);
	if (st != CT_OK && again && !opts->last_error_only)
		st = fail_timeout(s, start);
	if (st != CT_OK) {
		client_free(s);
		return st;
	}
	*out = s;
	return CT_OK;
}

enum ct_status ct_store_connect_any(const char *const *hosts, int n_hosts, int port, const struct ct_store_opts *opts,
				    int64_t deadline_ns, ct_store **out)
{
	if (port < 1 || port > 65535)
		return CT_FAIL(CT_USAGE, "the store's port %d is not in 1 to 65535", port);
	if (n_hosts < 1)
		return CT_FAIL(CT_COMM, "the store has no address");
	return open_role(hosts, n_hosts, port, opts,
			 opts->member == CT_STORE_LAUNCHER ? CT_ROLE_LAUNCHER
			 : opts->member < 0                ? CT_ROLE_OBSERVER
							   : CT_ROLE_MEMBER,
			 deadline_ns, out);
}

enum ct_status ct_store_connect(const char *host, int port, const struct ct_store_opts *opts, int64_t deadline_ns,
				ct_store **out)
{
	return ct_store_connect_any(&host, 1, port, opts, deadline_ns, out);
}

enum ct_status ct_store_connect_aux(const ct_store *first, int64_t deadline_ns, ct_store **out)
{
	const char *host = first->peer;

	return open_role(&host, 1, first->port, &first->opts,
			 first->opts.member < 0 ? CT_ROLE_OBSERVER : CT_ROLE_AUXILIARY, deadline_ns, out);
}

void ct_store_close(ct_store *s)
{
	struct ct_error before;
	struct ct_str b = {0};
	struct ct_call call;

	if (!s)
		return;
	/* Connections are often closed after an error. That error must still be the one that is reported. */
	ct_error_save(&before);
	ct_wire_begin(&b, CT_WIRE_BYE, CT_OK, 0);
	/* The reply shows that the server has read the BYE. If we closed the connection earlier, with unread data, the
	 * BYE could be discarded. */
	if (ct__call_do(s, &b, NULL, 0, ct_store_patience(s, BYE_NS), &call) == CT_OK)
		ct_free(call.body);
	ct_str_release(&b);
	(void)ct_error_restore(&before);
	client_free(s);
}

void ct_store_drop(ct_store *s)
{
	if (s)
		client_free(s);
}

enum ct_status ct_store_local_addr(const ct_store *s, char *buf, size_t len)
{
	return ct_net_local_addr(s->fd, buf, len);
}

void ct_store_describe(const ct_store *s, char *buf, size_t len)
{
	bool numeric = strcmp(s->host, s->peer) == 0;
	char mine[CT_ADDR_LEN], iface[16] = "?";

	if (ct_store_local_addr(s, mine, sizeof(mine)) == CT_OK) {
		ct_net_iface_of(mine, iface);
	} else {
		ct_error_clear();
		snprintf(mine, sizeof(mine), "?");
	}
	snprintf(buf, len, "%s%s%s%s port %d, through %s (%s)", s->host, numeric ? "" : " (", numeric ? "" : s->peer,
		 numeric ? "" : ")", s->port, iface, mine);
}

void ct_store_owner(const ct_store *s, int *rank, int *pid, char host[64])
{
	if (rank)
		*rank = s->owner_rank;
	if (pid)
		*pid = s->owner_pid;
	if (host)
		ct_wire_copy(host, 64, s->owner_host);
}
