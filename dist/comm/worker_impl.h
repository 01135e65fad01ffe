/* A thread that runs the operations of a communicator one by one, for back ends that only have blocking operations. */
#ifndef CT_DIST_COMM_WORKER_IMPL_H
#define CT_DIST_COMM_WORKER_IMPL_H

#include "base/thread.h"
#include "dist/comm/comm_impl.h"

struct ct_comm_worker {
	ct_comm *comm;
	enum ct_status (*run)(ct_comm *c, ct_work *w); /* blocks; its failure ends the communicator */
	struct ct_thread thread;
	pthread_mutex_t lock;
	pthread_cond_t posted, finished;
	ct_work *head, *tail; /* head: the operation that is running */
	bool ready, stopping;
};

enum ct_status ct__comm_worker_start(struct ct_comm_worker *q, ct_comm *c, const char *name,
				     enum ct_status (*run)(ct_comm *c, ct_work *w)) CT_MUST_CHECK;
/* Ends the thread. If the communicator is not dead, first waits until all queued operations are done. A zeroed worker
 * is allowed. */
void ct__comm_worker_stop(struct ct_comm_worker *q);
bool ct__comm_worker_busy(struct ct_comm_worker *q);
void ct__comm_worker_post(struct ct_comm_worker *q, ct_work *w);
/* Returns CT_OK, CT_INPROGRESS after the deadline, or the status with which the communicator ended. */
enum ct_status ct__comm_worker_wait(struct ct_comm_worker *q, ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;
/* Call it when the communicator has ended. Waits until the worker no longer uses the buffers of w. */
void ct__comm_worker_settle(struct ct_comm_worker *q, ct_work *w);

#endif
