/* Named threads, waiting with a deadline, and the CPUs that this process may use. */
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
