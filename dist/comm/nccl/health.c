/* How a communicator detects that it can no longer work, and how it ends. A wait does not rely on NCCL's errors alone:
 * at increasing intervals, it also asks the store whether the run has failed, and whether another rank has given this
 * communicator up (the key "failed", whose first writer adds the reason). If the wait is long, it compares the
 * collectives that the ranks have posted. If NCCL reports a lost peer, the store gets a moment to report the same with
 * more detail.
 *
 * ncclCommAbort may take long, so a thread that has been waiting for this request since the start calls it. It first
 * removes the communicator under the lock, so that no call can use it any more. Only then are the other ranks informed.
 * If the call does not return, the thread and the communicator are left behind. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/diagnose_impl.h"
#include "dist/comm/nccl/nccl_impl.h"

enum { SPIN_NS = 20 * 1000, SHORT_PAUSE_NS = 20 * 1000, LONG_PAUSE_NS = 1000 * 1000, SHORT_NS = 20 * 1000 * 1000 };

#define FIRST_LOOK_NS (50 * CT_MS)
#define LAST_LOOK_NS CT_SEC
/* NCCL may notice the end of a peer before the store does. */
#define FINAL_ERROR_NS (300 * CT_MS)
#define ASK_NS (2 * CT_SEC)
#define ABORT_NS (10 * CT_SEC)

static void key_of(const ct_comm *c, const char *what, char *buf, size_t len)
{
	snprintf(buf, len, "%s/nccl/%s", c->scope, what);
}

void ct__nccl_pause(int64_t start_ns)
{
	const int64_t waited = ct_now_ns() - start_ns;
	const struct timespec pause = {.tv_nsec = waited < SHORT_NS ? SHORT_PAUSE_NS : LONG_PAUSE_NS};

	if (waited > SPIN_NS)
		nanosleep(&pause, NULL);
}

/* ---- messages between the ranks about the end of a communicator */

/* The error of the other ranks. */
struct announcement {
	int32_t status;
	int32_t rank, pid; /* of the rank that has caused the error; pid is 0: unknown */
	char text[1268];
};

/* Sets the announcement of `what` if no rank has set it yet. */
static void announce(struct comm_nccl *n, const char *what, const struct announcement *a)
{
	ct_store *store = n->base.world->store;
	char key[160];
	int64_t n_ranks;

	key_of(&n->base, what, key, sizeof(key));
	if (ct_store_add(store, key, 1, &n_ranks) == CT_OK && n_ranks == 1) {
		snprintf(key + strlen(key), sizeof(key) - strlen(key), "/why");
		(void)!ct_store_set(store, key, a, sizeof(*a));
	}
	ct_error_clear();
}

/* Fails with the error of `what` if another rank has announced it. */
static enum ct_status heed(struct comm_nccl *n, const char *what)
{
	ct_store *store = n->base.world->store;
	struct announcement a = {.status = CT_PEER_LOST};
	char key[160], *value;
	int64_t n_ranks;
	size_t len;

	key_of(&n->base, what, key, sizeof(key));
	CT_TRY(ct_store_add(store, key, 0, &n_ranks));
	if (n_ranks == 0)
		return CT_OK;
	snprintf(key + strlen(key), sizeof(key) - strlen(key), "/why");
	CT_TRY(ct_store_get(store, key, ct_deadline_in(ASK_NS), &value, &len));
	memcpy(&a, value, len < sizeof(a) ? len : sizeof(a));
	ct_free(value);
	CT_FAIL((enum ct_status)a.status, "%.*s", (int)sizeof(a.text) - 1, a.text);
	ct_error_caused_by(a.rank, a.pid);
	if (a.status == CT_MISMATCH)
		ct_error_hint(CT_COMM_MISMATCH_HINT);
	return (enum ct_status)a.status;
}

static void name_self(const struct comm_nccl *n, struct announcement *a)
{
	a->rank = n->base.world->peers[n->base.rank].rank;
	a->pid = n->base.world->peers[n->base.rank].pid;
}

static void announce_failure(struct comm_nccl *n)
{
	const struct ct_error *e = &n->base.error;
	struct announcement a = {.status = CT_PEER_LOST};
	char who[128];

	ct__comm_peer_text(&n->base, n->base.rank, who, sizeof(who));
	if (e->status == CT_MISMATCH) { /* an error of all ranks */
		a.status = CT_MISMATCH;
		snprintf(a.text, sizeof(a.text), "%s", e->message);
	} else {
		name_self(n, &a);
		snprintf(a.text, sizeof(a.text), "%s gave up: %s", who, e->message);
	}
	announce(n, "failed", &a);
}

void ct__nccl_announce_close(struct comm_nccl *n)
{
	struct announcement a = {.status = CT_PEER_LOST};
	char who[128];

	ct__comm_peer_text(&n->base, n->base.rank, who, sizeof(who));
	name_self(n, &a);
	snprintf(a.text, sizeof(a.text), "%s closed the communicator", who);
	announce(n, "closed", &a);
}

/* ---- abort */

static void *run_aborter(void *arg)
{
	struct comm_nccl *n = arg;
	ncclComm_t nccl;
	bool abort_now;

	pthread_mutex_lock(&n->abort_lock);
	while (!n->abort_now && !n->stop)
		pthread_cond_wait(&n->wake, &n->abort_lock);
	abort_now = n->abort_now;
	pthread_mutex_unlock(&n->abort_lock);
	if (abort_now) {
		pthread_mutex_lock(&n->lock);
		nccl = n->nccl;
		n->nccl = NULL;
		pthread_mutex_unlock(&n->lock);
		if (nccl && n->api.CommAbort(nccl) != ncclSuccess)
			CT_DEBUG("ncclCommAbort failed");
		announce_failure(n);
	}
	pthread_mutex_lock(&n->abort_lock);
	n->aborted = true;
	pthread_cond_broadcast(&n->wake);
	pthread_mutex_unlock(&n->abort_lock);
	return NULL;
}

enum ct_status ct__nccl_health_start(struct comm_nccl *n)
{
	return ct_thread_start(&n->aborter, "ct-nccl-abort", run_aborter, n);
}

void ct__nccl_abort(ct_comm *c)
{
	struct comm_nccl *n = (struct comm_nccl *)c;

	pthread_mutex_lock(&n->abort_lock);
	n->abort_now = true;
	pthread_cond_broadcast(&n->wake);
	pthread_mutex_unlock(&n->abort_lock);
}

bool ct__nccl_health_stop(struct comm_nccl *n)
{
	const int64_t deadline = ct_deadline_in(ABORT_NS);
	bool aborted;

	if (!n->aborter.running)
		return true;
	pthread_mutex_lock(&n->abort_lock);
	n->stop = true;
	pthread_cond_broadcast(&n->wake);
	while (!n->aborted && ct_cond_wait_until(&n->wake, &n->abort_lock, deadline) == 0)
		;
	aborted = n->aborted;
	pthread_mutex_unlock(&n->abort_lock);
	if (aborted)
		ct_thread_join(&n->aborter);
	else
		CT_WARN("ncclCommAbort has not returned within 10 s; its communicator is not freed");
	return aborted;
}

/* ---- detection */

enum ct_status ct__nccl_poll(ct_comm *c)
{
	struct comm_nccl *n = (struct comm_nccl *)c;
	ncclResult_t state = ncclSuccess, r = ncclSuccess;
	enum ct_status st;

	pthread_mutex_lock(&n->lock);
	if (n->nccl)
		r = n->api.CommGetAsyncError(n->nccl, &state);
	st = ct__nccl_check(&n->api, n->nccl, r == ncclSuccess ? state : r, "a running operation");
	pthread_mutex_unlock(&n->lock);
	return st < 0 ? st : CT_OK;
}

/* The store's report of the failure of a rank has more detail than NCCL's error. */
static enum ct_status run_failed(struct comm_nccl *n, int64_t deadline_ns)
{
	struct ct_failure f;

	if (ct_store_watch(n->base.world->store, deadline_ns, &f) != CT_OK)
		return CT_OK;
	ct_comm_abort(&n->base, &f);
	return ct_error_restore(&n->base.error);
}

static enum ct_status look(struct comm_nccl *n)
{
	const int64_t now = ct_now_ns();

	if (now < n->look_ns)
		return CT_OK;
	n->look_ns = now + ct_backoff_ns(&n->pause);
	CT_TRY(run_failed(n, now));
	return heed(n, "failed");
}

void ct__nccl_look_soon(struct comm_nccl *n)
{
	n->pause = (struct ct_backoff){FIRST_LOOK_NS, LAST_LOOK_NS};
	n->look_ns = ct_now_ns() + FIRST_LOOK_NS;
}

enum ct_status ct__nccl_healthy(struct comm_nccl *n)
{
	struct ct_error e;
	enum ct_status st;

	if (atomic_load_explicit(&n->base.dead, memory_order_acquire))
		return ct_error_restore(&n->base.error);
	st = ct__nccl_poll(&n->base);
	if (st == CT_PEER_LOST) {
		ct_error_save(&e);
		CT_TRY(run_failed(n, ct_deadline_in(FINAL_ERROR_NS)));
		return ct_error_restore(&e);
	}
	CT_TRY(st);
	return look(n);
}

enum ct_status ct__nccl_timed_out(struct comm_nccl *n, int64_t number, const char *what)
{
	CT_FAIL(CT_TIMEOUT, "%s has not finished within %.1f s", what, (double)n->base.opts.timeout_ns * 1e-9);
	ct_error_hint("check whether a process is stopped, or busy for longer than dist.timeout");
	ct__comm_attribute_failure(&n->base, &(ct_work){.number = number});
	return CT_TIMEOUT;
}

/* Compares the latest collective, for which the stream may wait, with those of the other ranks. */
static enum ct_status compare_latest(struct comm_nccl *n)
{
	ct_comm *c = &n->base;
	struct ct_flight_record r;

	if (!ct__flight_find(c->flight, atomic_load(&c->seq), ct_comm_seq(c) - 1, &r))
		return CT_OK;
	const ct_work w = ct__flight_work(c, &r);
	return ct__comm_diagnose(c, &w, false);
}

enum ct_status ct__nccl_check_wait(void *comm, int64_t waited_ns)
{
	struct comm_nccl *n = comm;
	enum ct_status st;

	if (waited_ns == 0) {
		ct__nccl_look_soon(n);
		n->diagnose_ns = CT_SEC;
	}
	st = ct__nccl_healthy(n);
	if (st == CT_OK && waited_ns > n->diagnose_ns) {
		n->diagnose_ns = 2 * waited_ns;
		st = compare_latest(n);
	}
	if (st == CT_OK && waited_ns > n->base.opts.timeout_ns)
		st = ct__nccl_timed_out(n, ct_comm_seq(&n->base) - 1, "work of the GPU with collectives");
	return st < 0 ? ct__comm_die(&n->base) : CT_OK;
}

enum ct_status ct__nccl_others_stay(struct comm_nccl *n, const ct_work *w)
{
	char what[224];

	if (heed(n, "closed") == CT_OK)
		return CT_OK;
	ct__work_text(w, what, sizeof(what));
	return ct_error_wrap("%s (operation %lld)", what, (long long)w->seq);
}
