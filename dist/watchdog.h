/* One thread per process that sends heartbeats to the store and waits for a failure record. When there is one it aborts all
 * communicators, so that every wait ends with who, where and why; if the process has not ended by itself 2 s later it
 * prints the message and ends it with the failure's exit code. */
#ifndef CT_DIST_WATCHDOG_H
#define CT_DIST_WATCHDOG_H

#include "dist/comm/comm.h"

typedef struct ct_watchdog ct_watchdog;

/* Borrows the world. In a world without a store it does nothing. */
enum ct_status ct_watchdog_start(struct ct_world *world, ct_watchdog **out) CT_MUST_CHECK;
/* Borrows a communicator, which is aborted when the run fails; heartbeats contain the position in the first one. At most
 * CT_WATCHDOG_COMMS at a time. Remove it before it is closed; one that was not added, or NULL, is ignored. */
enum { CT_WATCHDOG_COMMS = 4 };
void ct_watchdog_add_comm(ct_watchdog *w, ct_comm *c);
void ct_watchdog_remove_comm(ct_watchdog *w, const ct_comm *c);
/* What this rank is doing, for messages ("step 120", "evaluation", "saving"). Cheap; any thread. */
void ct_watchdog_phase(ct_watchdog *w, const char *fmt, ...) CT_PRINTF(2, 3);
/* Reports to the store that this rank failed with the current error chain (call before leaving in failure). */
void ct_watchdog_report(ct_watchdog *w);
void ct_watchdog_stop(ct_watchdog *w);

#endif
