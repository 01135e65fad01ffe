/* One thread does everything, so no state needs a lock, except for the mailbox, through which other threads request a
 * stop or report a failure, and the failure record, which they read. The counts of launchers, which they read as well,
 * are atomic. A round consists of the mailbox, the events of epoll, and deadlines. Connections that end are only
 * marked, and freed at the end of the round, since other events of the round, and functions further up, may still refer
 * to them. The list of connections without a handshake is in order of age, so the first one has the earliest deadline.
 *
 * Anyone on the network may connect, so unauthenticated connections are limited, and the oldest is closed when there
 * are too many. If descriptors run out, the server stops listening for a moment instead of looping. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/net/net.h"
#include "dist/store/server_impl.h"

#define CT_LOG_COMPONENT "store"
#include "base/log.h"

#define MAX_EVENTS 64
#define ACCEPTS_A_ROUND 64
#define LISTEN_PAUSE_NS (100 * CT_MS)
#define OTHER_FILES 128

enum ct_status ct__srv_init(ct_store_server *s, const struct ct_store_opts *opts)
{
	s->listen_fd = s->epoll_fd = s->wake_fd = -1;
	s->opts.member = opts->member;
	s->opts.pid = opts->pid;
	s->opts.world = opts->world;
	s->opts.max_world = opts->world != 0 ? opts->world : opts->max_world;
	s->opts.n_nodes = opts->n_nodes;
	s->opts.node = opts->node;
	s->opts.ports = opts->ports;
	/* All ranks may connect at the same time. */
	s->max_handshakes = SRV_MAX_HANDSHAKES + 2 * s->opts.max_world;
	ct_wire_copy(s->opts.run_id, sizeof(s->opts.run_id), opts->run_id);
	ct_wire_copy(s->opts.token, sizeof(s->opts.token), opts->token);
	ct_wire_copy(s->opts.host, sizeof(s->opts.host), opts->host);
	CT_ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
	CT_TRY_ALLOC(s->nodes = CT_NEW_ARRAY(struct ct_srv_node, (size_t)opts->n_nodes + 1));
	return ct_store_table_init(&s->table, &s->used);
}

void ct__srv_release(ct_store_server *s)
{
	struct ct_srv_conn *c, *next;

	for (c = s->handshakes.first; c; c = next) {
		next = c->next;
		ct__srv_waits_drop(c);
		ct__srv_conn_free(c);
	}
	for (c = s->ready.first; c; c = next) {
		next = c->next;
		ct__srv_waits_drop(c);
		ct__srv_conn_free(c);
	}
	for (int i = 0; i < s->n_members; i++)
		ct_free(s->members[i]);
	ct_free(s->members);
	ct_free(s->nodes);
	ct_store_table_release(&s->table);
	ct_net_close(&s->listen_fd);
	ct_net_close(&s->epoll_fd);
	ct_net_close(&s->wake_fd);
	pthread_mutex_destroy(&s->lock);
}

void ct__srv_finish_gone(ct_store_server *s)
{
	while (s->gone) {
		struct ct_srv_conn *c = s->gone;
		struct ct_srv_member *m = c->ready && c->role == CT_ROLE_MEMBER ? c->member : NULL;

		s->gone = c->next_gone;
		ct__srv_list_drop(c->ready ? &s->ready : &s->handshakes, c);
		ct__srv_waits_drop(c);
		ct__srv_conn_count_node(c, -1);
		if (m)
			m->conn = NULL;
		/* If this process was stopped or slow, the client may have stopped waiting for its welcome. It will
		 * connect again, so this is not a failure. */
		if (m && !c->confirmed && !c->bye)
			ct__srv_member_remove(s, m);
		else if (m && !c->bye)
			ct__srv_member_lost(s, m, c->err);
		ct__srv_conn_free(c);
	}
}

static void listen_interest(ct_store_server *s, bool on)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &s->listen_fd};

	if (on != s->listening && epoll_ctl(s->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listen_fd, &ev) == 0)
		s->listening = on;
}

/* Makes room for a new connection: if there are too many unauthenticated ones, closes the oldest. False if there is no
 * room. */
static bool make_room(ct_store_server *s)
{
	struct ct_srv_conn *oldest = s->handshakes.first;

	while (oldest && oldest->gone)
		oldest = oldest->next;
	if (s->handshakes.n >= s->max_handshakes && oldest) {
		ct__srv_warn_refused(oldest, "it sent no handshake while %d connections waited", s->handshakes.n);
		ct__srv_conn_lost(oldest, ETIMEDOUT);
	}
	return s->handshakes.n + s->ready.n < SRV_MAX_CONNS;
}

static void accept_all(ct_store_server *s)
{
	for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
		struct sockaddr_storage a = {0};
		socklen_t len = sizeof(a);
		char peer[CT_ADDR_LEN] = "?";
		int fd = accept4(s->listen_fd, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0) {
			/* If descriptors or memory have run out, pause, so that this does not become a busy loop. */
			if (errno != EAGAIN && errno != EWOULDBLOCK) {
				CT_WARN("the store on port %d cannot accept a connection: %s", s->port,
					strerror(errno));
				listen_interest(s, false);
				s->listen_again = ct_deadline_in(LISTEN_PAUSE_NS);
			}
			return;
		}
		ct_net_tune(fd);
		if (ct_net_addr_text(&a, peer, sizeof(peer)) != CT_OK)
			ct_error_clear();
		if (!make_room(s) || !ct__srv_conn_open(s, fd, peer)) {
			CT_WARN("the store on port %d refuses a connection from %s: %d connections are open", s->port,
				peer, s->ready.n);
			ct_net_close(&fd);
		}
	}
}

static void handle(ct_store_server *s, const struct epoll_event *ev)
{
	struct ct_srv_conn *c = ev->data.ptr;
	uint64_t n;

	if (ev->data.ptr == &s->wake_fd) {
		while (read(s->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR)
			;
		return;
	}
	if (ev->data.ptr == &s->listen_fd) {
		accept_all(s);
		return;
	}
	if (c->gone)
		return;
	if (ev->events & EPOLLOUT)
		ct__srv_conn_flush(c);
	if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		ct__srv_conn_read(c);
}

/* Ends handshakes that have taken too long, records a pending failure when its grace period is over, and resumes
 * listening. */
static void tick(ct_store_server *s)
{
	int64_t now = ct_now_ns();

	for (struct ct_srv_conn *c = s->handshakes.first; c && c->deadline <= now; c = c->next) {
		if (!c->closing && !c->gone)
			ct__srv_warn_refused(c, "it sent no handshake within 5 s");
		ct__srv_conn_lost(c, ETIMEDOUT);
	}
	ct__srv_record_tick(s, now);
	if (!s->listening && now >= s->listen_again)
		listen_interest(s, true);
}

static int64_t next_deadline(const ct_store_server *s, int64_t stop_deadline)
{
	int64_t d = stop_deadline;

	if (s->handshakes.first && s->handshakes.first->deadline < d)
		d = s->handshakes.first->deadline;
	if (s->have_pending && s->pending_due < d)
		d = s->pending_due;
	if (!s->listening && s->listen_again < d)
		d = s->listen_again;
	return d;
}

/* Processes the mailbox, which other threads fill. Returns true if the server should end. */
static bool read_mailbox(ct_store_server *s, int64_t *stop_deadline)
{
	struct ct_failure mail;
	bool stop, have_mail;

	pthread_mutex_lock(&s->lock);
	stop = s->stop;
	have_mail = s->have_mail;
	mail = s->mail;
	s->have_mail = false;
	*stop_deadline = stop ? s->stop_deadline : CT_FOREVER;
	pthread_mutex_unlock(&s->lock);
	if (have_mail && !ct__srv_has_left(s, &mail)) {
		ct__srv_add_last_seen(s, &mail);
		ct__srv_offer_failure(s, &mail, SRV_CAUSE);
	}
	if (!stop)
		return false;
	for (int i = 0; i < s->n_members; i++) {
		if (s->members[i]->conn)
			return ct_now_ns() >= *stop_deadline;
	}
	return !s->have_pending || ct_now_ns() >= *stop_deadline;
}

static void *run(void *arg)
{
	struct epoll_event events[MAX_EVENTS];
	ct_store_server *s = arg;
	int64_t stop_deadline;

	while (!read_mailbox(s, &stop_deadline)) {
		int n = epoll_wait(s->epoll_fd, events, MAX_EVENTS,
				   ct_deadline_poll_ms(next_deadline(s, stop_deadline)));

		for (int i = 0; i < n; i++)
			handle(s, &events[i]);
		tick(s);
		ct__srv_finish_gone(s);
	}
	return NULL;
}

/* Each rank has two connections, and each node's launcher has one. The usual limit of open files is 1024. */
static void raise_file_limit(const ct_store_server *s)
{
	const rlim_t members = OTHER_FILES + 3 * (rlim_t)s->opts.max_world, need = members + (rlim_t)s->max_handshakes;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= need)
		return;
	files.rlim_cur = need < files.rlim_max ? need : files.rlim_max;
	(void)!setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < members)
		CT_WARN("the limit on open files is %llu, but the store of %d ranks may need %llu: raise it (ulimit -n)",
			(unsigned long long)files.rlim_cur, s->opts.max_world, (unsigned long long)need);
}

static enum ct_status start(ct_store_server *s, const char *host, int port)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &s->wake_fd};

	raise_file_limit(s);
	if (port == 0)
		CT_TRY(ct_net_listen_in(host, &s->opts.ports, &s->listen_fd, &s->port));
	else
		CT_TRY(ct_net_listen(host, port, &s->listen_fd, &s->port));
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->epoll_fd < 0 || s->wake_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->wake_fd, &ev) != 0)
		return CT_FAIL(CT_COMM, "cannot serve the store: %s", strerror(errno));
	listen_interest(s, true);
	return ct_thread_start(&s->thread, "ct-store", run, s);
}

enum ct_status ct_store_server_start(const char *host, int port, const struct ct_store_opts *opts,
				     ct_store_server **out)
{
	enum ct_status st;
	ct_store_server *s;

	CT_TRY_ALLOC(s = CT_NEW(ct_store_server));
	CT_TRY_GOTO(ct__srv_init(s, opts), st, fail);
	CT_TRY_GOTO(start(s, host, port), st, fail);
	CT_DEBUG("serving the store of run \"%s\" on port %d", s->opts.run_id, s->port);
	*out = s;
	return CT_OK;
fail:
	ct__srv_release(s);
	ct_free(s);
	return st;
}

int ct_store_server_port(const ct_store_server *s)
{
	return s->port;
}

static void wake(ct_store_server *s)
{
	uint64_t one = 1;

	while (write(s->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void ct_store_server_fail(ct_store_server *s, const struct ct_failure *f)
{
	pthread_mutex_lock(&s->lock);
	if (!s->have_mail)
		s->mail = *f;
	s->have_mail = true;
	pthread_mutex_unlock(&s->lock);
	wake(s);
}

bool ct_store_server_has_node(const ct_store_server *s, int node)
{
	return atomic_load(&s->nodes[node].n_conns) > 0;
}

bool ct_store_server_had_node(const ct_store_server *s, int node)
{
	return ct_store_server_has_node(s, node) || atomic_load(&s->nodes[node].left);
}

bool ct_store_server_failure(ct_store_server *s, struct ct_failure *out)
{
	pthread_mutex_lock(&s->lock);
	bool failed = s->failed;
	if (failed)
		*out = s->failure;
	pthread_mutex_unlock(&s->lock);
	return failed;
}

void ct_store_server_stop(ct_store_server *s, int64_t deadline_ns)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	s->stop_deadline = deadline_ns;
	pthread_mutex_unlock(&s->lock);
	wake(s);
	ct_thread_join(&s->thread);
	ct__srv_release(s);
	ct_free(s);
}
