/* Named threads, a bounded blocking queue of pointers, and the CPUs that this process may use. */
#ifndef CT_BASE_THREAD_H
#define CT_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

struct ct_thread {
	pthread_t id;
	bool running;
};
/* Starts fn(arg) with all signals blocked. ps -L shows `name` (15 bytes). */
enum ct_status ct_thread_start(struct ct_thread *t, const char *name, void *(*fn)(void *), void *arg) CT_MUST_CHECK;
void ct_thread_join(struct ct_thread *t); /* does nothing on a zeroed struct */

/* A FIFO queue with fixed capacity. Closing it wakes all waiters: push fails at once, pop returns the remaining items and then
 * fails. */
struct ct_queue;
enum ct_status ct_queue_create(struct ct_queue **out, size_t capacity) CT_MUST_CHECK;
void ct_queue_destroy(struct ct_queue *q);
/* CT_TIMEOUT after the deadline (ct_now_ns clock), CT_CANCELLED if the queue is closed. */
enum ct_status ct_queue_push(struct ct_queue *q, void *item, int64_t deadline_ns) CT_MUST_CHECK;
enum ct_status ct_queue_pop(struct ct_queue *q, void **item, int64_t deadline_ns) CT_MUST_CHECK;
void ct_queue_close(struct ct_queue *q);

/* Waits for a condition on the monotonic clock; returns 0 or ETIMEDOUT. Initialize the condition with ct_cond_init. */
void ct_cond_init(pthread_cond_t *c);
int ct_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);

/* CPUs of the affinity mask, limited by the cgroup quota (v1 and v2), at least 1. */
int ct_cpu_count(void);
/* CPUs (a fraction) that the control groups listed in groups_file (the format of /proc/self/cgroup) allow; 0: no limit. The
 * tightest limit of each group and the groups above it counts. mount: where the control groups are mounted. */
double ct_cpu_quota(const char *groups_file, const char *mount);
/* Writes the affinity mask as a list "0-3,8" to buf. */
void ct_cpu_list(char *buf, size_t len);

#endif
