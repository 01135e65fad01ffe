/* Checks resource limits (ulimit) that would make a run fail. */
#ifndef CT_TRAINER_JOB_LIMITS_H
#define CT_TRAINER_JOB_LIMITS_H

#include "base/status.h"

/* Raises the soft limit on open files to 1024 if the hard limit allows it. Fails with CT_NOMEM and a hint if n_ranks
 * ranks on this host need more open files (connections, pipes, logs and data files) than the limit allows. */
enum ct_status ct_limits_check(int n_ranks) CT_MUST_CHECK;
/* Returns the number of open files that n_ranks ranks on this host need. */
int ct_limits_open_files(int n_ranks);

#endif
