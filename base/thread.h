/* Named threads, condition variables with a deadline, and the CPUs that this process may use. */
#ifndef CT_BASE_THREAD_H
#define CT_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

struct ct_thread {
	pthread_t id;
	bool running;
};
/* Starts a thread that calls fn(arg) with all signals blocked. `name`, at most 15 bytes, is shown by ps -L. */
enum ct_status ct_thread_start(struct ct_thread *t, const char *name, void *(*fn)(void *), void *arg) CT_MUST_CHECK;
void ct_thread_join(struct ct_thread *t); /* does nothing if the struct is zeroed */

/* Waits for a condition until a deadline on the clock of ct_now_ns. Returns 0 or ETIMEDOUT. Initialize the condition
 * with ct_cond_init. */
void ct_cond_init(pthread_cond_t *c);
int ct_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);

/* Returns the number of CPUs in the affinity mask, limited by the cgroup quota (v1 and v2); at least 1. */
int ct_cpu_count(void);
/* Returns the number of CPUs, possibly fractional, that the control groups of the process allow; 0 means no limit.
 * groups_file lists these groups in the format of /proc/self/cgroup; the control group file system is mounted at
 * `mount`. The lowest limit of these groups and all their ancestors applies. */
double ct_cpu_quota(const char *groups_file, const char *mount);
/* Writes the affinity mask to buf as a list such as "0-3,8". */
void ct_cpu_list(char *buf, size_t len);

#endif
