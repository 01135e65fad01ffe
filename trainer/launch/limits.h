/* Limits of the shell (ulimit) that would stop a run in the middle. */
#ifndef CT_TRAINER_LAUNCH_LIMITS_H
#define CT_TRAINER_LAUNCH_LIMITS_H

#include "base/status.h"

/* Raises the soft limit of open files to 1024 where the hard limit allows it. CT_NOMEM with a hint when even then there
 * are too few for n_ranks ranks on this host: connections, pipes, logs and data files. */
enum ct_status ct_limits_check(int n_ranks) CT_MUST_CHECK;

#endif
