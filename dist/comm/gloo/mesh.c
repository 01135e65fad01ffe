/* Connects the ranks of a communicator to each other. One loop serves all connections of this rank: those that it makes
 * to lower ranks, which it repeats until the deadline, and those that it accepts, which are strangers until they are
 * proved. There is room for a limited number of strangers. If more connect, the oldest one is dropped. A rank gives its
 * proof within a few rounds of the loop, and each round accepts only a part of the room; a rank that is dropped
 * nevertheless connects again. So strangers cannot use up the descriptors, and it takes a flood without gaps to delay
 * the ranks. If a rank proves a second connection, it has lost the first one, which is replaced.
 *
 * The key of the proofs is derived from the secret of the run, the run id with the number of the attempt, and a random
 * number that the first rank of the communicator publishes in the store. Without a secret, only who can read the store
 * can connect. */
#include "dist/comm/gloo/mesh.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/gloo/mesh_impl.h"

#define MAX_STRANGERS 64
#define MAX_ACCEPTED (MAX_STRANGERS / 4) /* in one round */
#define FIRST_PAUSE_NS (2 * CT_MS)
#define MAX_PAUSE_NS (200 * CT_MS)
/* How often to look whether the run has failed. */
#define LOOK_NS (100 * CT_MS)

/* A lower rank, to which this rank connects. */
struct target {
	struct sockaddr_storage addr;
	socklen_t len;
	char text[CT_ADDR_LEN + 16]; /* "10.77.0.1 port 30001" */
	struct ct_link link;         /* fd < 0: not connected at present */
	struct ct_backoff pause;
	int64_t next_ns; /* when to connect again */
};

struct meeting {
	const ct_comm *comm;
	struct ct_mesh *mesh;
	const char *addr;
	char key[CT_TOKEN_HEX];
	int64_t deadline_ns;
	int listener, port;
	struct target *targets;                  /* [rank] */
	struct ct_link strangers[MAX_STRANGERS]; /* the oldest one first */
	int n_strangers;
	struct pollfd *polled; /* [1 + rank + MAX_STRANGERS]: the listener, the targets, the strangers */
	int n_missing;         /* ranks without a proved connection */
	int64_t n_dropped, next_look_ns;
};

/* ---- addresses and the key, through the store */

/* Only ranks of other hosts are limited to dist.port_range. */
static bool needs_range(const struct meeting *m)
{
	const struct ct_peer *peers = m->comm->world->peers;

	for (int q = m->comm->rank + 1; q < m->comm->size && m->comm->opts.ports.first > 0; q++) {
		if (peers[q].node != peers[m->comm->rank].node)
			return true;
	}
	return false;
}

static enum ct_status listen_and_publish(struct meeting *m)
{
	static const struct ct_port_range any = {0};
	const ct_comm *c = m->comm;
	char name[128], text[CT_ADDR_LEN + 16];

	CT_TRY(ct_net_listen_in(m->addr, needs_range(m) ? &c->opts.ports : &any, &m->listener, &m->port));
	snprintf(text, sizeof(text), "%s %d", m->addr, m->port);
	snprintf(name, sizeof(name), "%s/mesh/addr%d", c->scope, c->rank);
	return ct_store_set(c->world->store, name, text, strlen(text));
}

/* Waits for what rank q publishes in the store. The caller frees *value (ct_free). */
static enum ct_status get_of(struct meeting *m, int q, const char *name, char **value)
{
	const ct_comm *c = m->comm;
	char who[128];
	size_t len;
	enum ct_status st = ct_store_get(c->world->store, name, m->deadline_ns, value, &len);

	if (st != CT_TIMEOUT)
		return st;
	ct__comm_peer_text(c, q, who, sizeof(who));
	CT_FAIL(CT_TIMEOUT, "%s has not begun to connect to the others within %.4g s", who,
		(double)c->opts.connect_ns * 1e-9);
	return ct__comm_caused_by(c, q, CT_TIMEOUT);
}

/* The key is as fresh as the random number, and only ranks that have joined the run can read that. */
static enum ct_status share_key(struct meeting *m)
{
	const ct_comm *c = m->comm;
	char name[128], number[CT_TOKEN_HEX], purpose[256], *value = NULL;

	snprintf(name, sizeof(name), "%s/mesh/key", c->scope);
	if (c->rank == 0) {
		CT_TRY(ct_token_make(number));
		CT_TRY(ct_store_set(c->world->store, name, number, strlen(number)));
	} else {
		CT_TRY(get_of(m, 0, name, &value));
		snprintf(number, sizeof(number), "%s", value);
		ct_free(value);
	}
	snprintf(purpose, sizeof(purpose), "ranks %s %s", c->scope, number);
	ct_store_derive_key(c->world->store, purpose, m->key);
	return CT_OK;
}

/* Reads "ADDRESS PORT". */
static enum ct_status parse_address(struct target *t, int q, char *text)
{
	char *space = strchr(text, ' ');
	const int port = space ? (int)strtol(space, NULL, 10) : 0;
	struct addrinfo *list;

	if (!space || port < 1 || port > 65535)
		return CT_FAIL(CT_MISMATCH, "rank %d has published \"%.80s\" instead of its address and port", q, text);
	*space = '\0';
	CT_TRY(ct_net_resolve(text, port, AI_NUMERICHOST, &list));
	memcpy(&t->addr, list->ai_addr, list->ai_addrlen);
	t->len = list->ai_addrlen;
	freeaddrinfo(list);
	snprintf(t->text, sizeof(t->text), "%.63s port %d", text, port);
	return CT_OK;
}

static enum ct_status find_targets(struct meeting *m)
{
	const ct_comm *c = m->comm;
	char name[128], *value = NULL;
	enum ct_status st;

	for (int q = 0; q < c->rank; q++) {
		m->targets[q].pause = (struct ct_backoff){.next_ns = FIRST_PAUSE_NS, .max_ns = MAX_PAUSE_NS};
		snprintf(name, sizeof(name), "%s/mesh/addr%d", c->scope, q);
		CT_TRY(get_of(m, q, name, &value));
		st = parse_address(&m->targets[q], ct__comm_world_rank(c, q), value);
		ct_free(value);
		CT_TRY(st);
	}
	return CT_OK;
}

/* ---- connections */

static void use_cubic(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t na = sizeof(a), nb = sizeof(b);
	char here[CT_ADDR_LEN], there[CT_ADDR_LEN];

	if (getsockname(fd, (struct sockaddr *)&a, &na) != 0 || getpeername(fd, (struct sockaddr *)&b, &nb) != 0 ||
	    ct_net_addr_text(&a, here, sizeof(here)) < 0 || ct_net_addr_text(&b, there, sizeof(there)) < 0)
		return;
	if (strcmp(here, there) == 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		CT_DEBUG("cannot change the congestion control of a connection within this host: %s", strerror(errno));
}

static void proved(struct meeting *m, int q, int fd)
{
	if (m->mesh->fd[q] >= 0)
		close(m->mesh->fd[q]);
	else
		m->n_missing--;
	ct_net_tune(fd);
	use_cubic(fd);
	m->mesh->fd[q] = fd;
}

static void remove_stranger(struct meeting *m, int i)
{
	m->n_strangers--;
	memmove(m->strangers + i, m->strangers + i + 1, (size_t)(m->n_strangers - i) * sizeof(*m->strangers));
}

static void drop_stranger(struct meeting *m, int i)
{
	close(m->strangers[i].fd);
	m->n_dropped++;
	remove_stranger(m, i);
}

/* Leaves the rest for the next rounds, so that those that were accepted are heard in between. */
static enum ct_status accept_strangers(struct meeting *m)
{
	for (int i = 0; i < MAX_ACCEPTED; i++) {
		int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE) && m->n_strangers > 0) {
			drop_stranger(m, 0);
			continue;
		}
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			return CT_FAIL(CT_NOMEM, "cannot accept the connection of another rank: %s", strerror(errno));
		if (fd < 0)
			return CT_OK;
		if (m->n_strangers == MAX_STRANGERS)
			drop_stranger(m, 0);
		ct__link_begin(&m->strangers[m->n_strangers++], fd, -1, m->comm->rank);
	}
	return CT_OK;
}

/* Returns true if it is no longer a stranger or is gone, so that the next one has its index. */
static bool hear_stranger(struct meeting *m, int i)
{
	struct ct_link *l = &m->strangers[i];

	switch (ct__link_advance(l, m->key, m->comm->size)) {
	case CT_LINK_PENDING:
		return false;
	case CT_LINK_PROVED:
		proved(m, l->from, l->fd);
		remove_stranger(m, i);
		return true;
	case CT_LINK_BROKEN:
		break;
	}
	CT_DEBUG("dropped a connection to %s port %d: %s", m->addr, m->port, l->why);
	drop_stranger(m, i);
	return true;
}

static void connect_again(struct target *t)
{
	ct_net_close(&t->link.fd);
	t->next_ns = ct_deadline_in(ct_backoff_ns(&t->pause));
}

static void start_connecting(struct meeting *m, int q)
{
	struct target *t = &m->targets[q];
	int fd = socket(t->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	ct__link_begin(&t->link, fd, m->comm->rank, q);
	if (fd >= 0)
		ct_net_tune(fd); /* a host that vanishes is noticed */
	if (fd >= 0 && (connect(fd, (const struct sockaddr *)&t->addr, t->len) == 0 || errno == EINPROGRESS))
		return;
	snprintf(t->link.why, sizeof(t->link.why), "%s", strerror(errno));
	connect_again(t);
}

static void hear_target(struct meeting *m, int q)
{
	struct target *t = &m->targets[q];

	switch (ct__link_advance(&t->link, m->key, m->comm->size)) {
	case CT_LINK_PENDING:
		return;
	case CT_LINK_PROVED:
		proved(m, q, t->link.fd);
		t->link.fd = -1;
		return;
	case CT_LINK_BROKEN:
		break;
	}
	connect_again(t);
}

/* ---- the loop */

/* Starts the connections that are due. Returns when the next one is. */
static int64_t start_due(struct meeting *m)
{
	int64_t next = ct_deadline_in(LOOK_NS);

	for (int q = 0; q < m->comm->rank; q++) {
		struct target *t = &m->targets[q];

		if (m->mesh->fd[q] >= 0 || t->link.fd >= 0)
			continue;
		if (t->next_ns <= ct_now_ns())
			start_connecting(m, q);
		else if (t->next_ns < next)
			next = t->next_ns;
	}
	return next < m->deadline_ns ? next : m->deadline_ns;
}

static enum ct_status serve_once(struct meeting *m)
{
	const int64_t until = start_due(m);
	const int rank = m->comm->rank, n = m->n_strangers;
	int seen = 0;

	m->polled[0] = (struct pollfd){.fd = m->listener, .events = POLLIN};
	for (int q = 0; q < rank; q++)
		m->polled[1 + q] =
			(struct pollfd){.fd = m->targets[q].link.fd,
					.events = m->targets[q].link.stage == CT_LINK_CONNECTED ? POLLOUT : POLLIN};
	for (int i = 0; i < n; i++)
		m->polled[1 + rank + i] = (struct pollfd){.fd = m->strangers[i].fd, .events = POLLIN};
	if (poll(m->polled, (nfds_t)(1 + rank + n), ct_deadline_poll_ms(until)) < 0 && errno != EINTR)
		return CT_FAIL(CT_COMM, "poll: %s", strerror(errno));
	for (int q = 0; q < rank; q++) {
		if (m->polled[1 + q].revents)
			hear_target(m, q);
	}
	for (int i = 0; i < n; i++) {
		if (!m->polled[1 + rank + i].revents || !hear_stranger(m, seen))
			seen++;
	}
	return m->polled[0].revents ? accept_strangers(m) : CT_OK;
}

static enum ct_status timed_out(const struct meeting *m)
{
	const ct_comm *c = m->comm;
	const double seconds = (double)c->opts.connect_ns * 1e-9;
	char who[128], others[48] = "";
	int q = 0;

	while (q == c->rank || m->mesh->fd[q] >= 0)
		q++;
	ct__comm_peer_text(c, q, who, sizeof(who));
	if (m->n_missing > 1)
		snprintf(others, sizeof(others), " (%d other rank%s missing, too)", m->n_missing - 1,
			 m->n_missing == 2 ? " is" : "s are");
	if (q < c->rank)
		CT_FAIL(CT_TIMEOUT, "cannot connect to %s at %s within %.4g s: %s%s", who, m->targets[q].text, seconds,
			m->targets[q].link.why[0] ? m->targets[q].link.why : "there is no answer", others);
	else
		CT_FAIL(CT_TIMEOUT, "%s has not connected to %s port %d within %.4g s%s", who, m->addr, m->port,
			seconds, others);
	ct_error_hint(
		"a firewall may drop the packets: limit the ports of ctrain with dist.port_range and open them between "
		"the nodes, choose another network with dist.iface, or run `ctrain doctor` on all nodes");
	return ct__comm_caused_by(c, q, CT_TIMEOUT);
}

static enum ct_status meet(struct meeting *m)
{
	struct ct_failure failure;

	while (m->n_missing > 0) {
		CT_TRY(serve_once(m));
		if (m->n_missing > 0 && ct_now_ns() >= m->deadline_ns)
			return timed_out(m);
		if (ct_now_ns() < m->next_look_ns)
			continue;
		m->next_look_ns = ct_deadline_in(LOOK_NS);
		if (ct_store_watch(m->comm->world->store, 0, &failure) == CT_OK)
			return ct_failure_raise(&failure);
	}
	if (m->n_dropped > 0)
		CT_WARN("dropped %lld connection%s to %s port %d that gave no proof to come from a rank of this run",
			(long long)m->n_dropped, ct_plural(m->n_dropped), m->addr, m->port);
	return CT_OK;
}

static enum ct_status prepare(struct meeting *m)
{
	const int rank = m->comm->rank, size = m->comm->size;

	CT_TRY_ALLOC(m->mesh->fd = CT_NEW_ARRAY(int, (size_t)size));
	for (int q = 0; q < size; q++)
		m->mesh->fd[q] = -1;
	m->mesh->size = size;
	m->n_missing = size - 1;
	CT_TRY_ALLOC(m->targets = CT_NEW_ARRAY(struct target, (size_t)size));
	for (int q = 0; q < rank; q++)
		m->targets[q].link.fd = -1;
	CT_TRY_ALLOC(m->polled = CT_NEW_ARRAY(struct pollfd, (size_t)(1 + rank + MAX_STRANGERS)));
	if (rank < size - 1) /* no rank connects to the last one */
		CT_TRY(listen_and_publish(m));
	CT_TRY(share_key(m));
	return find_targets(m);
}

enum ct_status ct__mesh_connect(const ct_comm *c, const char *addr, struct ct_mesh *out)
{
	struct meeting m = {.comm = c,
			    .mesh = out,
			    .addr = addr,
			    .listener = -1,
			    .deadline_ns = ct_deadline_in(c->opts.connect_ns)};
	enum ct_status st;

	memset(out, 0, sizeof(*out));
	st = prepare(&m);
	if (st == CT_OK)
		st = meet(&m);
	for (int q = 0; m.targets && q < c->rank; q++)
		ct_net_close(&m.targets[q].link.fd);
	for (int i = 0; i < m.n_strangers; i++)
		close(m.strangers[i].fd);
	ct_net_close(&m.listener);
	ct_free(m.targets);
	ct_free(m.polled);
	if (st < 0)
		ct__mesh_release(out);
	return st;
}

void ct__mesh_release(struct ct_mesh *m)
{
	for (int q = 0; q < m->size; q++)
		ct_net_close(&m->fd[q]);
	ct_free(m->fd);
	memset(m, 0, sizeof(*m));
}

void ct__mesh_shut(const struct ct_mesh *m)
{
	for (int q = 0; q < m->size; q++) {
		if (m->fd[q] >= 0)
			(void)shutdown(m->fd[q], SHUT_RDWR); /* fails if the peer has closed it first */
	}
}

int ct__mesh_lost(const struct ct_mesh *m)
{
	for (int q = 0; q < m->size; q++) {
		struct pollfd p = {.fd = m->fd[q], .events = POLLRDHUP};

		if (m->fd[q] >= 0 && poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
			return q;
	}
	return -1;
}
