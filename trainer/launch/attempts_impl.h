/* The attempts of a job: runs it, and runs it again after a failure, as launch.restarts allows
 * (trainer/launch/restart.h). */
#ifndef CT_TRAINER_LAUNCH_ATTEMPTS_IMPL_H
#define CT_TRAINER_LAUNCH_ATTEMPTS_IMPL_H

#include "base/mem.h"
#include "trainer/config/config.h"
#include "trainer/launch/rejoin.h"
#include "trainer/launch/restart.h"

enum { CT_ATTEMPTS_ENV = 3 };

struct ct_attempts {
	const struct ct_config *cfg;
	const char *run_dir; /* NULL: the job has no run directory */
	bool decided; /* this launcher has ended the job after a failure, and those of other nodes wait for its decision
		       */
	int signals;
	struct ct_restarts restarts;
	struct ct_rejoin_attempt now; /* its number includes attempts that were not caused by a failure */
};

/* Node 0: prepares the run directory, as ct_run_dir_prepare does. train.resume=never does not apply if this launcher
 * returns to a job. */
enum ct_status ct__attempts_prepare(const struct ct_config *cfg, const char *run_dir) CT_MUST_CHECK;
/* Call it after the run directory has been prepared. Borrows cfg and run_dir, which is NULL if there are no restarts.
 * node is the index of this node. signals is a descriptor from ct_signals_open. */
void ct__attempts_init(struct ct_attempts *a, const struct ct_config *cfg, const char *run_dir, int node, int signals);
/* If this launcher leads the job, also removes RUN/leader. */
void ct__attempts_release(struct ct_attempts *a);
/* Returns true if another launcher decides whether there is another attempt, and this one takes part in it. */
bool ct__attempts_follow(const struct ct_attempts *a);
/* Makes an attempt. On failure, sets the members of *end, which are -1, false and CT_OK before the call. status may
 * remain CT_OK if it is the returned one. */
typedef enum ct_status (*ct_attempt_fn)(void *user, struct ct_attempt_end *end);
/* Makes attempts until one succeeds or a failure must not be followed by another one. The launcher that leads the job,
 * which is that of node 0 unless this node is lost, records each failure in RUN/log/launcher.log. Between the attempts,
 * it holds the lock of the run directory, and a stop signal ends the job with CT_INTERRUPTED. Other nodes make attempts
 * as long as it does: `attempt` waits for it, or takes its place. */
enum ct_status ct__attempts_run(struct ct_attempts *a, ct_attempt_fn attempt, void *user) CT_MUST_CHECK;
/* After the first attempt, stores up to CT_ATTEMPTS_ENV environment variables for the ranks, which the caller owns, and
 * returns their number. An element is NULL if memory has run out. */
size_t ct__attempts_env(const struct ct_attempts *a, char **env);

#endif
