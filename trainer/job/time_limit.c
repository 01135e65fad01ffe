/* A thread asks for the remaining time, and sleeps until the margin is reached or for ten minutes, whichever comes
 * first; thus a changed limit of a Slurm job is noticed, and Slurm is asked once more directly before the signal. An
 * unknown time of Slurm is asked for again after a minute and never stops the run. The signal goes to this process like
 * one from Slurm, so there is only one way to stop a run. The thread sleeps on a condition variable, through which
 * ct_time_limit_stop wakes it. */
#define CT_LOG_COMPONENT "limit"
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

/* The time that is left to the Slurm job, in seconds, or CT_SLURM_NO_LIMIT. Sets *known to false if Slurm does not
 * answer. */
static int64_t left_to_job(const struct ct_time_limit *l, bool *known)
{
	int64_t left = CT_SLURM_NO_LIMIT;

	*known = true;
	if (!l->asks_slurm)
		return CT_SLURM_NO_LIMIT;
	if (ct_slurm_time_left(l->job, &left) < 0) {
		CT_DEBUG("the time limit of Slurm job %s is unknown: %s", l->job->name, ct_error_message());
		ct_error_clear();
		*known = false;
		return CT_SLURM_NO_LIMIT;
	}
	if (left != CT_SLURM_NO_LIMIT)
		CT_DEBUG("Slurm job %s reaches its time limit in %" PRId64 " s", l->job->name, left);
	return left;
}

static int64_t left_of_own(const struct ct_time_limit *l)
{
	int64_t left = l->until_ns == INT64_MAX ? INT64_MAX : l->until_ns - ct_now_ns();

	return left == INT64_MAX ? CT_SLURM_NO_LIMIT : left > 0 ? left / CT_SEC : 0;
}

/* Returns the number of seconds until the limits have to be read again, or 0 if the run has to stop now. */
static int64_t ask(struct ct_time_limit *l)
{
	bool known;
	const int64_t job = left_to_job(l, &known), own = left_of_own(l), left = job < own ? job : own;
	const int64_t again = known ? ASK_AGAIN : RETRY;

	if (left == CT_SLURM_NO_LIMIT)
		return again;
	if (l->margin < 0)
		l->margin = left / 10 < MAX_MARGIN ? left / 10 : MAX_MARGIN;
	if (left > l->margin)
		return left - l->margin < again ? left - l->margin : again;
	if (job < own)
		CT_INFO("Slurm job %s reaches its time limit in %" PRId64 " s: saving and stopping now", l->job->name,
			left);
	else
		CT_INFO("train.max_time is reached in %" PRId64 " s: saving and stopping now", left);
	return 0;
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

enum ct_status ct_time_limit_start(struct ct_time_limit *l, const struct ct_slurm_job *job, int64_t until_ns,
				   int64_t margin)
{
	*l = (struct ct_time_limit){
		.job = job, .until_ns = until_ns, .margin = margin, .asks_slurm = job->id != 0 && margin != 0};
	if (!l->asks_slurm && until_ns == INT64_MAX)
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
