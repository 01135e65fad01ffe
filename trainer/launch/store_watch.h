/* The connection of a launcher to the run's store, in runs on several nodes. Ranks normally learn of a failure by
 * themselves, but if all ranks of a node are stopped or hang, only their launcher can end them. The launcher also knows
 * how one of its ranks died; the store, on another host, sees only that the connection was closed. */
#ifndef CT_TRAINER_LAUNCH_STORE_WATCH_H
#define CT_TRAINER_LAUNCH_STORE_WATCH_H

#include "dist/store/store.h"

typedef struct ct_store_watch_thread ct_store_watch_thread;

/* Starts a thread that connects to the store at host:port; it retries until it succeeds or is stopped. */
enum ct_status ct_store_watch_start(const char *host, int port, const struct ct_store_opts *opts,
				    ct_store_watch_thread **out) CT_MUST_CHECK;
/* A descriptor for poll, readable when the run has failed. -1 for NULL. */
int ct_store_watch_fd(const ct_store_watch_thread *w);
/* The run's failure; false if there is none. *store_gone: the failure is only that the process of the store has ended,
 * which also happens when a run finishes. */
bool ct_store_watch_failure(ct_store_watch_thread *w, struct ct_failure *out, bool *store_gone);
/* Reports how a rank of this host ended; does nothing without a connection. Waits for the store, up to 2 s. */
void ct_store_watch_report(ct_store_watch_thread *w, const struct ct_failure *f);
/* NULL is allowed. */
void ct_store_watch_stop(ct_store_watch_thread *w);

#endif
