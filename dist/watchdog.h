/* The watchdog: a thread that sends heartbeats to the store and waits for a failure record. When the run fails, it
 * aborts all communicators, so that every wait ends with a message that says which rank failed, where and why. If the
 * process has not ended 2 s later, the watchdog prints the message and ends the process with the exit code of the
 * failure. It also writes the flight records of the communicators to a file. */
#ifndef CT_DIST_WATCHDOG_H
#define CT_DIST_WATCHDOG_H

#include "dist/comm/comm.h"

typedef struct ct_watchdog ct_watchdog;

/* Starts the watchdog, which borrows the world. Heartbeats contain the position in the page of this process
 * (base/process/rank_page.h). In a world without a store, the watchdog does nothing. */
enum ct_status ct_watchdog_start(struct ct_world *world, ct_watchdog **out) CT_MUST_CHECK;
/* Adds a communicator, which the watchdog borrows, and aborts when the run fails. There can be at most
 * CT_WATCHDOG_COMMS communicators at a time. Remove a communicator before you close it. Removing NULL or a communicator
 * that was not added does nothing. */
enum { CT_WATCHDOG_COMMS = 4 };
void ct_watchdog_add_comm(ct_watchdog *w, ct_comm *c);
void ct_watchdog_remove_comm(ct_watchdog *w, const ct_comm *c);
/* Sets the file to which the flight records of the communicators are written when the run fails, on this rank or on
 * another one. */
void ct_watchdog_flight_file(ct_watchdog *w, const char *path);
/* Sends a heartbeat now, because the phase in the page of this rank has changed: a short phase could end between two
 * heartbeats. Cheap. May be called from any thread. */
void ct_watchdog_beat(ct_watchdog *w);
/* Reports to the store that this rank has failed with the current error chain. Call it before leaving the run because
 * of a failure. */
void ct_watchdog_report(ct_watchdog *w);
void ct_watchdog_stop(ct_watchdog *w);

#endif
