/* A thread asks for the remaining time, and sleeps until the margin is reached or for ten minutes, whichever comes
 * first; thus a changed limit is noticed, and Slurm is asked once more directly before the signal. An unknown time is
 * asked for again after a minute and never stops the run. The signal goes to this process like one from Slurm, so there
 * is only one way to stop a run. The thread sleeps on a condition variable, through which ct_time_limit_stop wakes
 * it. */
#define CT_LOG_COMPONENT "slurm"
#include "trainer/job/time_limit.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define ASK_AGAIN 600 /* seconds */
#define RETRY 60
#define MAX_MARGIN 120

/* Returns true if the thread has to end. */
static bool pause_for(struct ct_time_limit *l, int64_t seconds)
{
	int64_t until = ct_deadline_in(seconds * CT_SEC);

	pthread_mutex_lock(&l->mutex);
	while (!l->end && ct_now_ns() < until)
		(void)ct_cond_wait_until(&l->changed, &l->mutex, until);
	bool end = l->end;

	pthread_mutex_unlock(&l->mutex);
	return end;
}

/* Returns the number of seconds until Slurm has to be asked again, or 0 if the run has to stop now. */
static int64_t ask(struct ct_time_limit *l)
{
	int64_t left;

	if (ct_slurm_time_left(l->job, &left) < 0) {
		CT_DEBUG("the time limit of Slurm job %s is unknown: %s", l->job->name, ct_error_message());
		ct_error_clear();
		return RETRY;
	}
	if (left == CT_SLURM_NO_LIMIT)
		return ASK_AGAIN;
	if (l->margin < 0)
		l->margin = left / 10 < MAX_MARGIN ? left / 10 : MAX_MARGIN;
	CT_DEBUG("Slurm job %s reaches its time limit in %" PRId64 " s", l->job->name, left);
	if (left <= l->margin) {
		CT_INFO("Slurm job %s reaches its time limit in %" PRId64 " s: saving and stopping now", l->job->name,
			left);
		return 0;
	}
	return left - l->margin < ASK_AGAIN ? left - l->margin : ASK_AGAIN;
}

static void *watch(void *arg)
{
	struct ct_time_limit *l = arg;
	int64_t wait;

	while ((wait = ask(l)) > 0) {
		if (pause_for(l, wait))
			return NULL;
	}
	kill(getpid(), SIGUSR1);
	return NULL;
}

enum ct_status ct_time_limit_start(struct ct_time_limit *l, const struct ct_slurm_job *job, int64_t margin)
{
	*l = (struct ct_time_limit){.job = job, .margin = margin};
	if (job->id == 0 || margin == 0)
		return CT_OK;
	pthread_mutex_init(&l->mutex, NULL);
	ct_cond_init(&l->changed);
	return ct_thread_start(&l->thread, "ct-time-limit", watch, l);
}

void ct_time_limit_stop(struct ct_time_limit *l)
{
	if (!l->thread.running)
		return;
	pthread_mutex_lock(&l->mutex);
	l->end = true;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->mutex);
	ct_thread_join(&l->thread);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->mutex);
}
