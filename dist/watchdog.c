#include "dist/watchdog.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/process/rank_page.h"
#include "base/stacks.h"
#include "base/thread.h"
#include "dist/store/failure.h"
#include "dist/store/watcher.h"
#include "dist/store/wire.h"

#define CT_LOG_COMPONENT "watchdog"
#include "base/log.h"

#define BEAT_NS CT_SEC
#define GRACE_NS (2 * CT_SEC)
#define CONNECT_NS (10 * CT_SEC)
#define CONNECT_ONCE_NS (200 * CT_MS)

struct ct_watchdog {
	struct ct_world *world;
	struct ct_thread thread;
	struct ct_store_watcher
		own;            /* the thread's own connection: its heartbeats never wait for other threads' requests */
	pthread_mutex_t lock;   /* guards the members below */
	pthread_cond_t changed; /* signalled when own is stopped */
	ct_comm *comms[CT_WATCHDOG_COMMS];
	int n_comms;
	char flight_file[512]; /* "": none, or already written */
};

static struct ct_position position_now(void)
{
	return ct_rank_page_position(ct_rank_page_own());
}

static void beat(ct_watchdog *w)
{
	const struct ct_position at = position_now();

	/* If this fails, the watch will report it. */
	if (ct_store_beat(ct_store_watcher_store(&w->own), &at) != CT_OK)
		ct_error_clear();
}

static void poll_comms(ct_watchdog *w)
{
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < w->n_comms; i++)
		ct_comm_poll(w->comms[i]);
	pthread_mutex_unlock(&w->lock);
}

/* Ends the process with a message, even if other threads are blocked. */
static void end_process(const struct ct_failure *f)
{
	ct_log_record(CT_LOG_COMPONENT, "%s%s%s", f->message, f->hint[0] ? "; hint: " : "", f->hint);
	ct_output_print(STDERR_FILENO, "ctrain: %s\n", f->message);
	if (f->hint[0])
		ct_output_print(STDERR_FILENO, "hint: %s\n", f->hint);
	ct_output_finish(ct_deadline_in(CT_SEC / 2));
	_exit(ct_status_exit_code((enum ct_status)f->status));
}

/* Writes the flight records, once. Call with the lock held. Preserves the error chain. */
static void write_flight(ct_watchdog *w, const char *reason)
{
	const struct ct_identity *id = &w->world->id;
	const struct ct_position at = position_now();
	char doing[CT_POSITION_TEXT];
	struct ct_str text = {0};
	struct ct_error before;
	ct_json *j, *comms;

	if (!w->flight_file[0])
		return;
	ct_error_save(&before);
	j = ct_json_object();
	comms = ct_json_array();
	ct_json_set_i64(j, "v", 1);
	ct_json_set_i64(j, "rank", id->rank);
	ct_json_set_i64(j, "world_size", id->world);
	ct_json_set_str(j, "host", w->world->peers[id->rank].host);
	ct_json_set_i64(j, "pid", (int64_t)getpid());
	ct_position_text(doing, sizeof(doing), &at);
	ct_json_set_str(j, "phase", doing);
	ct_json_set_str(j, "reason", reason);
	for (int i = 0; i < w->n_comms; i++)
		ct_json_push(comms, ct_comm_flight(w->comms[i]));
	ct_json_set(j, "communicators", comms);
	if (ct_json_dump(j, false, &text) < 0 || ct_file_replace(w->flight_file, ct_str_text(&text), text.len) < 0) {
		CT_DEBUG("could not write the flight record: %s", ct_error_message());
		ct_error_clear();
	}
	w->flight_file[0] = '\0';
	ct_str_release(&text);
	ct_json_destroy(j);
	if (before.status < 0)
		(void)ct_error_restore(&before);
}

static void run_failed(ct_watchdog *w, const struct ct_failure *f)
{
	int64_t deadline = ct_deadline_in(GRACE_NS);

	CT_DEBUG("the run has failed: %s", f->message);
	ct_rank_page_freeze();
	ct_stacks_write(f->message);
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < w->n_comms; i++)
		ct_comm_abort(w->comms[i], f);
	write_flight(w, f->message);
	while (!ct_store_watcher_stopping(&w->own) && ct_now_ns() < deadline)
		(void)ct_cond_wait_until(&w->changed, &w->lock, deadline);
	if (!ct_store_watcher_stopping(&w->own))
		end_process(f);
	pthread_mutex_unlock(&w->lock);
}

/* Opens the thread's own connection. Retries until a deadline, while the first connection works. On failure returns
 * false with a failure record. */
static bool connect_own(ct_watchdog *w, struct ct_failure *f)
{
	int64_t deadline = ct_deadline_in(CONNECT_NS);
	struct ct_member_state owner = {.at = CT_POSITION_UNKNOWN};
	ct_store *s;

	while (ct_store_connect_aux(w->world->store, ct_deadline_in(CONNECT_ONCE_NS), &s) != CT_OK) {
		bool failed = ct_store_watch(w->world->store, ct_deadline_in(20 * CT_MS), f) == CT_OK;

		if (!failed && ct_now_ns() >= deadline) {
			ct_store_owner(w->world->store, &owner.rank, &owner.pid, owner.host);
			ct_failure_set(f, &owner, CT_PEER_LOST,
				       "does not accept the watchdog's connection to the store: %s",
				       ct_error_message());
			failed = true;
		}
		ct_error_clear();
		if (failed || ct_store_watcher_stopping(&w->own))
			return false;
	}
	ct_store_watcher_attach(&w->own, s);
	return true;
}

static void *run(void *arg)
{
	enum ct_status st = CT_TIMEOUT;
	ct_watchdog *w = arg;
	struct ct_failure f;

	if (!connect_own(w, &f))
		st = CT_OK;
	while (st == CT_TIMEOUT) {
		beat(w);
		poll_comms(w);
		st = ct_store_watch(w->own.store, ct_deadline_in(BEAT_NS), &f);
	}
	if (st == CT_OK && !ct_store_watcher_stopping(&w->own))
		run_failed(w, &f);
	return NULL;
}

enum ct_status ct_watchdog_start(struct ct_world *world, ct_watchdog **out)
{
	enum ct_status st = CT_OK;
	ct_watchdog *w;

	CT_TRY_ALLOC(w = CT_NEW(ct_watchdog));
	w->world = world;
	ct_store_watcher_init(&w->own);
	CT_ASSERT(pthread_mutex_init(&w->lock, NULL) == 0);
	ct_cond_init(&w->changed);
	world->watched = world->store != NULL;
	if (world->store)
		st = ct_thread_start(&w->thread, "ct-watchdog", run, w);
	if (st != CT_OK) {
		ct_watchdog_stop(w);
		return st;
	}
	*out = w;
	return CT_OK;
}

void ct_watchdog_add_comm(ct_watchdog *w, ct_comm *c)
{
	pthread_mutex_lock(&w->lock);
	CT_ASSERT(w->n_comms < CT_WATCHDOG_COMMS);
	w->comms[w->n_comms++] = c;
	pthread_mutex_unlock(&w->lock);
}

void ct_watchdog_remove_comm(ct_watchdog *w, const ct_comm *c)
{
	int n = 0;

	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < w->n_comms; i++) {
		if (w->comms[i] != c)
			w->comms[n++] = w->comms[i];
	}
	w->n_comms = n;
	pthread_mutex_unlock(&w->lock);
}

void ct_watchdog_flight_file(ct_watchdog *w, const char *path)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->flight_file, sizeof(w->flight_file), "%s", strlen(path) < sizeof(w->flight_file) ? path : "");
	pthread_mutex_unlock(&w->lock);
}

void ct_watchdog_beat(ct_watchdog *w)
{
	if (ct_store_watcher_store(&w->own))
		beat(w);
}

void ct_watchdog_report(ct_watchdog *w)
{
	const struct ct_world *world = w->world;
	struct ct_member_state m = {.rank = world->id.rank, .at = CT_POSITION_UNKNOWN};
	char doing[CT_POSITION_TEXT];
	struct ct_failure f;
	struct ct_error e;

	ct_rank_page_freeze();
	if (!world->store)
		return;
	ct_error_save(&e);
	m.pid = world->peers[m.rank].pid;
	ct_wire_copy(m.host, sizeof(m.host), world->peers[m.rank].host);
	pthread_mutex_lock(&w->lock);
	write_flight(w, e.message);
	pthread_mutex_unlock(&w->lock);
	const struct ct_position at = position_now();
	ct_position_text(doing, sizeof(doing), &at);
	ct_failure_set(&f, &m, e.status, "failed%s%s: %s", at.step < 0 ? "" : " in ", at.step < 0 ? "" : doing,
		       e.message);
	f.at = at;
	ct_wire_copy(f.hint, sizeof(f.hint), e.hint);
	if (ct_store_report(world->store, &f) != CT_OK)
		CT_DEBUG("could not report the failure: %s", ct_error_message());
	(void)ct_error_restore(&e);
}

void ct_watchdog_stop(ct_watchdog *w)
{
	if (!w)
		return;
	ct_store_watcher_stop(&w->own);
	pthread_mutex_lock(&w->lock);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	ct_thread_join(&w->thread);
	ct_store_watcher_release(&w->own);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	ct_free(w);
}
