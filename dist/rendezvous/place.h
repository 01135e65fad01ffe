/* Rank 0, or the launcher of node 0, serves the store, so the address at which the others look for it must lead to this
 * process. If it belongs to another host, this process was usually started with the wrong rank, and each of two hosts
 * would wait for the other ranks at a store of its own. */
#ifndef CT_DIST_RENDEZVOUS_PLACE_H
#define CT_DIST_RENDEZVOUS_PLACE_H

#include "dist/store/store.h"

/* Checks that `host` is an address of this host. If it is not, connects to host:port with `opts`, within a second. The
 * connection may lead back to this process, for example through a forwarded port: then *out is the connection, which
 * the caller owns. Otherwise returns CT_USAGE; the message contains the addresses of this host, and the reply of the
 * store at host:port if there is one. In all other cases *out is NULL: also if the name cannot be resolved, because the
 * other hosts may know it. `what` is the setting for messages, `role` what this process is ("node rank 0"). */
enum ct_status ct_place_check(const char *what, const char *role, const char *host, int port,
			      const struct ct_store_opts *opts, ct_store **out) CT_MUST_CHECK;

#endif
