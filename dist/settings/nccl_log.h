/* The messages that NCCL prints if NCCL_DEBUG is set. By default, NCCL prints them on standard output. This makes them
 * lines of the log with the component "nccl", so that they are in the log file of the rank, with warnings also on the
 * terminal. Not used if NCCL_DEBUG_FILE is set. The line of NCCL_DEBUG=VERSION stays on standard output. */
#ifndef CT_DIST_SETTINGS_NCCL_LOG_H
#define CT_DIST_SETTINGS_NCCL_LOG_H

#include "base/status.h"

typedef struct ct_nccl_log ct_nccl_log;

/* Creates a pipe, and sets NCCL_DEBUG_FILE to its name. Call it before the process starts its first thread, because
 * another thread could be reading the environment. *out is NULL if NCCL prints nothing, or to a file that the user has
 * chosen. */
enum ct_status ct_nccl_log_open(ct_nccl_log **out) CT_MUST_CHECK;
/* Starts the thread that logs the messages. Call it before NCCL is used. NULL is allowed. */
enum ct_status ct_nccl_log_start(ct_nccl_log *l) CT_MUST_CHECK;
/* Logs what NCCL has printed so far, and unsets NCCL_DEBUG_FILE. Call it after the last communicator has been closed
 * and the threads of the process have ended. What NCCL prints later, for example when the process ends, is discarded:
 * the pipe and its thread remain. NULL is allowed. */
void ct_nccl_log_close(ct_nccl_log *l);

#endif
