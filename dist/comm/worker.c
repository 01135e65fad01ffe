/* The head of the queue is the operation that runs, or that runs next. It stays in the queue while it runs, and
 * `running` reserves it for the thread that runs it: the queue's own thread, which runs operations only while `wanted`
 * is set, or a thread that waits in ct__comm_worker_wait. Posting a small operation does not set `wanted`, so nothing
 * wakes up for an operation that its caller is about to wait for and can run itself.
 *
 * While one thread runs the head, the other one looks at it, at intervals that become longer, and at the deadline. The
 * lock is held neither while an operation runs nor while it is looked at. The thread that runs the head therefore waits
 * until n_looking is 0 before it sets the status: the caller may then release the operation, which a look would still
 * read. When the communicator has died, the operations that remain in the queue get its status without running. A
 * caller waits at most SETTLE_NS for the one that was running. */
#include "dist/comm/worker_impl.h"

/* When a communicator dies, its connections are shut down, which ends its running operation. If it does not end, do not
 * wait longer, because the process is about to exit. */
#define SETTLE_NS (10 * CT_SEC)
/* An operation that takes longer than this is looked at, then again at increasing intervals. */
#define LOOK_NS CT_SEC
#define LOOK_MAX_NS (16 * CT_SEC)
/* For an operation of at most this size, waking up another thread takes a considerable part of the time. */
#define SMALL_BYTES ((size_t)64 << 10)

static struct ct_backoff first_pause(const struct ct_comm_worker *q)
{
	const int64_t quarter = q->comm->opts.timeout_ns / 4;

	return (struct ct_backoff){quarter < LOOK_NS ? quarter : LOOK_NS, LOOK_MAX_NS};
}

/* Returns the time of the next look. */
static int64_t next_look(struct ct_backoff *pause, int64_t deadline_ns)
{
	const int64_t look_ns = ct_deadline_in(ct_backoff_ns(pause));

	return look_ns < deadline_ns ? look_ns : deadline_ns;
}

/* ---- the parts of an operation */

static enum ct_status run_one(struct ct_comm_worker *q, ct_work *w)
{
	ct_comm *c = q->comm;
	enum ct_status st;

	if (atomic_load_explicit(&c->dead, memory_order_acquire)) {
		if (q->drop)
			q->drop(c, w);
		return c->error.status;
	}
	ct__flight_begun(c->flight, w->seq, ct_now_ns());
	st = q->run(c, w);
	if (st == CT_PEER_LOST)
		ct__comm_await_final_error(c);
	if (st == CT_TIMEOUT)
		ct__comm_attribute_failure(c, w);
	if (st < 0)
		return ct__comm_die(c);
	ct__flight_done(c->flight, w->seq);
	return CT_OK;
}

/* Runs the first operation of the queue. The caller holds the lock, which is released meanwhile. */
static void run_head(struct ct_comm_worker *q)
{
	ct_work *w = q->head;
	enum ct_status st;

	q->running = true;
	pthread_mutex_unlock(&q->lock);
	st = run_one(q, w);
	pthread_mutex_lock(&q->lock);
	while (q->n_looking > 0) /* w is released when it is done */
		pthread_cond_wait(&q->finished, &q->lock);
	q->running = false;
	q->head = w->next;
	if (!q->head) {
		q->tail = NULL;
		q->wanted = false;
	}
	atomic_store_explicit(&w->status, st, memory_order_release);
	pthread_cond_broadcast(&q->finished);
	if (q->wanted)
		pthread_cond_signal(&q->posted);
}

/* Finds out why w takes long, with the lock as above. */
static void look_at(struct ct_comm_worker *q, const ct_work *w, int64_t deadline_ns)
{
	ct_comm *c = q->comm;
	enum ct_status st = CT_OK;

	q->n_looking++;
	pthread_mutex_unlock(&q->lock);
	if (!atomic_load_explicit(&c->dead, memory_order_acquire))
		st = q->look(c, w, ct_now_ns() >= deadline_ns);
	if (st == CT_TIMEOUT && !atomic_load_explicit(&c->dead, memory_order_acquire))
		ct__comm_attribute_failure(c, w);
	if (st < 0)
		(void)ct__comm_die(c);
	pthread_mutex_lock(&q->lock);
	if (--q->n_looking == 0)
		pthread_cond_broadcast(&q->finished);
}

/* ---- the thread */

/* Another thread that begins an operation does not wake this one, so it checks at intervals whether one takes long. */
static void *work_loop(void *arg)
{
	struct ct_comm_worker *q = arg;

	pthread_mutex_lock(&q->lock);
	while (q->head || !q->stopping) {
		const int64_t now = ct_now_ns();

		if (q->running && now >= q->look_ns) {
			look_at(q, q->head, q->deadline_ns);
			q->look_ns = next_look(&q->pause, now < q->deadline_ns ? q->deadline_ns : CT_FOREVER);
		} else if (q->running || !q->wanted) {
			q->wakes_ns = q->running ? q->look_ns : now + LOOK_NS;
			(void)ct_cond_wait_until(&q->posted, &q->lock, q->wakes_ns);
		} else {
			run_head(q);
		}
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

enum ct_status ct__comm_worker_start(struct ct_comm_worker *q, ct_comm *c, const char *name,
				     enum ct_status (*run)(ct_comm *c, ct_work *w),
				     void (*drop)(ct_comm *c, ct_work *w),
				     enum ct_status (*look)(ct_comm *c, const ct_work *w, bool final))
{
	q->comm = c;
	q->run = run;
	q->drop = drop;
	q->look = look;
	pthread_mutex_init(&q->lock, NULL);
	ct_cond_init(&q->posted);
	ct_cond_init(&q->finished);
	q->ready = true;
	return ct_thread_start(&q->thread, name, work_loop, q);
}

void ct__comm_worker_stop(struct ct_comm_worker *q)
{
	if (!q->ready)
		return;
	pthread_mutex_lock(&q->lock);
	q->stopping = q->wanted = true;
	pthread_cond_signal(&q->posted);
	pthread_mutex_unlock(&q->lock);
	ct_thread_join(&q->thread);
	pthread_cond_destroy(&q->finished);
	pthread_cond_destroy(&q->posted);
	pthread_mutex_destroy(&q->lock);
	q->ready = false;
}

/* ---- the callers' side */

bool ct__comm_worker_busy(struct ct_comm_worker *q)
{
	bool busy;

	if (!q->ready)
		return false;
	pthread_mutex_lock(&q->lock);
	busy = q->head != NULL;
	pthread_mutex_unlock(&q->lock);
	return busy;
}

/* Makes the thread run the queue. The caller holds the lock. */
static void want(struct ct_comm_worker *q)
{
	if (q->wanted || !q->head)
		return;
	q->wanted = true;
	pthread_cond_signal(&q->posted);
}

void ct__comm_worker_post(struct ct_comm_worker *q, ct_work *w)
{
	pthread_mutex_lock(&q->lock);
	w->next = NULL;
	if (q->tail)
		q->tail->next = w;
	else
		q->head = w;
	q->tail = w;
	if (w->n * ct_dtype_bytes(w->dtype) > SMALL_BYTES)
		want(q);
	pthread_mutex_unlock(&q->lock);
}

void ct__comm_worker_progress(struct ct_comm_worker *q)
{
	pthread_mutex_lock(&q->lock);
	want(q);
	pthread_mutex_unlock(&q->lock);
}

enum ct_status ct__comm_worker_test(struct ct_comm_worker *q, ct_work *w)
{
	const enum ct_status st = atomic_load_explicit(&w->status, memory_order_acquire);

	if (st == CT_INPROGRESS)
		ct__comm_worker_progress(q);
	return st < 0 ? ct_error_restore(&q->comm->error) : st;
}

/* Waits while another thread runs an operation, with the lock. Returns false if that has not ended, although the
 * communicator has. */
static bool await_other(struct ct_comm_worker *q, const ct_work *w, struct ct_backoff *pause, int64_t deadline_ns)
{
	if (atomic_load_explicit(&q->comm->dead, memory_order_acquire))
		return ct_cond_wait_until(&q->finished, &q->lock, ct_deadline_in(SETTLE_NS)) == 0;
	if (ct_cond_wait_until(&q->finished, &q->lock, next_look(pause, deadline_ns)) != 0)
		look_at(q, w, deadline_ns);
	return true;
}

enum ct_status ct__comm_worker_wait(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns)
{
	struct ct_backoff pause = first_pause(q);
	enum ct_status st;

	pthread_mutex_lock(&q->lock);
	while ((st = atomic_load_explicit(&w->status, memory_order_acquire)) == CT_INPROGRESS) {
		if (!q->running) {
			q->pause = first_pause(q);
			q->look_ns = next_look(&q->pause, deadline_ns);
			q->deadline_ns = deadline_ns;
			if (q->look_ns < q->wakes_ns)
				pthread_cond_signal(&q->posted);
			run_head(q);
		} else if (!await_other(q, w, &pause, deadline_ns)) {
			break;
		}
	}
	pthread_mutex_unlock(&q->lock);
	return st == CT_OK ? CT_OK : ct_error_restore(&q->comm->error);
}
