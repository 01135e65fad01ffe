/* Opening and closing the connection of a store client. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "dist/store/call_impl.h"
#include "dist/store/net.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

#define RETRY_FIRST_NS (2 * CT_MS)
#define RETRY_MAX_NS (200 * CT_MS)
#define HANDSHAKE_NS (5 * CT_SEC) /* a stopped server accepts connections but sends nothing */
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
		(void)CT_FAIL(CT_NOMEM, "cannot reach the store: %s", strerror(errno));
	if (!s->host || s->wake_fd < 0) {
		client_free(s);
		return CT_NOMEM;
	}
	*out = s;
	return CT_OK;
}

static enum ct_status send_handshake(ct_store *s, enum ct_wire_role role)
{
	struct ct_wire_handshake h = {.role = role,
				      .member = s->opts.member,
				      .pid = s->opts.pid,
				      .world = s->opts.world,
				      .n_nodes = s->opts.n_nodes,
				      .node = s->opts.node};
	struct ct_str b = {0};
	enum ct_status st;

	ct_wire_copy(h.run_id, sizeof(h.run_id), s->opts.run_id);
	ct_wire_copy(h.token, sizeof(h.token), s->opts.token);
	ct_wire_copy(h.host, sizeof(h.host), s->opts.host);
	ct_wire_begin(&b, CT_WIRE_HANDSHAKE, CT_OK, 0);
	ct_wire_put_handshake(&b, &h);
	ct_wire_end(&b, 0);
	st = ct_str_status(&b);
	/* These few bytes always fit into the buffer of a new socket. */
	if (st == CT_OK &&
	    (send(s->fd, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN, MSG_NOSIGNAL | MSG_MORE) != CT_WIRE_MAGIC_LEN ||
	     send(s->fd, b.s, b.len, MSG_NOSIGNAL) != (ssize_t)b.len))
		st = CT_FAIL(CT_COMM, "the connection to %s port %d broke: %s", s->host, s->port, strerror(errno));
	ct_str_release(&b);
	return st;
}

/* Reads until s->in contains at least `want` bytes. */
static enum ct_status read_up_to(ct_store *s, size_t want, int64_t deadline_ns)
{
	while (s->in_len < want) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		ssize_t n = recv(s->fd, s->in + s->in_len, s->in_cap - s->in_len, MSG_DONTWAIT);

		if (n > 0) {
			s->in_len += (size_t)n;
			continue;
		}
		if (n == 0)
			return CT_FAIL(CT_COMM, "%s port %d closed the connection", s->host, s->port);
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			return CT_FAIL(CT_COMM, "the connection to %s port %d broke: %s", s->host, s->port,
				       strerror(errno));
		if (ct_now_ns() >= deadline_ns)
			return CT_FAIL(CT_TIMEOUT, "%s port %d accepts connections but does not answer", s->host,
				       s->port);
		(void)poll(&p, 1, ct_deadline_poll_ms(deadline_ns));
	}
	return CT_OK;
}

static enum ct_status not_a_store(const ct_store *s)
{
	(void)CT_FAIL(CT_MISMATCH, "the server on %s port %d is not a ctrain store of this version", s->host, s->port);
	ct_error_hint("choose another port (--master-port or MASTER_PORT), or end the program that uses it");
	return CT_MISMATCH;
}

static enum ct_status read_reply(ct_store *s, const struct ct_wire_frame *f)
{
	struct ct_wire_reader r = ct_wire_reader(f);
	char why[600];

	if (f->op == CT_WIRE_WELCOME) {
		s->owner_rank = (int)ct_wire_u32(&r);
		s->owner_pid = (int)ct_wire_u32(&r);
		ct_wire_str(&r, s->owner_host, sizeof(s->owner_host));
		return ct_wire_done(&r) ? CT_OK : not_a_store(s);
	}
	ct_wire_str(&r, why, sizeof(why));
	if (f->op != CT_WIRE_REFUSED || !ct_wire_done(&r) || f->status >= 0)
		return not_a_store(s);
	(void)CT_FAIL((enum ct_status)f->status, "the store at %s port %d refused the connection: %s", s->host, s->port,
		      why);
	ct_error_hint(
		"all ranks of a run need the same token, run id, --nodes and --procs; each node needs a different --node-rank, and each rank a different RANK (not LOCAL_RANK); two runs on one host need two ports");
	return (enum ct_status)f->status;
}

/* READY has no reply. If it cannot be sent, the first request fails. */
static void confirm(ct_store *s)
{
	const struct ct_wire_frame f = {.op = CT_WIRE_READY};
	uint8_t header[CT_WIRE_HEADER_LEN];

	ct_wire_encode_header(header, &f);
	(void)!send(s->fd, header, sizeof(header), MSG_NOSIGNAL);
}

static enum ct_status read_handshake_reply(ct_store *s, int64_t deadline_ns)
{
	size_t at = CT_WIRE_MAGIC_LEN, end = at + CT_WIRE_HEADER_LEN;
	struct ct_wire_frame f;

	s->in_cap = 4096;
	s->in_len = 0;
	ct_free(s->in);
	CT_TRY_ALLOC(s->in = ct_calloc(s->in_cap, 1));
	CT_TRY(read_up_to(s, at, deadline_ns));
	if (memcmp(s->in, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN) != 0)
		return not_a_store(s);
	CT_TRY(read_up_to(s, end, deadline_ns));
	ct_wire_decode_header(s->in + at, &f);
	if (f.len > CT_WIRE_MAX_HANDSHAKE)
		return not_a_store(s);
	CT_TRY(read_up_to(s, end + f.len, deadline_ns));
	f.body = s->in + end;
	CT_TRY(read_reply(s, &f));
	confirm(s);
	/* Bytes that follow the handshake (a failure record) stay in the buffer. */
	at = end + f.len;
	memmove(s->in, s->in + at, s->in_len - at);
	s->in_len -= at;
	return ct__call_begin(s) ? CT_OK : not_a_store(s);
}

/* *again is set if another attempt may succeed. */
static enum ct_status attempt(ct_store *s, enum ct_wire_role role, int64_t deadline_ns, bool *again)
{
	int64_t reply_by = ct_deadline_in(HANDSHAKE_NS);
	enum ct_status st;
	int err;

	*again = true;
	CT_TRY(ct_net_connect(s->host, s->port, deadline_ns, &s->fd, &err));
	st = send_handshake(s, role);
	if (st == CT_OK)
		st = read_handshake_reply(s, reply_by < deadline_ns ? reply_by : deadline_ns);
	if (st != CT_OK)
		ct_net_close(&s->fd);
	*again = st == CT_COMM || st == CT_TIMEOUT;
	return st;
}

static enum ct_status fail_timeout(const ct_store *s, int64_t start)
{
	struct ct_error last;

	ct_error_save(&last);
	(void)CT_FAIL(CT_TIMEOUT, "cannot reach the store within %.1f s: %s", ct_seconds_since(start), last.message);
	if (last.hint[0])
		ct_error_hint("%s", last.hint);
	else
		ct_error_hint(
			"check that rank 0 (or the launcher) is running, that its address is %s port %d, and that no firewall blocks it",
			s->host, s->port);
	return CT_TIMEOUT;
}

static enum ct_status connect_role(ct_store *s, enum ct_wire_role role, int64_t deadline_ns)
{
	int64_t start = ct_now_ns(), pause = RETRY_FIRST_NS;
	bool again, logged = false;

	for (;;) {
		enum ct_status st = attempt(s, role, deadline_ns, &again);
		int64_t now = ct_now_ns(), left = deadline_ns - now;

		if (st == CT_OK || !again)
			return st;
		if (left <= 0)
			return fail_timeout(s, start);
		if (!logged && now - start > 5 * CT_SEC) {
			logged = true;
			CT_INFO("still waiting for the store: %s", ct_error_message());
		}
		pause = pause < left ? pause : left;
		(void)poll(NULL, 0, (int)((pause + CT_MS - 1) / CT_MS));
		pause = pause * 2 < RETRY_MAX_NS ? pause * 2 : RETRY_MAX_NS;
	}
}

static enum ct_status open_role(const char *host, int port, const struct ct_store_opts *opts, enum ct_wire_role role,
				int64_t deadline_ns, ct_store **out)
{
	enum ct_status st;
	ct_store *s;

	CT_TRY(client_new(host, port, opts, &s));
	st = connect_role(s, role, deadline_ns);
	if (st != CT_OK) {
		client_free(s);
		return st;
	}
	*out = s;
	return CT_OK;
}

enum ct_status ct_store_connect(const char *host, int port, const struct ct_store_opts *opts, int64_t deadline_ns,
				ct_store **out)
{
	if (port < 1 || port > 65535)
		return CT_FAIL(CT_USAGE, "the store's port %d is not in 1 to 65535", port);
	return open_role(host, port, opts,
			 opts->member == CT_STORE_LAUNCHER ? CT_ROLE_LAUNCHER
			 : opts->member < 0                ? CT_ROLE_OBSERVER
							   : CT_ROLE_MEMBER,
			 deadline_ns, out);
}

enum ct_status ct_store_connect_aux(const ct_store *first, int64_t deadline_ns, ct_store **out)
{
	return open_role(first->host, first->port, &first->opts,
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
	if (ct__call_do(s, &b, NULL, 0, ct_deadline_in(BYE_NS), &call) == CT_OK)
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

void ct_store_owner(const ct_store *s, int *rank, int *pid, char host[64])
{
	if (rank)
		*rank = s->owner_rank;
	if (pid)
		*pid = s->owner_pid;
	if (host)
		ct_wire_copy(host, 64, s->owner_host);
}
