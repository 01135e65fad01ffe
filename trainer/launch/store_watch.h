/* The connection of a launcher to the run's store, in runs on several nodes. Ranks normally receive the report of a
 * failure themselves, but if all ranks of a node are stopped or hang, only their launcher can end them. The launcher
 * also knows how one of its ranks ended, while the store, on another host, sees only that the connection was closed. */
#ifndef CT_TRAINER_LAUNCH_STORE_WATCH_H
#define CT_TRAINER_LAUNCH_STORE_WATCH_H

#include "dist/store/store.h"

typedef struct ct_store_watch_thread ct_store_watch_thread;

/* Starts a thread that connects to the store at host:port. It retries until it succeeds or is stopped. */
enum ct_status ct_store_watch_start(const char *host, int port, const struct ct_store_opts *opts,
				    ct_store_watch_thread **out) CT_MUST_CHECK;
/* Returns a descriptor for poll that becomes readable when the run fails, or -1 if w is NULL. */
int ct_store_watch_fd(const ct_store_watch_thread *w);
/* Returns the failure of the run, or false if there is none. If the store has refused this launcher, the failure has
 * the status CT_MISMATCH and contains the reason. *store_gone is true if the only failure is that the process of the
 * store has ended, which also happens when a run finishes. */
bool ct_store_watch_failure(ct_store_watch_thread *w, struct ct_failure *out, bool *store_gone);
/* Returns the connection, or NULL while there is none. It may be used until the thread is stopped. */
ct_store *ct_store_watch_store(ct_store_watch_thread *w);
/* Copies the reason why there is no connection yet to buf; "" before the first attempt has failed. */
void ct_store_watch_trouble(ct_store_watch_thread *w, char *buf, size_t len);
/* Reports how a rank of this host ended, or that this launcher failed. Waits up to 2 s for the store to respond. If
 * there is no connection yet, the thread sends the first report as soon as there is one. */
void ct_store_watch_report(ct_store_watch_thread *w, const struct ct_failure *f);
/* Stops the thread. If a report has not been sent, first tries to connect for another second. w may be NULL. */
void ct_store_watch_stop(ct_store_watch_thread *w);

#endif
