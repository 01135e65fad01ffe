/* Runs another program and captures what it prints. */
#ifndef CT_BASE_PROCESS_SUBPROCESS_H
#define CT_BASE_PROCESS_SUBPROCESS_H

#include "base/mem.h"

/* Runs argv[0], which is searched for in PATH, with the arguments argv (NULL-terminated), and waits until it has ended.
 * Its standard input is empty. Its standard output is appended to *out, up to 16 MiB, even if the program fails. The
 * program runs in a process group of its own, which is killed if this process ends before the program. If the calling
 * thread blocks SIGHUP, SIGINT, SIGTERM or SIGUSR1, these signals do not end the program, either. All other signals are
 * unblocked, and SIGCHLD has its default disposition. Fails with CT_NOT_FOUND if there is no such program; with
 * CT_TIMEOUT, after killing its process group, if it has not ended at the deadline; and with CT_IO if its exit code is
 * not 0, or cannot be determined because this process ignores SIGCHLD. If the exit code is not 0, the message contains
 * the last line of its standard error. */
enum ct_status ct_subprocess_run(const char *const *argv, int64_t deadline_ns, struct ct_str *out) CT_MUST_CHECK;

#endif
