/* The handshake of the ranks: once they are connected to the store, they exchange facts about their processes and
 * hosts. */
#ifndef CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H
#define CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H

#include "dist/rendezvous/rendezvous.h"

/* Facts about this process and its host. net_key identifies the network namespace: processes with equal keys share a
 * loopback interface. */
struct ct__host_facts {
	char host[64], host_key[128], net_key[128];
	int pid;
};
void ct__host_facts(struct ct__host_facts *out);

/* Waits for all ranks of w->id.world; fills in w->peers, w->n_hosts and the unknown values of w->id. Collective: all
 * ranks must call it. */
enum ct_status ct__handshake(struct ct_world *w, const struct ct__host_facts *me, int64_t deadline_ns) CT_MUST_CHECK;

/* Publishes a result that rank 0 has determined for all ranks. The status, the error chain and the data `extra` [len]
 * are stored under `key`, so that every rank fails with the same message. */
enum ct_status ct__consensus_publish(struct ct_world *w, const char *key, enum ct_status st, const void *extra,
				     size_t len) CT_MUST_CHECK;
/* Waits for the result under `key` and returns its status. After CT_OK, *extra contains the data of the result, owned
 * by the caller. If *received is false, waiting failed before the result was received, and the status is that of the
 * wait. */
enum ct_status ct__consensus_wait(struct ct_world *w, const char *key, int64_t deadline_ns, bool *received,
				  char **extra, size_t *len) CT_MUST_CHECK;

#endif
