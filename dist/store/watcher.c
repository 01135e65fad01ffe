/* The flag and the connection are changed under one lock, so no stop is lost: a stop before the thread has connected is
 * applied by ct_store_watcher_attach. The connection is closed only when the thread has ended, because the watch that
 * is cancelled still uses it. */
#include "dist/store/watcher.h"

void ct_store_watcher_init(struct ct_store_watcher *w)
{
	*w = (struct ct_store_watcher){0};
	CT_ASSERT(pthread_mutex_init(&w->lock, NULL) == 0);
}

void ct_store_watcher_attach(struct ct_store_watcher *w, ct_store *s)
{
	pthread_mutex_lock(&w->lock);
	w->store = s;
	if (w->stopping)
		ct_store_cancel_watch(s);
	pthread_mutex_unlock(&w->lock);
}

ct_store *ct_store_watcher_store(struct ct_store_watcher *w)
{
	ct_store *s;

	pthread_mutex_lock(&w->lock);
	s = w->store;
	pthread_mutex_unlock(&w->lock);
	return s;
}

bool ct_store_watcher_stopping(struct ct_store_watcher *w)
{
	bool stopping;

	pthread_mutex_lock(&w->lock);
	stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

void ct_store_watcher_stop(struct ct_store_watcher *w)
{
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	if (w->store)
		ct_store_cancel_watch(w->store);
	pthread_mutex_unlock(&w->lock);
}

void ct_store_watcher_release(struct ct_store_watcher *w)
{
	ct_store_close(w->store);
	pthread_mutex_destroy(&w->lock);
}
