/* gloo does not give access to its sockets. We find them as the TCP connections that appear while it connects, and
 * hold duplicates. With these we set options, shut them down (abort) and see which peer closed its connection. */
#ifndef CT_DIST_COMM_GLOO_SOCKETS_H
#define CT_DIST_COMM_GLOO_SOCKETS_H

#include <stdint.h>

#include "base/status.h"

struct ct_gloo_socket {
	int fd; /* our duplicate */
	uint64_t inode;
	uint16_t local, remote; /* ports */
	bool same_host;
	int peer; /* rank at the other end; -1 until known */
};

struct ct_gloo_sockets {
	struct ct_gloo_socket *s;
	int n;
};

/* All TCP connections of this process that are not in `but` (NULL: all of them). */
enum ct_status ct__gloo_sockets_find(const struct ct_gloo_sockets *but, struct ct_gloo_sockets *out) CT_MUST_CHECK;
void ct__gloo_sockets_release(struct ct_gloo_sockets *s);
/* Ports of this rank's sockets as [max][2], zero-filled: gathered from all ranks, they show which rank is at the
 * other end. */
void ct__gloo_sockets_ports(const struct ct_gloo_sockets *s, uint16_t *ports, int max);
/* ports: [size][max][2]. Sockets that no rank knows do not belong to this communicator and are dropped. */
void ct__gloo_sockets_name(struct ct_gloo_sockets *s, const uint16_t *ports, int max, int size, int rank);
/* A silent or unplugged host is noticed within about 15 s; within one host cubic (measured: up to twice bbr over
 * loopback). */
void ct__gloo_sockets_tune(const struct ct_gloo_sockets *s);
/* Every blocked gloo call returns with an error. Any thread. */
void ct__gloo_sockets_shut(const struct ct_gloo_sockets *s);
/* A peer that has closed its connection, -1: none. */
int ct__gloo_sockets_lost(const struct ct_gloo_sockets *s);

#endif
