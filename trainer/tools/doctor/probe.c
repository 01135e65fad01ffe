/* The listener serves one client at a time, with a limit on its time, and answers nothing before it has seen the nonce:
 * the port is open to everyone. The answer contains the node, because an address may lead to another host than
 * expected. The difference of the clocks is computed as in NTP, on the assumption that both directions take equally
 * long. For the speed, the client sends for a while and then waits for the number of bytes that have arrived, so that
 * data in buffers on the way is not counted before it is there. */
#include "trainer/tools/doctor/probe.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "dist/net/net.h"

#define POLL_MS 20
#define CONNECT_NS (1500 * CT_MS)
#define NONCE_NS CT_SEC        /* for a client of the listener that may be a port scanner */
#define ANSWER_NS (3 * CT_SEC) /* the listener may have to wait for other clients first */
#define CLIENT_NS (5 * CT_SEC) /* limit of one client of the listener */
#define CHUNK ((size_t)256 << 10)

struct ct_probe_listener {
	int node, fd, port;
	char nonce[CT_PROBE_NONCE];
	char *buffer; /* [CHUNK] */
	struct ct_thread thread;
	atomic_bool stop;
};

struct answer {
	char nonce[CT_PROBE_NONCE];
	int32_t node;
	int32_t unused;
	int64_t wall_ns;
};

static int64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * CT_SEC + t.tv_nsec;
}

/* Waits until the socket is ready; false after the deadline. */
static bool ready(int fd, short events, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n;

	do
		n = poll(&p, 1, ct_deadline_poll_ms(deadline));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		errno = ETIMEDOUT;
	return n > 0;
}

static bool send_all(int fd, const void *data, size_t len, int64_t deadline)
{
	const char *p = data;

	while (len > 0) {
		const ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if ((errno != EAGAIN && errno != EINTR) || !ready(fd, POLLOUT, deadline)) {
			return false;
		}
	}
	return true;
}

static bool receive_all(int fd, void *data, size_t len, int64_t deadline)
{
	char *p = data;

	while (len > 0) {
		const ssize_t n = recv(fd, p, len, 0);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0) {
			errno = ECONNRESET;
			return false;
		} else if ((errno != EAGAIN && errno != EINTR) || !ready(fd, POLLIN, deadline)) {
			return false;
		}
	}
	return true;
}

/* ---- listener */

static void serve(ct_probe_listener *l, int fd)
{
	const int64_t deadline = ct_deadline_in(CLIENT_NS);
	struct answer a = {.node = l->node};
	char nonce[CT_PROBE_NONCE];
	int64_t total = 0;

	if (!receive_all(fd, nonce, sizeof(nonce), ct_deadline_in(NONCE_NS)) ||
	    memcmp(nonce, l->nonce, sizeof(nonce)) != 0)
		return;
	memcpy(a.nonce, l->nonce, sizeof(a.nonce));
	a.wall_ns = wall_ns();
	if (!send_all(fd, &a, sizeof(a), deadline))
		return;
	for (;;) {
		const ssize_t n = recv(fd, l->buffer, CHUNK, 0);

		if (n > 0)
			total += n;
		else if (n == 0)
			break;
		else if ((errno != EAGAIN && errno != EINTR) || !ready(fd, POLLIN, deadline))
			return;
	}
	(void)send_all(fd, &total, sizeof(total), deadline);
}

static void *listen_thread(void *arg)
{
	ct_probe_listener *l = arg;

	while (!atomic_load(&l->stop)) {
		int fd;

		if (!ready(l->fd, POLLIN, ct_deadline_in(POLL_MS * CT_MS)))
			continue;
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			continue;
		ct_net_tune(fd);
		serve(l, fd);
		ct_net_close(&fd);
	}
	return NULL;
}

enum ct_status ct_probe_listen(int node, const char nonce[CT_PROBE_NONCE], const struct ct_port_range *ports,
			       ct_probe_listener **out)
{
	ct_probe_listener *l;
	enum ct_status st;

	CT_TRY_ALLOC(l = CT_NEW(ct_probe_listener));
	l->node = node;
	l->fd = -1;
	memcpy(l->nonce, nonce, sizeof(l->nonce));
	st = (l->buffer = ct_calloc(CHUNK, 1)) ? ct_net_listen_in(NULL, ports, &l->fd, &l->port) : CT_NOMEM;
	if (st == CT_OK)
		st = ct_thread_start(&l->thread, "doctor", listen_thread, l);
	if (st < 0)
		ct_probe_close(l);
	else
		*out = l;
	return st;
}

int ct_probe_port(const ct_probe_listener *l)
{
	return l->port;
}

void ct_probe_close(ct_probe_listener *l)
{
	if (!l)
		return;
	atomic_store(&l->stop, true);
	ct_thread_join(&l->thread);
	ct_net_close(&l->fd);
	ct_free(l->buffer);
	ct_free(l);
}

/* ---- client */

static enum ct_reason reason_of(int err)
{
	if (err == EHOSTUNREACH || err == ENETUNREACH)
		return CT_REASON_NO_ROUTE;
	return err == ECONNREFUSED ? CT_REASON_REJECTED : CT_REASON_NONE;
}

static bool greet(int fd, int node, const char *nonce, struct ct_link_facts *out)
{
	const int64_t deadline = ct_deadline_in(ANSWER_NS), start = ct_now_ns(), wall = wall_ns();
	struct answer a;

	if (!send_all(fd, nonce, CT_PROBE_NONCE, deadline) || !receive_all(fd, &a, sizeof(a), deadline)) {
		snprintf(out->error, sizeof(out->error), "no answer: %s", strerror(errno));
		return false;
	}
	const int64_t took = ct_now_ns() - start;
	if (memcmp(a.nonce, nonce, CT_PROBE_NONCE) != 0 || a.node != node) {
		snprintf(out->error, sizeof(out->error), "another host answers at this address");
		return false;
	}
	out->rtt_ms = (double)took * 1e-6;
	out->ahead_s = (double)(a.wall_ns - (wall + took / 2)) * 1e-9;
	return true;
}

/* Sends for a while and waits until the listener has received all of it. */
static bool measure(int fd, double seconds, struct ct_link_facts *out)
{
	const int64_t start = ct_now_ns(), until = start + (int64_t)(seconds * 1e9),
		      deadline = ct_deadline_in(CLIENT_NS);
	int64_t sent = 0, total = 0;
	char *chunk = ct_calloc(CHUNK, 1);
	bool ok = chunk != NULL;

	while (ok && ct_now_ns() < until) {
		ok = send_all(fd, chunk, CHUNK, deadline);
		sent += (int64_t)CHUNK;
	}
	ok = ok && shutdown(fd, SHUT_WR) == 0 && receive_all(fd, &total, sizeof(total), deadline) && total == sent;
	if (ok)
		out->mib_per_s = (double)sent / (1 << 20) / ct_seconds_since(start);
	else
		snprintf(out->error, sizeof(out->error), "the connection broke while data was sent: %s",
			 strerror(errno));
	ct_free(chunk);
	return ok;
}

void ct_probe_connect(const char *addr, int port, int node, const char nonce[CT_PROBE_NONCE], double seconds,
		      struct ct_link_facts *out)
{
	int fd = -1, err;

	*out = (struct ct_link_facts){.tried = true};
	snprintf(out->addr, sizeof(out->addr), "%s", addr);
	if (ct_net_connect(addr, port, ct_deadline_in(CONNECT_NS), &fd, &err) < 0) {
		snprintf(out->error, sizeof(out->error), "%s", err ? strerror(err) : ct_error_message());
		out->reason = reason_of(err);
		ct_error_clear();
		return;
	}
	out->reached = greet(fd, node, nonce, out) && (seconds <= 0 || measure(fd, seconds, out));
	ct_net_close(&fd);
}
