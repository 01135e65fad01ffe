/* A queue of the operations of a communicator, for back ends that only have blocking operations. Its thread runs them
 * in order. A thread that waits for an operation that has not begun runs it itself: changing threads takes longer than
 * a small operation. Meanwhile the other one of the two threads can find out why an operation takes long. */
#ifndef CT_DIST_COMM_WORKER_IMPL_H
#define CT_DIST_COMM_WORKER_IMPL_H

#include "base/clock.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"

struct ct_comm_worker {
	ct_comm *comm;
	enum ct_status (*run)(ct_comm *c, ct_work *w); /* blocks; its failure ends the communicator */
	/* Called instead of `run` if the communicator has ended; releases what the post of w has started. NULL is
	 * allowed. */
	void (*drop)(ct_comm *c, ct_work *w);
	/* Another thread calls it while w takes long, and at the deadline (final). Its failure ends the communicator,
	 * too. If final is true, it must fail. */
	enum ct_status (*look)(ct_comm *c, const ct_work *w, bool final);
	struct ct_thread thread;
	pthread_mutex_t lock;
	pthread_cond_t posted, finished;
	ct_work *head, *tail;
	bool running;  /* head is running */
	bool wanted;   /* the thread runs the queue; otherwise only threads that wait do */
	int n_looking; /* calls of `look` */
	/* Of an operation that a waiting thread runs: its deadline, when to look at it, and the next interval. */
	int64_t deadline_ns, look_ns;
	struct ct_backoff pause;
	int64_t wakes_ns; /* when the idle thread wakes up by itself */
	bool ready, stopping;
};

enum ct_status ct__comm_worker_start(struct ct_comm_worker *q, ct_comm *c, const char *name,
				     enum ct_status (*run)(ct_comm *c, ct_work *w),
				     void (*drop)(ct_comm *c, ct_work *w),
				     enum ct_status (*look)(ct_comm *c, const ct_work *w, bool final)) CT_MUST_CHECK;
/* Ends the thread. If the communicator is not dead, first waits until all queued operations are done. A zeroed worker
 * is allowed. */
void ct__comm_worker_stop(struct ct_comm_worker *q);
bool ct__comm_worker_busy(struct ct_comm_worker *q);
/* A small operation begins when a thread waits for it, at the next ct__comm_worker_progress, or with the next operation
 * that is not small. */
void ct__comm_worker_post(struct ct_comm_worker *q, ct_work *w);
/* Makes the thread run what has been posted. */
void ct__comm_worker_progress(struct ct_comm_worker *q);
/* Does the same, and returns the status of w. */
enum ct_status ct__comm_worker_test(struct ct_comm_worker *q, ct_work *w) CT_MUST_CHECK;
/* Returns CT_OK, or the status with which the communicator has ended; it ends at the deadline at the latest. In both
 * cases the buffers of w are no longer used, unless the operation does not return although the communicator has ended.
 */
enum ct_status ct__comm_worker_wait(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;

#endif
