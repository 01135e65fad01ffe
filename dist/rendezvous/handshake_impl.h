/* How ranks that have reached the store introduce themselves to each other. */
#ifndef CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H
#define CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H

#include "dist/rendezvous/rendezvous.h"

/* This process and its host. net_key: network namespace; processes with equal keys share their loopback interface. */
struct ct__host_facts {
	char host[64], host_key[128], net_key[128];
	int pid;
};
void ct__host_facts(struct ct__host_facts *out);

/* All ranks of w->id.world: fills w->peers and w->n_hosts, and what w->id left open. Collective. */
enum ct_status ct__handshake(struct ct_world *w, const struct ct__host_facts *me, int64_t deadline_ns) CT_MUST_CHECK;

/* A result that rank 0 finds for all ranks: its status and error chain are stored under `key`, so that every rank ends
 * with the same message. */
enum ct_status ct__consensus_publish(struct ct_world *w, const char *key, enum ct_status st, const void *extra,
				     size_t len) CT_MUST_CHECK;
/* Waits for the result. CT_OK: the data that came with it, returns owned. *received false: the wait failed, and
 * there is no result. */
enum ct_status ct__consensus_wait(struct ct_world *w, const char *key, int64_t deadline_ns, bool *received,
				  char **extra, size_t *len) CT_MUST_CHECK;

#endif
