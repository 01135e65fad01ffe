/* Named places where a process can be made to die or to stop, for tests of crashes:
 * `CTRAIN_FAILPOINT=NAME[:N][@RANK][=stop]` sends this process SIGKILL (or SIGSTOP) the N-th time (1: the first) it
 * passes ct_failpoint("NAME"). RANK is compared with the variable RANK of the environment, 0 where that is not set.
 * Always compiled in: unset, a pass costs one load. Names in use: startup, step, eval, ckpt.model, ckpt.optim,
 * ckpt.state, ckpt.rename, ckpt.link, ckpt.prune, pack.start, pack.sample, pack.rename. */
#ifndef CT_BASE_FAILPOINT_H
#define CT_BASE_FAILPOINT_H

/* Reads the variable on the process's first pass. A text that is not as above arms nothing. Thread safe. */
void ct_failpoint(const char *name);
/* The same without the environment, counting from now: for a test's own child process. NULL disarms. */
void ct_failpoint_arm(const char *spec);

#endif
