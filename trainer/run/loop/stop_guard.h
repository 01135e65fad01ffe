/* Handles stop signals while there is nothing to save. This is the case in commands that write no files, and while a
 * worker starts; a starting worker may hang in a file system or wait several minutes for other ranks. */
#ifndef CT_TRAINER_RUN_LOOP_STOP_GUARD_H
#define CT_TRAINER_RUN_LOOP_STOP_GUARD_H

#include <stdatomic.h>

#include "base/thread.h"
#include "trainer/job/slurm/job.h"

struct ct_stop_guard {
	struct ct_thread thread;
	int signals, wake_fd;
	const struct ct_slurm_job *job; /* set by the caller before the start: the job to requeue, or NULL */
	atomic_bool no_progress; /* set by the caller after the start: no earlier start of the job has saved anything */
};

/* After this call, a stop signal that arrives at `signals` (from ct_signals_open) ends this process with the exit code
 * of CT_INTERRUPTED, regardless of what its other threads are doing. After SIGTERM or
 * SIGUSR1, which may be a preemption or the time limit, the job is requeued. After SIGUSR1 it is not if no_progress is
 * set: with a time limit that is too short for the start, the job would be requeued forever. Does nothing if
 * signals < 0. */
enum ct_status ct_stop_guard_start(struct ct_stop_guard *g, int signals) CT_MUST_CHECK;
/* Stops the guard. After this call, the caller must read `signals` itself. A signal that the guard has not handled
 * remains pending. May be called on a zeroed struct, and more than once. */
void ct_stop_guard_end(struct ct_stop_guard *g);

#endif
