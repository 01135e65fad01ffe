/* A thread that does the operations of a communicator one after the other, for back ends that can only block. */
#ifndef CT_DIST_COMM_WORKER_IMPL_H
#define CT_DIST_COMM_WORKER_IMPL_H

#include "base/thread.h"
#include "dist/comm/comm_impl.h"

struct ct_comm_worker {
	ct_comm *comm;
	enum ct_status (*run)(ct_comm *c, ct_work *w); /* blocks; on failure its error chain ends the communicator */
	struct ct_thread thread;
	pthread_mutex_t lock;
	pthread_cond_t posted, finished;
	ct_work *head, *tail; /* head: the one under way */
	bool ready, stopping;
};

enum ct_status ct__comm_worker_start(struct ct_comm_worker *q, ct_comm *c, const char *name,
				     enum ct_status (*run)(ct_comm *c, ct_work *w)) CT_MUST_CHECK;
/* The communicator must be dead or idle, else this waits for queued operations. A zeroed worker is allowed. */
void ct__comm_worker_stop(struct ct_comm_worker *q);
bool ct__comm_worker_busy(struct ct_comm_worker *q);
void ct__comm_worker_post(struct ct_comm_worker *q, ct_work *w);
/* CT_OK, CT_INPROGRESS after the deadline, or the status with which the communicator ended. */
enum ct_status ct__comm_worker_wait(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;
/* After the communicator's end: waits until the worker does not use w's buffers any more. */
void ct__comm_worker_settle(struct ct_comm_worker *q, ct_work *w);

#endif
