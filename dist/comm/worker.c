#include "dist/comm/worker_impl.h"

/* When a communicator dies, its connections are shut down, which ends its running operation. If it does not end, do not
 * wait longer, because the process is about to exit. */
#define SETTLE_NS (10 * CT_SEC)

static ct_work *next_work(struct ct_comm_worker *q)
{
	ct_work *w;

	pthread_mutex_lock(&q->lock);
	while (!q->head && !q->stopping)
		pthread_cond_wait(&q->posted, &q->lock);
	w = q->head;
	pthread_mutex_unlock(&q->lock);
	return w;
}

static void end_work(struct ct_comm_worker *q, ct_work *w, enum ct_status st)
{
	pthread_mutex_lock(&q->lock);
	q->head = w->next;
	if (!q->head)
		q->tail = NULL;
	atomic_store_explicit(&w->status, st, memory_order_release);
	pthread_cond_broadcast(&q->finished);
	pthread_mutex_unlock(&q->lock);
}

static void *work_loop(void *arg)
{
	struct ct_comm_worker *q = arg;
	ct_comm *c = q->comm;
	ct_work *w;

	while ((w = next_work(q))) {
		enum ct_status st;

		if (atomic_load_explicit(&c->dead, memory_order_acquire)) {
			end_work(q, w, c->error.status);
			continue;
		}
		ct__flight_begun(c->flight, w->seq, ct_now_ns());
		st = q->run(c, w);
		if (st == CT_PEER_LOST)
			ct__comm_await_final_error(c);
		if (st == CT_TIMEOUT)
			ct__comm_attribute_failure(c, w);
		if (st < 0)
			st = ct__comm_die(c);
		else
			ct__flight_done(c->flight, w->seq);
		end_work(q, w, st);
	}
	return NULL;
}

enum ct_status ct__comm_worker_start(struct ct_comm_worker *q, ct_comm *c, const char *name,
				     enum ct_status (*run)(ct_comm *c, ct_work *w))
{
	q->comm = c;
	q->run = run;
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
	q->stopping = true;
	pthread_cond_signal(&q->posted);
	pthread_mutex_unlock(&q->lock);
	ct_thread_join(&q->thread);
	pthread_cond_destroy(&q->finished);
	pthread_cond_destroy(&q->posted);
	pthread_mutex_destroy(&q->lock);
	q->ready = false;
}

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

void ct__comm_worker_post(struct ct_comm_worker *q, ct_work *w)
{
	pthread_mutex_lock(&q->lock);
	w->next = NULL;
	if (q->tail)
		q->tail->next = w;
	else
		q->head = w;
	q->tail = w;
	pthread_cond_signal(&q->posted);
	pthread_mutex_unlock(&q->lock);
}

static enum ct_status wait_until(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns)
{
	enum ct_status st;

	pthread_mutex_lock(&q->lock);
	while ((st = atomic_load_explicit(&w->status, memory_order_acquire)) == CT_INPROGRESS) {
		if (ct_cond_wait_until(&q->finished, &q->lock, deadline_ns) != 0)
			break;
	}
	pthread_mutex_unlock(&q->lock);
	return st;
}

enum ct_status ct__comm_worker_wait(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns)
{
	enum ct_status st = wait_until(q, w, deadline_ns);

	return st < 0 ? ct_error_restore(&q->comm->error) : st;
}

void ct__comm_worker_settle(struct ct_comm_worker *q, ct_work *w)
{
	(void)wait_until(q, w, ct_deadline_in(SETTLE_NS));
}
