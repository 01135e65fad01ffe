/* The connection of a thread that watches the store, and the means by which another thread requests it to stop. */
#ifndef CT_DIST_STORE_WATCHER_H
#define CT_DIST_STORE_WATCHER_H

#include <pthread.h>

#include "dist/store/store.h"

struct ct_store_watcher {
	pthread_mutex_t lock; /* guards the members below */
	bool stopping;
	ct_store *store; /* NULL before the thread has connected */
};

void ct_store_watcher_init(struct ct_store_watcher *w);
/* Called by the thread after it has connected. Takes ownership of the connection. */
void ct_store_watcher_attach(struct ct_store_watcher *w, ct_store *s);
/* May be called from any thread. The connection stays valid until ct_store_watcher_release. */
ct_store *ct_store_watcher_store(struct ct_store_watcher *w);
bool ct_store_watcher_stopping(struct ct_store_watcher *w);
/* Ends the thread's watch, even if the watch starts only after this call. */
void ct_store_watcher_stop(struct ct_store_watcher *w);
/* Closes the connection. Call it after the thread has ended. */
void ct_store_watcher_release(struct ct_store_watcher *w);

#endif
