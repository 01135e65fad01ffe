/* Stops a run in time before its time is over: that of its Slurm job, or train.max_time. A thread waits until only a
 * margin is left, and then sends SIGUSR1 to this process. The run saves a checkpoint and ends, as after a SIGUSR1 from
 * Slurm. Slurm is asked again every 10 minutes, and before the signal is sent, because the limit of a job may be
 * changed. */
#ifndef CT_TRAINER_JOB_TIME_LIMIT_H
#define CT_TRAINER_JOB_TIME_LIMIT_H

#include "base/thread.h"
#include "trainer/job/slurm/job.h"

struct ct_time_limit {
	struct ct_thread thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	const struct ct_slurm_job *job;
	int64_t until_ns; /* on the ct_now_ns clock; INT64_MAX: no limit of our own */
	int64_t margin;   /* in seconds; negative: auto */
	bool asks_slurm;
	bool end; /* guarded by mutex */
};

/* Starts the thread, if job->id is not 0 or until_ns is not INT64_MAX. margin is the time in seconds that a run needs
 * to stop and save; if it is negative, a tenth of the time that remains now, but at most 120 s; if it is 0, a Slurm job
 * has no limit here. The structs must not be moved. */
enum ct_status ct_time_limit_start(struct ct_time_limit *l, const struct ct_slurm_job *job, int64_t until_ns,
				   int64_t margin) CT_MUST_CHECK;
/* Stops the thread, which may take as long as a request to Slurm. May be called on a zeroed struct. */
void ct_time_limit_stop(struct ct_time_limit *l);

#endif
