/* The thread connects, then waits in ct_store_watch for the failure record; the launcher's main loop learns of it from
 * an eventfd. All that both use is protected by `lock`, except the connection, which belongs to the watcher and may be
 * used until the thread has been stopped. A report that comes before there is a connection is kept, and sent by the
 * thread as soon as there is one; only the first such report is kept. `connected` decides under the lock who sends, so
 * no report is lost or sent twice. Stopping gives a report that waits one more second. A refusal by the store becomes
 * the failure of the run, because the ranks of this node will be refused, too. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/store_watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "dist/store/watcher.h"

#define LAST_REPORT_NS CT_SEC /* for a report when the node ends before it has a connection */
#define CONNECT_ONCE_NS \
	(500 * CT_MS) /* so that ct_store_watch_stop does not wait long for a host that does not respond */

struct ct_store_watch_thread {
	char host[256];
	int port, fd;
	struct ct_store_opts opts;
	struct ct_thread thread;
	struct ct_store_watcher watcher;
	pthread_mutex_t lock; /* protects the members below */
	bool failed, store_gone;
	struct ct_failure failure;
	bool connected, have_report;
	struct ct_failure report; /* to be sent when there is a connection */
	int64_t give_up_ns;       /* end of the attempts to connect; 0 until the thread is stopped */
	char trouble[256];
};

static void note_failure(ct_store_watch_thread *w, const struct ct_failure *f, bool store_gone)
{
	uint64_t one = 1;

	pthread_mutex_lock(&w->lock);
	w->failure = *f;
	w->failed = true;
	w->store_gone = store_gone;
	pthread_mutex_unlock(&w->lock);
	(void)!write(w->fd, &one, sizeof(one));
}

/* The ranks of this node will be refused for the same reason. Those that try only after the store has closed would not
 * learn it. */
static void note_refusal(ct_store_watch_thread *w)
{
	struct ct_failure f = {.rank = -1, .pid = w->opts.pid, .status = CT_MISMATCH, .at = CT_POSITION_UNKNOWN};

	snprintf(f.host, sizeof(f.host), "%s", w->opts.host);
	snprintf(f.message, sizeof(f.message), "%s", ct_error_message());
	snprintf(f.hint, sizeof(f.hint), "%s", ct_error_hint_text());
	ct_error_clear();
	note_failure(w, &f, false);
}

/* True if the thread should still try to connect. When it is stopped, only a report is a reason. */
static bool may_connect(ct_store_watch_thread *w)
{
	pthread_mutex_lock(&w->lock);
	bool may = w->give_up_ns == 0 || (w->have_report && ct_now_ns() < w->give_up_ns);
	pthread_mutex_unlock(&w->lock);
	return may;
}

static void note_trouble(ct_store_watch_thread *w)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->trouble, sizeof(w->trouble), "%.255s", ct_error_message());
	pthread_mutex_unlock(&w->lock);
	ct_error_clear();
}

static ct_store *connect_store(ct_store_watch_thread *w)
{
	while (may_connect(w)) {
		ct_store *s = NULL;
		enum ct_status st = ct_store_connect(w->host, w->port, &w->opts, ct_deadline_in(CONNECT_ONCE_NS), &s);

		if (st == CT_OK)
			return s;
		if (st == CT_MISMATCH) {
			note_refusal(w);
			return NULL;
		}
		note_trouble(w);
	}
	return NULL;
}

static void send_report(ct_store *s, const struct ct_failure *f)
{
	if (ct_store_report(s, f) < 0) {
		CT_DEBUG("could not report a failure: %s", ct_error_message());
		ct_error_clear();
	}
}

/* From now on, ct_store_watch_report sends reports itself. Sends the one that came before. */
static void begin_reports(ct_store_watch_thread *w, ct_store *s)
{
	pthread_mutex_lock(&w->lock);
	bool waiting = w->have_report;
	struct ct_failure f = w->report;
	w->have_report = false;
	w->connected = true;
	pthread_mutex_unlock(&w->lock);
	if (waiting)
		send_report(s, &f);
}

/* Which of several names and networks leads to the store is often the question when a run is slow or does not start. */
static void log_path(const ct_store_watch_thread *w, const ct_store *s)
{
	char path[400];

	if (strcmp(w->host, "localhost") == 0)
		return;
	ct_store_describe(s, path, sizeof(path));
	CT_INFO("node %d has reached the store at %s", w->opts.node, path);
}

static void *run(void *arg)
{
	ct_store_watch_thread *w = arg;
	struct ct_failure f;
	ct_store *s = connect_store(w);

	if (!s)
		return NULL;
	ct_store_watcher_attach(&w->watcher, s);
	begin_reports(w, s);
	log_path(w, s);
	if (ct_store_watch(s, CT_FOREVER, &f) == CT_OK) {
		int rank, pid;

		ct_store_owner(s, &rank, &pid, NULL);
		note_failure(w, &f, f.rank == rank && f.pid == pid);
	}
	return NULL;
}

enum ct_status ct_store_watch_start(const char *host, int port, const struct ct_store_opts *opts,
				    ct_store_watch_thread **out)
{
	ct_store_watch_thread *w;

	CT_TRY_ALLOC(w = CT_NEW(ct_store_watch_thread));
	snprintf(w->host, sizeof(w->host), "%s", host);
	w->port = port;
	w->opts = *opts;
	w->opts.member = CT_STORE_LAUNCHER;
	w->opts.last_error_only = true; /* the time differs each time */
	ct_store_watcher_init(&w->watcher);
	CT_ASSERT(pthread_mutex_init(&w->lock, NULL) == 0);
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	enum ct_status st = w->fd < 0 ? CT_FAIL(CT_NOMEM, "cannot watch the store: %s", strerror(errno))
				      : ct_thread_start(&w->thread, "ct-store-watch", run, w);
	if (st < 0) {
		ct_store_watch_stop(w);
		return st;
	}
	*out = w;
	return CT_OK;
}

int ct_store_watch_fd(const ct_store_watch_thread *w)
{
	return w ? w->fd : -1;
}

bool ct_store_watch_failure(ct_store_watch_thread *w, struct ct_failure *out, bool *store_gone)
{
	if (!w)
		return false;
	pthread_mutex_lock(&w->lock);
	bool failed = w->failed;
	if (failed) {
		*out = w->failure;
		*store_gone = w->store_gone;
	}
	pthread_mutex_unlock(&w->lock);
	return failed;
}

void ct_store_watch_report(ct_store_watch_thread *w, const struct ct_failure *f)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	bool connected = w->connected;
	if (!connected && !w->have_report) {
		w->report = *f;
		w->have_report = true;
	}
	pthread_mutex_unlock(&w->lock);
	if (connected)
		send_report(ct_store_watcher_store(&w->watcher), f);
}

ct_store *ct_store_watch_store(ct_store_watch_thread *w)
{
	return w ? ct_store_watcher_store(&w->watcher) : NULL;
}

void ct_store_watch_trouble(ct_store_watch_thread *w, char *buf, size_t len)
{
	pthread_mutex_lock(&w->lock);
	snprintf(buf, len, "%s", w->trouble);
	pthread_mutex_unlock(&w->lock);
}

void ct_store_watch_stop(ct_store_watch_thread *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->give_up_ns = ct_deadline_in(LAST_REPORT_NS);
	pthread_mutex_unlock(&w->lock);
	ct_store_watcher_stop(&w->watcher);
	ct_thread_join(&w->thread);
	ct_store_watcher_release(&w->watcher);
	if (w->fd >= 0)
		close(w->fd);
	pthread_mutex_destroy(&w->lock);
	ct_free(w);
}
