/* The side of a process that ctrain's launcher has started: what it gets from the launcher, and what it reports. */
#ifndef CT_TRAINER_JOB_LAUNCHED_H
#define CT_TRAINER_JOB_LAUNCHED_H

#include <stdbool.h>

#include "base/status.h"

/* Joins the page that the launcher has created for this rank (base/process/rank_page.h). Its clock becomes the clock of
 * this process; the launcher halts it while the job is suspended. Call this before any thread is started. Does nothing
 * if another program started this process. */
enum ct_status ct_launched_join(void) CT_MUST_CHECK;
/* Stores the current error chain in this page, for the launcher, which prints it. st is the status of the failure that
 * the chain describes. Returns false if ctrain's launcher has not started this process, or if it has delivered an error
 * before. */
bool ct_launched_deliver_error(enum ct_status st);

#endif
