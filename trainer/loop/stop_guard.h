/* Handles stop signals while there is nothing to save. This is the case in commands that write no files, and while a
 * worker starts; a starting worker may hang in a file system or wait several minutes for other ranks. */
#ifndef CT_TRAINER_LOOP_STOP_GUARD_H
#define CT_TRAINER_LOOP_STOP_GUARD_H

#include "base/thread.h"
#include "trainer/slurm/job.h"

struct ct_stop_guard {
	struct ct_thread thread;
	int signals, wake_fd;
	const struct ct_slurm_job *job; /* set by the caller before the start: the job to requeue after SIGTERM, or NULL */
};

/* After this call, a stop signal that arrives at `signals` (from ct_signals_open) ends this process with the exit code
 * of CT_INTERRUPTED, regardless of what its other threads are doing. A SIGTERM may be a preemption, so the job is
 * requeued; after SIGUSR1, it is not, because its time limit is too short to start. Does nothing if signals < 0. */
enum ct_status ct_stop_guard_start(struct ct_stop_guard *g, int signals) CT_MUST_CHECK;
/* Stops the guard. After this call, the caller must read `signals` itself. A signal that the guard has not handled
 * remains pending. May be called on a zeroed struct, and more than once. */
void ct_stop_guard_end(struct ct_stop_guard *g);

#endif
