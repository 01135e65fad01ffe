/* The launcher: starts one worker a rank of this node by executing ourselves again, serves the rendezvous store, passes
 * signals on, and ends with the first failing rank's message and exit code. Nothing it started survives it, whatever is
 * killed: workers get PR_SET_PDEATHSIG and their own process group, and are killed 2.5 s after the first failure. */
#ifndef CT_TRAINER_LAUNCH_LAUNCH_H
#define CT_TRAINER_LAUNCH_LAUNCH_H

#include "trainer/config/config.h"

/* Runs the job of this node to its end. argv: our own command line, given to the workers as it is. run_dir: prepared
 * before anything is started; NULL when the command leaves no files. A second SIGINT, a second SIGTERM more than a second
 * after the first, or without a run directory the first stop signal, kills all and ends this process by that signal. */
enum ct_status ct_launch(const struct ct_config *cfg, char **argv, const char *run_dir) CT_MUST_CHECK;

#endif
