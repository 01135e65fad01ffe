/* The connections of gloo are those TCP sockets in /proc/self/fd that were not there before gloo connected. Other
 * threads may have opened connections in the meantime. Therefore, all ranks exchange the pairs of ports of what they
 * have found, and a socket is kept only if another rank has the same pair in reverse, which also shows which rank that
 * is. A shutdown of the duplicate affects the connection, and so also gloo's descriptor. gloo's descriptors themselves
 * are never closed or written to. */
#include "dist/comm/gloo/sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"

static uint16_t port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)(const void *)a)->sin6_port
					      : ((const struct sockaddr_in *)(const void *)a)->sin_port);
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
			      &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
	return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
}

/* Fills in the properties of a connected TCP socket. Returns false for every other descriptor. */
static bool look_at(int fd, struct ct_gloo_socket *out)
{
	struct sockaddr_storage local, remote;
	socklen_t local_len = sizeof(local), remote_len = sizeof(remote), len = sizeof(int);
	struct stat sb;
	int type = 0;

	if (fstat(fd, &sb) != 0 || !S_ISSOCK(sb.st_mode))
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM)
		return false;
	if (getsockname(fd, (struct sockaddr *)&local, &local_len) != 0 ||
	    getpeername(fd, (struct sockaddr *)&remote, &remote_len) != 0)
		return false;
	if (local.ss_family != AF_INET && local.ss_family != AF_INET6)
		return false;
	*out = (struct ct_gloo_socket){.fd = -1,
				       .inode = sb.st_ino,
				       .local = port_of(&local),
				       .remote = port_of(&remote),
				       .same_host = same_address(&local, &remote),
				       .peer = -1};
	return true;
}

static bool contains(const struct ct_gloo_sockets *s, uint64_t inode)
{
	for (int i = 0; s && i < s->n; i++) {
		if (s->s[i].inode == inode)
			return true;
	}
	return false;
}

static enum ct_status add(struct ct_gloo_sockets *out, int fd, const struct ct_gloo_socket *found)
{
	struct ct_gloo_socket *s;

	CT_TRY_ALLOC(s = ct_realloc(out->s, (size_t)out->n + 1, sizeof(*s)));
	out->s = s;
	s[out->n] = *found;
	s[out->n].fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (s[out->n].fd < 0)
		return CT_FAIL(CT_COMM, "cannot duplicate a socket: %s", strerror(errno));
	out->n++;
	return CT_OK;
}

enum ct_status ct__gloo_sockets_find(const struct ct_gloo_sockets *but, struct ct_gloo_sockets *out)
{
	enum ct_status st = CT_OK;
	struct ct_gloo_socket found;
	struct dirent *e;
	DIR *d = opendir("/proc/self/fd");

	memset(out, 0, sizeof(*out));
	if (!d)
		return CT_FAIL(CT_IO, "cannot read /proc/self/fd: %s", strerror(errno));
	while (st == CT_OK && (e = readdir(d))) {
		int fd = (int)strtol(e->d_name, NULL, 10);

		if (e->d_name[0] == '.' || fd == dirfd(d) || !look_at(fd, &found))
			continue;
		/* The directory also lists our duplicates. */
		if (!contains(but, found.inode) && !contains(out, found.inode))
			st = add(out, fd, &found);
	}
	closedir(d);
	if (st < 0)
		ct__gloo_sockets_release(out);
	return st;
}

void ct__gloo_sockets_release(struct ct_gloo_sockets *s)
{
	for (int i = 0; i < s->n; i++)
		close(s->s[i].fd);
	ct_free(s->s);
	memset(s, 0, sizeof(*s));
}

void ct__gloo_sockets_ports(const struct ct_gloo_sockets *s, uint16_t *ports, int max)
{
	memset(ports, 0, (size_t)max * 2 * sizeof(*ports));
	for (int i = 0; i < s->n && i < max; i++) {
		ports[2 * i] = s->s[i].local;
		ports[2 * i + 1] = s->s[i].remote;
	}
}

static int peer_of(const struct ct_gloo_socket *s, const uint16_t *ports, int max, int size, int rank)
{
	for (int q = 0; q < size; q++) {
		for (int i = 0; q != rank && i < max; i++) {
			const uint16_t *p = ports + ((size_t)q * (size_t)max + (size_t)i) * 2;

			if (p[0] == s->remote && p[1] == s->local)
				return q;
		}
	}
	return -1;
}

void ct__gloo_sockets_name(struct ct_gloo_sockets *s, const uint16_t *ports, int max, int size, int rank)
{
	int kept = 0;

	for (int i = 0; i < s->n; i++) {
		s->s[i].peer = peer_of(&s->s[i], ports, max, size, rank);
		if (s->s[i].peer >= 0)
			s->s[kept++] = s->s[i];
		else
			close(s->s[i].fd);
	}
	s->n = kept;
	if (kept != size - 1)
		CT_WARN("found only %d of %d gloo connections: an abort may have to wait for dist.timeout", kept,
			size - 1);
}

static void set_int(const struct ct_gloo_socket *s, int level, int option, int value, const char *name)
{
	if (setsockopt(s->fd, level, option, &value, sizeof(value)) != 0)
		CT_DEBUG("gloo connection to rank %d: %s=%d: %s", s->peer, name, value, strerror(errno));
}

void ct__gloo_sockets_tune(const struct ct_gloo_sockets *s)
{
	for (int i = 0; i < s->n; i++) {
		const struct ct_gloo_socket *k = &s->s[i];

		set_int(k, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
		set_int(k, IPPROTO_TCP, TCP_KEEPIDLE, 5, "TCP_KEEPIDLE");
		set_int(k, IPPROTO_TCP, TCP_KEEPINTVL, 5, "TCP_KEEPINTVL");
		set_int(k, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT");
		set_int(k, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000, "TCP_USER_TIMEOUT");
		if (k->same_host && setsockopt(k->fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
			CT_DEBUG("gloo connection to rank %d: cannot change the congestion control: %s", k->peer,
				 strerror(errno));
	}
}

void ct__gloo_sockets_shut(const struct ct_gloo_sockets *s)
{
	for (int i = 0; i < s->n; i++)
		(void)shutdown(s->s[i].fd, SHUT_RDWR); /* fails if the peer has closed it first */
}

int ct__gloo_sockets_lost(const struct ct_gloo_sockets *s)
{
	for (int i = 0; i < s->n; i++) {
		struct pollfd p = {.fd = s->s[i].fd, .events = POLLRDHUP};

		if (poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
			return s->s[i].peer;
	}
	return -1;
}
