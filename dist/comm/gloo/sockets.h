/* gloo gives no access to its sockets. Therefore ctrain looks for the TCP connections that appear while gloo connects,
 * and keeps duplicates of their descriptors. With the duplicates, ctrain can set socket options, shut the connections
 * down on abort, and detect which peer has closed its connection. */
#ifndef CT_DIST_COMM_GLOO_SOCKETS_H
#define CT_DIST_COMM_GLOO_SOCKETS_H

#include <stdint.h>

#include "base/status.h"

struct ct_gloo_socket {
	int fd; /* ctrain's duplicate of the descriptor */
	uint64_t inode;
	uint16_t local, remote; /* ports */
	bool same_host;
	int peer; /* the rank at the other end; -1: not known yet */
};

struct ct_gloo_sockets {
	struct ct_gloo_socket *s;
	int n;
};

/* Finds all TCP connections of this process that are not in `but`, which may be NULL. */
enum ct_status ct__gloo_sockets_find(const struct ct_gloo_sockets *but, struct ct_gloo_sockets *out) CT_MUST_CHECK;
void ct__gloo_sockets_release(struct ct_gloo_sockets *s);
/* Writes the local and remote ports of this rank's sockets to ports [max][2], and fills the remaining rows with zeros.
 * When the ports of all ranks have been gathered, ct__gloo_sockets_name uses them to find the rank at the other end of
 * each socket. */
void ct__gloo_sockets_ports(const struct ct_gloo_sockets *s, uint16_t *ports, int max);
/* Finds the peer of each socket from the ports [size][max][2] of all ranks. A socket without a match on another rank
 * does not belong to this communicator and is dropped. */
void ct__gloo_sockets_name(struct ct_gloo_sockets *s, const uint16_t *ports, int max, int size, int rank);
/* Sets timeouts, so that an unresponsive or disconnected host is detected within about 15 s. Sets the congestion
 * control of connections within a host to cubic, which is up to twice as fast as bbr over loopback (measured). */
void ct__gloo_sockets_tune(const struct ct_gloo_sockets *s);
/* Shuts down all sockets, so that every blocked gloo call returns with an error. May be called from any thread. */
void ct__gloo_sockets_shut(const struct ct_gloo_sockets *s);
/* Returns a peer that has closed its connection, or -1. */
int ct__gloo_sockets_lost(const struct ct_gloo_sockets *s);

#endif
