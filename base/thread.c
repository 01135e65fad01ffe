#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum ct_status ct_thread_start(struct ct_thread *t, const char *name, void *(*fn)(void *), void *arg)
{
	char short_name[16] = {0};
	sigset_t all, old;
	int err;

	CT_ASSERT(!t->running);
	/* Signals go to the main thread, except faults that the thread itself causes. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->id, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0) {
		(void)CT_FAIL(CT_NOMEM, "cannot start thread \"%s\": %s", name, strerror(err));
		ct_error_hint("see the limits on processes (ulimit -u, pids.max of the cgroup)");
		return CT_NOMEM;
	}
	t->running = true;
	memcpy(short_name, name, strnlen(name, sizeof(short_name) - 1));
	pthread_setname_np(t->id, short_name);
	return CT_OK;
}

void ct_thread_join(struct ct_thread *t)
{
	if (!t->running)
		return;
	pthread_join(t->id, NULL);
	t->running = false;
}

void ct_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	CT_ASSERT(pthread_condattr_init(&attr) == 0);
	CT_ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	CT_ASSERT(pthread_cond_init(c, &attr) == 0);
	pthread_condattr_destroy(&attr);
}

int ct_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns)
{
	struct timespec ts;

	if (deadline_ns == CT_FOREVER)
		return pthread_cond_wait(c, m);
	if (deadline_ns < 0)
		deadline_ns = 0;
	ts.tv_sec = deadline_ns / CT_SEC;
	ts.tv_nsec = deadline_ns % CT_SEC;
	return pthread_cond_timedwait(c, m, &ts);
}

struct ct_queue {
	pthread_mutex_t lock;
	pthread_cond_t not_full, not_empty;
	size_t capacity, head, n;
	bool closed;
	void *items[];
};

enum ct_status ct_queue_create(struct ct_queue **out, size_t capacity)
{
	struct ct_queue *q;

	CT_ASSERT(capacity > 0);
	if (capacity > (PTRDIFF_MAX - sizeof(*q)) / sizeof(q->items[0]))
		return CT_FAIL(CT_NOMEM, "out of memory: a queue of %zu places", capacity);
	CT_TRY_ALLOC(q = ct_calloc(1, sizeof(*q) + capacity * sizeof(q->items[0])));
	CT_ASSERT(pthread_mutex_init(&q->lock, NULL) == 0);
	ct_cond_init(&q->not_full);
	ct_cond_init(&q->not_empty);
	q->capacity = capacity;
	*out = q;
	return CT_OK;
}

void ct_queue_destroy(struct ct_queue *q)
{
	if (!q)
		return;
	pthread_cond_destroy(&q->not_empty);
	pthread_cond_destroy(&q->not_full);
	pthread_mutex_destroy(&q->lock);
	ct_free(q);
}

/* Both waits check the queue again after a timeout: the signal may arrive at the same time and must not be lost. */
enum ct_status ct_queue_push(struct ct_queue *q, void *item, int64_t deadline_ns)
{
	size_t tail;
	int err = 0;

	pthread_mutex_lock(&q->lock);
	while (q->n == q->capacity && !q->closed && err != ETIMEDOUT)
		err = ct_cond_wait_until(&q->not_full, &q->lock, deadline_ns);
	if (q->closed || q->n == q->capacity) {
		bool closed = q->closed;

		pthread_mutex_unlock(&q->lock);
		return closed ? CT_FAIL(CT_CANCELLED, "the queue is closed")
			      : CT_FAIL(CT_TIMEOUT, "timed out: the queue is full");
	}
	tail = q->head + q->n;
	q->items[tail < q->capacity ? tail : tail - q->capacity] = item;
	q->n++;
	pthread_mutex_unlock(&q->lock);
	/* After the unlock, so that the thread does not wake up only to wait for the lock. */
	pthread_cond_signal(&q->not_empty);
	return CT_OK;
}

enum ct_status ct_queue_pop(struct ct_queue *q, void **item, int64_t deadline_ns)
{
	int err = 0;

	pthread_mutex_lock(&q->lock);
	while (q->n == 0 && !q->closed && err != ETIMEDOUT)
		err = ct_cond_wait_until(&q->not_empty, &q->lock, deadline_ns);
	if (q->n == 0) {
		bool closed = q->closed;

		pthread_mutex_unlock(&q->lock);
		return closed ? CT_FAIL(CT_CANCELLED, "the queue is closed")
			      : CT_FAIL(CT_TIMEOUT, "timed out: the queue is empty");
	}
	*item = q->items[q->head];
	q->head = q->head + 1 < q->capacity ? q->head + 1 : 0;
	q->n--;
	pthread_mutex_unlock(&q->lock);
	pthread_cond_signal(&q->not_full);
	return CT_OK;
}

void ct_queue_close(struct ct_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->closed = true;
	pthread_mutex_unlock(&q->lock);
	pthread_cond_broadcast(&q->not_full);
	pthread_cond_broadcast(&q->not_empty);
}
