/* How ranks that have reached the store introduce themselves to each other. For files of dist/ only. */
#ifndef CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H
#define CT_DIST_RENDEZVOUS_HANDSHAKE_IMPL_H

#include "dist/rendezvous/rendezvous.h"

/* What this process says of its host. net_key: network namespace; equal ones share their loopback. */
struct ct__host_facts {
	char host[64], host_key[128], net_key[128];
	int pid;
};
void ct__host_facts(struct ct__host_facts *out);

/* All ranks of w->id.world: fills w->peers and w->n_hosts, and what w->id left open. Collective. */
enum ct_status ct__hello_exchange(struct ct_world *w, const struct ct__host_facts *me,
				  int64_t deadline_ns) CT_MUST_CHECK;

/* A verdict that rank 0 reaches for all: its own status and error chain go under `key`, so that every rank ends
 * with the same words. */
enum ct_status ct__verdict_publish(struct ct_world *w, const char *key, enum ct_status st, const void *extra,
				   size_t len) CT_MUST_CHECK;
/* Waits for it. CT_OK: what came with it, returns owned. *heard false: the failure is of the waiting, not of the
 * verdict. */
enum ct_status ct__verdict_wait(struct ct_world *w, const char *key, int64_t deadline_ns, bool *heard, char **extra,
				size_t *len) CT_MUST_CHECK;

#endif
