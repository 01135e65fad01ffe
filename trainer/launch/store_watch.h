/* A launcher's own connection to the run's store, on runs of several nodes. Its ranks learn of a failure by themselves,
 * unless all of them are stopped or hang: then only the launcher can end them. And it knows how a rank of its own died,
 * which the store, on another host, sees only as a connection that ended. */
#ifndef CT_TRAINER_LAUNCH_STORE_WATCH_H
#define CT_TRAINER_LAUNCH_STORE_WATCH_H

#include "dist/store/store.h"

typedef struct ct_store_watch_thread ct_store_watch_thread;

/* Connects in a thread of its own, for as long as it takes. addr: host and port of the store. */
enum ct_status ct_store_watch_start(const char *host, int port, const struct ct_store_opts *opts,
				    ct_store_watch_thread **out) CT_MUST_CHECK;
/* Readable when the run has failed; for poll. -1 for NULL. */
int ct_store_watch_fd(const ct_store_watch_thread *w);
/* The run's failure; false while there is none. *store_gone: it is only that the store's process has ended, which is
 * also how a finished run ends. */
bool ct_store_watch_failure(ct_store_watch_thread *w, struct ct_failure *out, bool *store_gone);
/* Reports how a rank of this host ended; nothing when there is no connection. Waits for the store, up to 2 s. */
void ct_store_watch_report(ct_store_watch_thread *w, const struct ct_failure *f);
/* NULL is fine. */
void ct_store_watch_stop(ct_store_watch_thread *w);

#endif
