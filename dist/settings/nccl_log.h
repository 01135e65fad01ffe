/* The messages that NCCL prints if NCCL_DEBUG is set. By default, NCCL prints them on standard output. This makes them
 * lines of the log with the component "nccl", so that they are in the log file of the rank, with warnings also on the
 * terminal. Not used if NCCL_DEBUG_FILE is set. The line of NCCL_DEBUG=VERSION stays on standard output. */
#ifndef CT_DIST_SETTINGS_NCCL_LOG_H
#define CT_DIST_SETTINGS_NCCL_LOG_H

#include "base/status.h"

typedef struct ct_nccl_log ct_nccl_log;

/* Sets NCCL_DEBUG_FILE. Call it once in a process, before NCCL is used. *out is NULL if NCCL prints nothing, or to a file
 * that the user has chosen. */
enum ct_status ct_nccl_log_start(ct_nccl_log **out) CT_MUST_CHECK;
/* Logs what NCCL has printed so far. Call it after the last communicator has been closed. What NCCL prints later, for
 * example when the process ends, is lost. NULL is allowed. */
void ct_nccl_log_stop(ct_nccl_log *l);

#endif
