/* Named threads, condition variables with a deadline, and the CPUs that this process may use. */
#ifndef CT_BASE_THREAD_H
#define CT_BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

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

/* A set of CPUs, which are numbered as in the system. Zeroed, it is empty. */
enum { CT_CPUS_MAX = 8192 };
struct ct_cpu_set {
	cpu_set_t part[CT_CPUS_MAX / CPU_SETSIZE];
};
static inline void ct_cpu_set_add(struct ct_cpu_set *set, int cpu)
{
	CPU_SET_S((size_t)cpu, sizeof(*set), set->part);
}
static inline bool ct_cpu_set_has(const struct ct_cpu_set *set, int cpu)
{
	return CPU_ISSET_S((size_t)cpu, sizeof(*set), set->part);
}
/* Returns the affinity mask of the process, or the one that it had before ct_cpu_bind. Empty if it is not known. */
struct ct_cpu_set ct_cpu_mask(void);
/* Writes the set to buf as a list such as "0-3,8". */
void ct_cpu_set_text(const struct ct_cpu_set *set, char *buf, size_t len);
/* Binds the calling thread, and all threads that it starts from now on, to these CPUs. Call it once, before the first
 * thread is started. Fails with CT_UNSUPPORTED. */
enum ct_status ct_cpu_bind(const struct ct_cpu_set *cpus) CT_MUST_CHECK;
/* ct_cpu_unbind gives the calling thread the CPUs that the process had before ct_cpu_bind, so that a program that it
 * starts has them, too. ct_cpu_rebind gives it the CPUs of ct_cpu_bind again. They do nothing if the process is not
 * bound. Not for threads that ct_parallel_pin has bound. */
void ct_cpu_unbind(void);
void ct_cpu_rebind(void);

/* Returns the number of CPUs in the affinity mask (ct_cpu_mask), limited by the cgroup quota (v1 and v2); at least 1.
 * The hardware threads of a core count as one CPU each. */
int ct_cpu_count(void);
/* Returns the number of CPUs, possibly fractional, that the control groups of the process allow; 0 means no limit.
 * groups_file lists these groups in the format of /proc/self/cgroup; the control group file system is mounted at
 * `mount`. The lowest limit of these groups and all their ancestors applies. */
double ct_cpu_quota(const char *groups_file, const char *mount);
/* Writes the affinity mask (ct_cpu_mask) to buf, like ct_cpu_set_text. */
void ct_cpu_list(char *buf, size_t len);

#endif
