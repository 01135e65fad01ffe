/* The launcher: what launch.c, which runs the ranks, and launch_result.c share. */
#ifndef CT_TRAINER_LAUNCH_LAUNCH_IMPL_H
#define CT_TRAINER_LAUNCH_LAUNCH_IMPL_H

#include "trainer/launch/attempts_impl.h"
#include "trainer/launch/job_store.h"
#include "trainer/launch/waiting.h"
#include "trainer/launch/witness.h"
#include "trainer/launch/workers_impl.h"

struct ct_launcher {
	const struct ct_config *cfg;
	char **argv;
	const char *run_dir;   /* NULL: the workers do not save when they are stopped */
	struct ct_ranks ranks; /* of this attempt, if the number of nodes may change */
	int signals;
	struct ct_rank_pages pages; /* [ranks.local] */
	struct ct_attempts attempts;

	/* Of an attempt. */
	struct ct_worker *workers;
	struct ct_job_store store;
	struct ct_witness witness;
	struct ct_waiting waiting;
	bool stopping;      /* a signal has requested to stop */
	int64_t stopped_at; /* time of the first SIGINT or SIGTERM; 0 if there was none */
	int64_t kill_at;    /* CT_FOREVER until a failure */
	int64_t grow_at;    /* when to look for other nodes; CT_FOREVER unless the number of nodes may change */
	int first_failed;   /* index of the worker, or -1 */
	bool killed;        /* the launcher has killed the remaining workers */
	bool run_failed;    /* the store has a failure record */
	int give_up;        /* the signal that ends the job at once, or 0 */
	int n_others;       /* other nodes that were connected at its end */
};

/* These functions are called after all ranks of this node have ended. */

/* Returns the result of the job, with the error message of the first rank that failed. */
enum ct_status ct__launch_result(struct ct_launcher *l) CT_MUST_CHECK;
/* Returns how the attempt has ended with the status st. The failure record of the store is the same on all nodes. If a
 * rank hangs, it has the rank that reported this. */
struct ct_attempt_end ct__launch_attempt_end(struct ct_launcher *l, enum ct_status st);
/* Writes the report of a failed attempt to the run directory. */
void ct__launch_report(struct ct_launcher *l);

#endif
