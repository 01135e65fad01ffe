/* The side of a process that ctrain's launcher has started: what it gets from the launcher, and what it reports. */
#ifndef CT_TRAINER_JOB_LAUNCHED_H
#define CT_TRAINER_JOB_LAUNCHED_H

#include <stdbool.h>

#include "base/status.h"

/* Makes this process use the clock of the launcher. The launcher halts this clock while the job is suspended
 * (base/clock.h). Call this before any thread is started. Does nothing if another launcher started this process. */
enum ct_status ct_launched_join_clock(void) CT_MUST_CHECK;
/* Writes the current error chain to the launcher's pipe. st is the status of the failure that the chain describes.
 * Returns false if there is no pipe. */
bool ct_launched_deliver_error(enum ct_status st);

#endif
