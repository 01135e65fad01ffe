/* The launcher: starts one worker for each rank of this node by executing this program again, runs the rendezvous
 * store, forwards signals, and ends with the error message and exit code of the first rank that failed. No worker
 * outlives the launcher, even if the launcher is killed: workers use PR_SET_PDEATHSIG, have separate process groups,
 * and are killed 2.5 s after the first failure. */
#ifndef CT_TRAINER_LAUNCH_LAUNCH_H
#define CT_TRAINER_LAUNCH_LAUNCH_H

#include "trainer/config/config.h"

/* Runs this node's part of the job until it ends. argv is the command line of this process, which is passed to the
 * workers unchanged. run_dir is prepared before any worker is started; it is NULL if the command writes no files. After
 * the first stop signal, the workers save a checkpoint and end. After the second one (a SIGTERM counts only if it
 * arrives more than a second later), this function kills all workers and then ends this process by the same signal. If
 * run_dir is NULL, the first stop signal already has this effect. */
enum ct_status ct_launch(const struct ct_config *cfg, char **argv, const char *run_dir) CT_MUST_CHECK;

#endif
