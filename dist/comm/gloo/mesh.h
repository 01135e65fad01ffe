/* The TCP connections between the ranks of a communicator, one for each pair of ranks. Of each pair, the rank with the
 * lower number listens, and the other one connects to it; a rank listens on one port only. The addresses and ports are
 * exchanged through the store. Before a connection carries data, each side proves to the other one that it is the
 * expected rank of this run (mesh_link.c). Connections without this proof are dropped and counted. */
#ifndef CT_DIST_COMM_GLOO_MESH_H
#define CT_DIST_COMM_GLOO_MESH_H

#include "dist/comm/comm_impl.h"

struct ct_mesh {
	int size;
	int *fd; /* [size] non-blocking; -1: none, as for this rank itself */
};

/* Connects this rank to all others of c. Listens on `addr`, a numeric local address, and on a port of c->opts.ports if
 * a rank of another host will connect. Collective. Fails with CT_TIMEOUT if this takes longer than c->opts.connect_ns;
 * the message names a rank, its address and its port. Fails with CT_PEER_LOST if the run has failed meanwhile. */
enum ct_status ct__mesh_connect(const ct_comm *c, const char *addr, struct ct_mesh *out) CT_MUST_CHECK;
/* Closes all connections. A zeroed struct is allowed. */
void ct__mesh_release(struct ct_mesh *m);
/* Shuts down all connections, also for duplicates of their descriptors. May be called from any thread. */
void ct__mesh_shut(const struct ct_mesh *m);
/* Returns a rank that has closed its connection, or -1. */
int ct__mesh_lost(const struct ct_mesh *m);

#endif
