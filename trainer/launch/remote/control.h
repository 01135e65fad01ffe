/* The side of `ctrain launch` that runs on each host: environment variables and signals arrive on standard input. */
#ifndef CT_TRAINER_LAUNCH_REMOTE_CONTROL_H
#define CT_TRAINER_LAUNCH_REMOTE_CONTROL_H

#include "base/status.h"

/* `ctrain launch` sets this variable for the ctrain on each host, and then writes to its standard input:
 *   NAME=VALUE   environment variables, one per line, up to an empty line
 *   SIGNAL       INT, TERM or USR1, which the process then sends to itself
 *   (empty)      at least every CT_CONTROL_BEAT_NS, to show that it is still there */
#define CT_CONTROL_VARIABLE "CTRAIN_CONTROL"
#define CT_CONTROL_BEAT_NS (5 * CT_SEC)

/* If this process was started by `ctrain launch`, reads the variables and starts a thread that receives the signals.
 * When the input ends or is silent for a minute, `ctrain launch` or the connection has ended: the process then stops as
 * with SIGTERM, and a few seconds later at once. Call this before anything else. */
enum ct_status ct_control_start(void) CT_MUST_CHECK;

#endif
