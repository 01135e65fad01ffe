/* Named places in the code where a test can kill or stop the process. `CTRAIN_FAILPOINT=NAME[:N][@RANK][=stop]` makes
 * the N-th call of ct_failpoint("NAME") (default: the first) send SIGKILL to the process, or SIGSTOP with =stop. With
 * @RANK, this happens only in the process whose environment variable RANK (else OMPI_COMM_WORLD_RANK, PMI_RANK or
 * SLURM_PROCID; default 0) has that value. Failpoints are compiled into every build; an inactive one costs a single
 * load. Names in use: join, startup, step, eval, ckpt.model, ckpt.optim, ckpt.state, ckpt.rename, ckpt.link,
 * ckpt.prune, pack.start, pack.sample, pack.rename, export.
 *
 * With checkpoint.background, the background thread that writes the checkpoint reaches the ckpt.* failpoints while
 * training continues. The N-th call belongs to the same save as without checkpoint.background, because each save waits
 * until the previous one has been stored. When step or eval is reached, the newest save may not have been stored
 * yet. */
#ifndef CT_BASE_FAILPOINT_H
#define CT_BASE_FAILPOINT_H

/* The first call in a process reads the environment variable. An invalid value is ignored. Thread safe. */
void ct_failpoint(const char *name);
/* Sets the failpoint from `spec` instead of the environment variable, for child processes of tests. Only later calls of
 * ct_failpoint are counted. If spec is NULL, no failpoint is active. */
void ct_failpoint_arm(const char *spec);

#endif
