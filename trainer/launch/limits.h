/* Checks limits of the shell (ulimit) that would end a run before it is finished. */
#ifndef CT_TRAINER_LAUNCH_LIMITS_H
#define CT_TRAINER_LAUNCH_LIMITS_H

#include "base/status.h"

/* Raises the soft limit of open files to 1024 if the hard limit allows it. CT_NOMEM with a hint if n_ranks ranks on
 * this host need more than the limit: for connections, pipes, logs and data files. */
enum ct_status ct_limits_check(int n_ranks) CT_MUST_CHECK;

#endif
