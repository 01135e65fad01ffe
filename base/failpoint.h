/* Named places where a test can kill or stop the process:
 * `CTRAIN_FAILPOINT=NAME[:N][@RANK][=stop]` sends this process SIGKILL (or SIGSTOP) the N-th time (default 1) it
 * calls ct_failpoint("NAME"). RANK is compared with the environment variable RANK, which defaults to 0. Failpoints are
 * compiled into every build; an unset one costs one load. Names in use: startup, step, eval, ckpt.model, ckpt.optim,
 * ckpt.state, ckpt.rename, ckpt.link, ckpt.prune, pack.start, pack.sample, pack.rename. */
#ifndef CT_BASE_FAILPOINT_H
#define CT_BASE_FAILPOINT_H

/* Reads the variable in the first call of the process. An invalid value is ignored. Thread safe. */
void ct_failpoint(const char *name);
/* Sets the failpoint without the environment, for the child process of a test; passes count from now. NULL disarms it. */
void ct_failpoint_arm(const char *spec);

#endif
