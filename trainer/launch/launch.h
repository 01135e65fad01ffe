/* The launcher: starts one worker for each rank of this node by executing this program again, serves the rendezvous
 * store, forwards signals, and ends with the error message and exit code of the first rank that failed. No worker
 * outlives the launcher, even if it is killed: workers get PR_SET_PDEATHSIG and their own process group, and are killed
 * 2.5 s after the first failure. */
#ifndef CT_TRAINER_LAUNCH_LAUNCH_H
#define CT_TRAINER_LAUNCH_LAUNCH_H

#include "trainer/config/config.h"

/* Runs this node's part of the job until it ends. argv: the command line of this process, passed to the workers
 * unchanged. run_dir: prepared before any worker is started; NULL if the command writes no files. A stop signal after
 * the first one (a SIGTERM counts only more than a second later), or the first one without run_dir, kills all workers
 * and then ends this process by that signal. */
enum ct_status ct_launch(const struct ct_config *cfg, char **argv, const char *run_dir) CT_MUST_CHECK;

#endif
