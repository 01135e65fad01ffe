/* Entries are started in the order of the array: those before n_started are connected, under way or have failed, the
 * others follow at start_next. A failure starts the next one at once, and sets `limit`: when one address answers, even
 * by refusing, the others should not need much longer. The limit begins anew with each call, so that the time which the
 * caller spends on a connection does not count. Shortly before the end all remaining addresses are started, because the
 * message should contain the error of each one. A connection that leads from a socket to itself counts as refused. */
#include "dist/net/race.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define STAGGER_NS (50 * CT_MS)
#define REST_NS CT_SEC /* how long the other addresses may take when one has failed */

static bool known(const struct ct_race *r, const struct addrinfo *a)
{
	for (int i = 0; i < r->n; i++) {
		if (r->e[i].len == a->ai_addrlen && memcmp(&r->e[i].addr, a->ai_addr, a->ai_addrlen) == 0)
			return true;
	}
	return false;
}

static void add(struct ct_race *r, const struct addrinfo *a)
{
	struct ct_race_entry *e = &r->e[r->n];

	if (r->n == CT_RACE_MAX || a->ai_addrlen > sizeof(e->addr) || known(r, a))
		return;
	*e = (struct ct_race_entry){.fd = -1, .len = a->ai_addrlen};
	memcpy(&e->addr, a->ai_addr, a->ai_addrlen);
	r->n++;
}

static const struct addrinfo *next_of(const struct addrinfo *a, bool v6)
{
	while (a && (a->ai_family == AF_INET6) != v6)
		a = a->ai_next;
	return a;
}

/* Adds the addresses of a name, alternating between the families, beginning with that of the first one. */
static void add_all(struct ct_race *r, const struct addrinfo *list)
{
	bool first_v6 = list->ai_family == AF_INET6;
	const struct addrinfo *a = list, *b = next_of(list, !first_v6);

	while (a || b) {
		if (a)
			add(r, a);
		if (b)
			add(r, b);
		a = a ? next_of(a->ai_next, first_v6) : NULL;
		b = b ? next_of(b->ai_next, !first_v6) : NULL;
	}
}

enum ct_status ct_race_begin(struct ct_race *r, const char *const *hosts, int n_hosts, int port)
{
	struct addrinfo *list;

	r->n = 0;
	r->n_started = 0;
	r->start_next = 0;
	r->limit = CT_FOREVER;
	for (int i = 0; i < n_hosts; i++) {
		if (ct_net_resolve(hosts[i], port, 0, &list) != CT_OK)
			continue;
		add_all(r, list);
		freeaddrinfo(list);
	}
	if (r->n == 0)
		return n_hosts > 0 ? ct_error_status() : CT_FAIL(CT_COMM, "there is no address to connect to");
	ct_error_clear();
	return CT_OK;
}

static void failed(struct ct_race *r, struct ct_race_entry *e, int err)
{
	int64_t limit = ct_deadline_in(REST_NS);

	ct_net_close(&e->fd);
	e->err = err;
	r->start_next = 0;
	r->limit = limit < r->limit ? limit : r->limit;
}

/* When no process listens on a port of our own host, a socket that happens to have this source port connects to
 * itself. */
static bool connected_to_itself(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t na = sizeof(a), nb = sizeof(b);

	return getsockname(fd, (struct sockaddr *)&a, &na) == 0 && getpeername(fd, (struct sockaddr *)&b, &nb) == 0 &&
	       na == nb && memcmp(&a, &b, na) == 0;
}

static void start_one(struct ct_race *r)
{
	struct ct_race_entry *e = &r->e[r->n_started++];

	r->start_next = ct_deadline_in(STAGGER_NS);
	e->err = EINPROGRESS;
	e->fd = socket(e->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (e->fd < 0 ||
	    (connect(e->fd, (const struct sockaddr *)&e->addr, e->len) != 0 && errno != EINPROGRESS && errno != EINTR))
		failed(r, e, errno);
}

/* Returns true if the entry is connected; handles its failure. */
static bool is_connected(struct ct_race *r, struct ct_race_entry *e)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(e->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
		err = errno;
	if (err == 0 && connected_to_itself(e->fd))
		err = ECONNREFUSED;
	if (err != 0)
		failed(r, e, err);
	return err == 0;
}

/* Waits for events of the connections that are under way. Returns the number of such connections. */
static int wait_for_events(const struct ct_race *r, struct pollfd p[CT_RACE_MAX], int64_t until)
{
	int n = 0;

	for (int i = 0; i < r->n; i++) {
		p[i] = (struct pollfd){.fd = r->e[i].fd, .events = POLLOUT};
		n += r->e[i].fd >= 0;
	}
	if (n > 0 && poll(p, (nfds_t)r->n, ct_deadline_poll_ms(until)) < 0) {
		for (int i = 0; i < r->n; i++)
			p[i].revents = 0;
	}
	return n;
}

int ct_race_next(struct ct_race *r, int64_t deadline_ns, int *fd)
{
	struct pollfd p[CT_RACE_MAX];

	if (r->limit != CT_FOREVER)
		r->limit = ct_deadline_in(REST_NS);
	for (;;) {
		int64_t now = ct_now_ns(), until = deadline_ns < r->limit ? deadline_ns : r->limit;
		bool more;

		/* Near the end, start all that are left: the message should contain the error of each address. */
		while (r->n_started < r->n && (now >= r->start_next || now >= until - STAGGER_NS))
			start_one(r);
		more = r->n_started < r->n;
		if (wait_for_events(r, p, more && r->start_next < until ? r->start_next : until) == 0 && !more)
			return -1;
		for (int i = 0; i < r->n; i++) {
			struct ct_race_entry *e = &r->e[i];

			if (e->fd < 0 || !p[i].revents || !is_connected(r, e))
				continue;
			*fd = e->fd;
			e->fd = -1;
			e->err = 0;
			ct_net_tune(*fd);
			return i;
		}
		if (ct_now_ns() >= until)
			return -1;
	}
}

bool ct_race_has_more(const struct ct_race *r)
{
	bool more = r->n_started < r->n;

	for (int i = 0; i < r->n_started; i++)
		more = more || r->e[i].fd >= 0;
	return more;
}

void ct_race_end(struct ct_race *r)
{
	for (int i = 0; i < r->n; i++)
		ct_net_close(&r->e[i].fd);
}

/* Writes the errors of the addresses: "10.0.0.1: Connection refused; fd00::1: no answer". A single address is not
 * written if the caller has used it instead of a name. */
static void describe(const struct ct_race *r, const char *host, struct ct_str *out)
{
	char text[CT_ADDR_LEN];

	for (int i = 0; i < r->n; i++) {
		int err = r->e[i].err;

		if (err == 0 || ct_net_addr_text(&r->e[i].addr, text, sizeof(text)) != CT_OK)
			continue;
		if (r->n > 1 || strcmp(text, host) != 0)
			ct_str_addf(out, "%s%s: ", out->len ? "; " : "", text);
		ct_str_add(out, err == EINPROGRESS ? "no answer" : strerror(err));
	}
}

/* Debian maps the own name of a host to 127.0.1.1. Copied to another host, this entry leads nowhere. */
static bool leads_nowhere(const struct ct_race *r, const char *host, char text[CT_ADDR_LEN])
{
	for (int i = 0; i < r->n; i++) {
		if (ct_net_addr_text(&r->e[i].addr, text, CT_ADDR_LEN) != CT_OK || !ct_net_is_loopback(text) ||
		    strcmp(text, host) == 0)
			return false;
	}
	return strcmp(host, "localhost") != 0;
}

enum ct_status ct_race_failed(const struct ct_race *r, const char *host, int port)
{
	struct ct_str why = {0};
	char text[CT_ADDR_LEN];

	describe(r, host, &why);
	CT_FAIL(CT_COMM, "cannot connect to %.200s port %d: %.400s", host, port, ct_str_text(&why));
	if (leads_nowhere(r, host, text))
		ct_error_hint(
			"this host resolves %.100s to %s, its own loopback interface: unless %.100s is this host, correct /etc/hosts "
			"or use the address of that host",
			host, text, host);
	ct_str_release(&why);
	return CT_COMM;
}
