/* Named threads, a bounded blocking queue of pointers, and what CPUs this process may use. */
#ifndef CT_BASE_THREAD_H
#define CT_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

struct ct_thread {
	pthread_t id;
	bool running;
};
/* Starts fn(arg) with all signals blocked. `name` shows in ps -L (15 bytes). */
enum ct_status ct_thread_start(struct ct_thread *t, const char *name, void *(*fn)(void *), void *arg) CT_MUST_CHECK;
void ct_thread_join(struct ct_thread *t); /* fine on a zeroed one */

/* First in, first out; capacity fixed. Closing wakes everybody: push fails at once, pop drains and then fails. */
struct ct_queue;
enum ct_status ct_queue_create(struct ct_queue **out, size_t capacity) CT_MUST_CHECK;
void ct_queue_destroy(struct ct_queue *q);
/* CT_TIMEOUT past the deadline (ct_now_ns clock), CT_CANCELLED when closed. */
enum ct_status ct_queue_push(struct ct_queue *q, void *item, int64_t deadline_ns) CT_MUST_CHECK;
enum ct_status ct_queue_pop(struct ct_queue *q, void **item, int64_t deadline_ns) CT_MUST_CHECK;
void ct_queue_close(struct ct_queue *q);

/* Condition wait on the monotonic clock: 0 or ETIMEDOUT. Conditions come from ct_cond_init. */
void ct_cond_init(pthread_cond_t *c);
int ct_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);

/* CPUs of the affinity mask, limited by the cgroup quota (v1 and v2), at least 1. */
int ct_cpu_count(void);
/* CPUs (a fraction) that the control groups of /proc/self/cgroup's format allow under their mount; 0: no limit.
 * The tightest of each group and those above it. */
double ct_cpu_quota(const char *groups_file, const char *mount);
/* The mask as a list "0-3,8", into buf. */
void ct_cpu_list(char *buf, size_t len);

#endif
