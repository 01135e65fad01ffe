/* Connections and listening sockets are non-blocking; callers wait with poll and a deadline. One IPv6 socket that
 * accepts IPv4, too, listens on all interfaces, or an IPv4 socket if the host has no IPv6. Addresses are converted to
 * numeric strings with IPv4-mapped ones shown as IPv4, so that a peer has the same address on both kinds of sockets. A
 * peer that disappears without closing its connection is detected by keepalive probes and, if data is on the way, by
 * TCP_USER_TIMEOUT. What depends on the routes and addresses of this host is left to the kernel: a datagram socket that
 * is connected or bound sends nothing, but gives the answer. */
#include "dist/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/net/race.h"

#define SILENCE_MS 15000
#define TRY_NS (5 * CT_SEC) /* an address that drops our packets must not use up the deadline */
#define BACKLOG 4096

void ct_net_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void set_int(int fd, int level, int name, int value)
{
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

void ct_net_tune(int fd)
{
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
	set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
	set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS);
}

enum ct_status ct_net_resolve(const char *host, int port, int flags, struct addrinfo **out)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
	char service[16];
	int err;

	/* RFC 6761 defines this name, so it needs no look-up. Minimal containers have no /etc/hosts that contains
	 * it. */
	if (host && strcmp(host, "localhost") == 0)
		host = ct_net_loopback();
	snprintf(service, sizeof(service), "%d", port);
	err = getaddrinfo(host, service, &hints, out);
	if (err != 0) {
		CT_FAIL(CT_COMM, "cannot resolve the host name \"%.200s\": %s", host, gai_strerror(err));
		return ct_error_hint("use a host name that this machine can resolve, or a numeric address");
	}
	return CT_OK;
}

static enum ct_status listen_failed(const char *host, int port, int err)
{
	char holder[96] = "";
	bool held = err == EADDRINUSE && ct_net_port_holder(port, holder, sizeof(holder));

	CT_FAIL(CT_COMM, "cannot serve the store on %s%sport %d: %s%s%s", host ? host : "", host ? " " : "", port,
		err == EADDRINUSE ? "the port is in use" : strerror(err), held ? " by " : "", holder);
	if (err == EADDRINUSE)
		ct_error_hint("choose another port (--master-port or MASTER_PORT), or end the program that uses it");
	else if (err == EADDRNOTAVAIL && host && ct_net_is_loopback(host))
		ct_error_hint("this machine's loopback interface has no address: run `ip link set lo up`");
	else if (err == EADDRNOTAVAIL)
		ct_error_hint(
			"%s is not an address of this machine; rank 0 must run on the host that --master-addr names",
			host ? host : "this");
	else if (err == EACCES)
		ct_error_hint("ports below 1024 are reserved for root: choose a higher port");
	return CT_COMM;
}

static int listen_on(int family, const struct sockaddr *addr, socklen_t len)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -errno;
	/* On Linux this permits listening while connections of an earlier run are in TIME_WAIT, but never while another
	 * process listens. */
	set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (family == AF_INET6)
		set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (bind(fd, addr, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	err = errno;
	close(fd);
	return -err;
}

static int listen_everywhere(int port)
{
	struct sockaddr_in6 any6 = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT, .sin6_port = htons((uint16_t)port)};
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = listen_on(AF_INET6, (struct sockaddr *)&any6, sizeof(any6));

	if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)
		fd = listen_on(AF_INET, (struct sockaddr *)&any4, sizeof(any4));
	return fd;
}

/* *err is 0, or the errno if the port cannot be used. */
static enum ct_status try_listen(const char *host, int port, int *fd, int *err)
{
	struct addrinfo *list = NULL;

	if (host) {
		CT_TRY(ct_net_resolve(host, port, AI_PASSIVE, &list));
		*fd = listen_on(list->ai_family, list->ai_addr, list->ai_addrlen);
		freeaddrinfo(list);
	} else {
		*fd = listen_everywhere(port);
	}
	*err = *fd < 0 ? -*fd : 0;
	return CT_OK;
}

static int port_of(int fd, int otherwise)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		a.ss_family = AF_UNSPEC;
	return a.ss_family == AF_INET6  ? ntohs(((struct sockaddr_in6 *)&a)->sin6_port)
	       : a.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&a)->sin_port)
					: otherwise;
}

enum ct_status ct_net_listen(const char *host, int port, int *fd, int *bound)
{
	int err;

	if (port < 0 || port > 65535)
		return CT_FAIL(CT_USAGE, "port %d is not in 0 to 65535", port);
	CT_TRY(try_listen(host, port, fd, &err));
	if (err != 0)
		return listen_failed(host, port, err);
	*bound = port_of(*fd, port);
	return CT_OK;
}

enum ct_status ct_net_listen_in(const char *host, const struct ct_port_range *range, int *fd, int *bound)
{
	int err;

	for (int port = range->first; port <= range->last; port++) {
		CT_TRY(try_listen(host, port, fd, &err));
		if (err == 0) {
			*bound = port_of(*fd, port);
			return CT_OK;
		}
		if (err != EADDRINUSE)
			return CT_FAIL(CT_COMM, "cannot listen on %s port %d: %s", host ? host : "all addresses", port,
				       strerror(err));
	}
	CT_FAIL(CT_COMM, "all ports of dist.port_range (%d-%d) are in use on this host", range->first, range->last);
	return ct_error_hint(
		"use a larger range: beside the store, each rank of this host listens on a port until the others are connected");
}

enum ct_status ct_net_connect(const char *host, int port, int64_t deadline_ns, int *fd, int *err)
{
	int64_t limit = ct_deadline_in(TRY_NS);
	enum ct_status st = CT_OK;
	struct ct_race race;

	*err = 0;
	CT_TRY(ct_race_begin(&race, &host, 1, port));
	if (ct_race_next(&race, limit < deadline_ns ? limit : deadline_ns, fd) < 0) {
		*err = race.e[race.n - 1].err;
		*err = *err == EINPROGRESS ? ETIMEDOUT : *err;
		st = ct_race_failed(&race, host, port);
	}
	ct_race_end(&race);
	return st;
}

enum ct_status ct_net_addr_text(const struct sockaddr_storage *a, char *buf, size_t len)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
	struct sockaddr_in a4 = {.sin_family = AF_INET};
	const struct sockaddr *s = (const struct sockaddr *)a;
	socklen_t n = a->ss_family == AF_INET6 ? sizeof(*a6) : sizeof(a4);
	int err;

	if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr)) {
		memcpy(&a4.sin_addr, a6->sin6_addr.s6_addr + 12, 4);
		s = (const struct sockaddr *)&a4;
		n = sizeof(a4);
	}
	err = getnameinfo(s, n, buf, (socklen_t)len, NULL, 0, NI_NUMERICHOST);
	if (err != 0)
		return CT_FAIL(CT_COMM, "cannot convert an address to a string: %s", gai_strerror(err));
	return CT_OK;
}

enum ct_status ct_net_local_addr(int fd, char *buf, size_t len)
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
		return CT_FAIL(CT_COMM, "the store connection has no local address: %s", strerror(errno));
	return ct_net_addr_text(&a, buf, len);
}

const char *ct_net_loopback(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool has_v4 = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

	ct_net_close(&fd);
	return has_v4 ? "127.0.0.1" : "::1";
}

bool ct_net_is_loopback(const char *addr)
{
	struct in_addr a4;
	struct in6_addr a6;

	if (inet_pton(AF_INET, addr, &a4) == 1)
		return (ntohl(a4.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, addr, &a6) == 1 && IN6_IS_ADDR_LOOPBACK(&a6);
}

enum ct_status ct_net_route_source(const char *peer, char *buf, size_t len)
{
	struct addrinfo *list;
	enum ct_status st = CT_OK;
	int fd;

	/* Connecting a datagram socket only looks up the route; the port does not matter. */
	CT_TRY(ct_net_resolve(peer, 9, AI_NUMERICHOST, &list));
	fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen) != 0)
		st = CT_FAIL(CT_COMM, "no route to %s: %s", peer, strerror(errno));
	else
		st = ct_net_local_addr(fd, buf, len);
	freeaddrinfo(list);
	ct_net_close(&fd);
	return st;
}
