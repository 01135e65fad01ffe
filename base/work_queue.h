/* Threads that share a list of jobs. Each thread takes the next job when it has finished one, so that threads with
 * short jobs do more of them. */
#ifndef CT_BASE_WORK_QUEUE_H
#define CT_BASE_WORK_QUEUE_H

#include <stddef.h>

#include "base/status.h"

typedef struct ct_work_queue ct_work_queue;

/* Takes the next job: sets *i to its index. Returns false if there is none, or if a thread has failed. */
bool ct_work_next(ct_work_queue *q, size_t *i);

/* Calls fn(q, arg) on this thread and on others, at most n_threads and not more than there are jobs. fn takes jobs with
 * ct_work_next until there are none. If the system cannot start all threads, the others do the work. If fn fails on
 * some thread, the others end after their current job, and the first error is returned. `name`, at most 15 bytes, is
 * shown by ps -L. */
typedef enum ct_status (*ct_work_fn)(ct_work_queue *q, void *arg);
enum { CT_WORK_THREADS = 256 }; /* more than these are not started */
enum ct_status ct_work_run(size_t n_jobs, int n_threads, const char *name, ct_work_fn fn, void *arg) CT_MUST_CHECK;

#endif
