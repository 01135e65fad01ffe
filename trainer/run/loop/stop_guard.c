/* A thread waits for the signals, so that a start that hangs in a system call can still be stopped. It ends the
 * process with _exit, because other threads may hold any lock; therefore it must run only while there is nothing to
 * save or to close. It is ended through an eventfd, which has priority over a signal that arrives at the same time:
 * that signal stays pending for the training loop. */
#include "trainer/run/loop/stop_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "trainer/job/launched.h"
#include "trainer/job/signals.h"

/* Calls _exit, because the other threads may hold any lock. */
static void end_process(const struct ct_stop_guard *g, int sig)
{
	const bool too_short = g->job && sig == SIGUSR1 && atomic_load(&g->no_progress);

	if (g->job && sig != SIGINT && !too_short)
		ct_slurm_requeue(g->job);
	CT_FAIL(CT_INTERRUPTED, "pid %d: stopped by signal %d (%s); there was nothing to save", (int)getpid(), sig,
		strsignal(sig));
	if (too_short)
		ct_error_hint("the job is not requeued again, because none of its starts has saved a checkpoint: "
			      "request more time (--time)");
	else
		ct_error_hint("run the same command again");
	if (!ct_launched_deliver_error(CT_INTERRUPTED))
		fprintf(stderr, "ctrain: error: %s\nhint: %s\n", ct_error_message(), ct_error_hint_text());
	_exit(ct_status_exit_code(CT_INTERRUPTED));
}

static void *run(void *arg)
{
	const struct ct_stop_guard *g = arg;
	struct pollfd p[2] = {{.fd = g->signals, .events = POLLIN}, {.fd = g->wake_fd, .events = POLLIN}};

	for (;;) {
		int n = poll(p, 2, -1);

		if (n > 0 && p[1].revents)
			return NULL;
		int sig = n > 0 ? ct_signals_next(g->signals) : 0;
		if (sig != 0)
			end_process(g, sig);
	}
}

enum ct_status ct_stop_guard_start(struct ct_stop_guard *g, int signals)
{
	*g = (struct ct_stop_guard){.signals = signals, .wake_fd = -1, .job = g->job};
	if (signals < 0)
		return CT_OK;
	g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	enum ct_status st = g->wake_fd < 0 ? CT_FAIL(CT_NOMEM, "eventfd: %s", strerror(errno))
					   : ct_thread_start(&g->thread, "ct-stop-guard", run, g);
	if (st < 0)
		ct_stop_guard_end(g);
	return st;
}

void ct_stop_guard_end(struct ct_stop_guard *g)
{
	uint64_t one = 1;

	if (g->thread.running) {
		(void)!write(g->wake_fd, &one, sizeof(one));
		ct_thread_join(&g->thread);
		close(g->wake_fd);
	} else if (g->wake_fd > 0) {
		close(g->wake_fd);
	}
	*g = (struct ct_stop_guard){.signals = -1, .wake_fd = -1};
}
