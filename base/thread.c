/* Threads start with all signals blocked, so that the main thread handles those that are sent to the process.
 * Exceptions are the signals of faults that the thread itself causes, and the signal that asks a thread for its
 * backtrace (base/stacks.h). Condition variables wait on CLOCK_MONOTONIC, but deadlines are times on the clock of
 * ct_now_ns, which may be halted during the wait; so a timeout of the system is only a reason to look at that clock
 * again. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/stacks.h"

enum ct_status ct_thread_start(struct ct_thread *t, const char *name, void *(*fn)(void *), void *arg)
{
	char short_name[16] = {0};
	sigset_t all, old;
	int err;

	CT_ASSERT(!t->running);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGABRT);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGSYS);
	sigdelset(&all, ct_stacks_signal());
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t->id, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0) {
		CT_FAIL(CT_NOMEM, "cannot start thread \"%s\": %s", name, strerror(err));
		return ct_error_hint("check the limits on processes (ulimit -u, pids.max of the cgroup)");
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
	for (;;) {
		int64_t halted = ct_clock_halted_ns();
		int rc;

		ts.tv_sec = (deadline_ns + halted) / CT_SEC;
		ts.tv_nsec = (deadline_ns + halted) % CT_SEC;
		rc = pthread_cond_timedwait(c, m, &ts);
		/* If the wait timed out before the deadline, the clock was halted in the meantime: wait again. */
		if (rc != ETIMEDOUT || ct_now_ns() >= deadline_ns)
			return rc;
	}
}
