/* Connects to all addresses of a host at the same time, as RFC 8305 ("Happy Eyeballs") proposes: the addresses are
 * tried in the order of the resolver, but alternating between IPv6 and IPv4, and each one starts a moment after the one
 * before, or as soon as one has failed. So an address that drops packets (dead IPv6, another network) costs
 * milliseconds. A connection is not yet a success: another program may answer at one of the addresses. The caller
 * checks each connection, and asks for the next one if it is not the right one. */
#ifndef CT_DIST_NET_RACE_H
#define CT_DIST_NET_RACE_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "dist/net/net.h"

#define CT_RACE_MAX 32

struct ct_race_entry {
	struct sockaddr_storage addr;
	socklen_t len;
	int fd;  /* -1: not started, failed, or given to the caller */
	int err; /* why it failed; EINPROGRESS while it is under way; 0: not started, or given to the caller */
};

struct ct_race {
	struct ct_race_entry e[CT_RACE_MAX];
	int n, n_started;
	int64_t start_next, limit;
};

/* Resolves the names and starts nothing yet. Later addresses than the first CT_RACE_MAX are ignored. Fails with CT_COMM
 * if none of the names can be resolved. */
enum ct_status ct_race_begin(struct ct_race *r, const char *const *hosts, int n_hosts, int port) CT_MUST_CHECK;
/* Waits for the next connection. Returns its index in r->e, and the caller owns *fd; or -1 if no more will come, or if
 * `deadline_ns` has passed. When an address has failed, the others have one more second, not counting the time between
 * calls. */
int ct_race_next(struct ct_race *r, int64_t deadline_ns, int *fd);
/* Returns true if some addresses have neither failed nor been given to the caller. */
bool ct_race_has_more(const struct ct_race *r);
/* Closes the connections that are under way. */
void ct_race_end(struct ct_race *r);

/* Sets the error chain, with status CT_COMM, after all addresses of the host have failed; the message contains the
 * error of each address. If a host name resolves to loopback addresses only, the hint says so. */
enum ct_status ct_race_failed(const struct ct_race *r, const char *host, int port);

#endif
