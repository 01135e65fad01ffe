/* Delivers the stop signals of a worker or launcher through a file descriptor, so that neither a signal handler nor a
 * global variable is needed. */
#ifndef CT_TRAINER_JOB_SIGNALS_H
#define CT_TRAINER_JOB_SIGNALS_H

#include <stdint.h>

#include "base/status.h"

/* Blocks SIGINT, SIGTERM and SIGUSR1 in this thread and in all threads that it starts later. If `children` is true,
 * also blocks SIGCHLD, SIGHUP and SIGTSTP. Ignores SIGPIPE and SIGXFSZ, so that writes return errors, and SIGTTOU. *fd
 * is a non-blocking signalfd. Call this before any thread is started. */
enum ct_status ct_signals_open(bool children, int *fd) CT_MUST_CHECK;
/* Returns the number of the next pending signal, or 0 if there is none. */
int ct_signals_next(int fd);
/* Waits for a stop signal, and returns its number, or 0 after the deadline. Ignores SIGCHLD, and suspends this process
 * at SIGTSTP. */
int ct_signals_wait(int fd, int64_t deadline_ns);
void ct_signals_close(int fd);
/* Stops this process as SIGTSTP (Ctrl-Z) does by default, although ct_signals_open has blocked that signal. Returns
 * when the process is continued. Returns at once in an orphaned process group, where no shell could continue the
 * process. */
void ct_signals_suspend_self(void);
/* For PID 1, the first process of a container, the kernel ignores every signal whose disposition is the default. There,
 * makes SIGHUP, SIGINT, SIGQUIT and SIGTERM end the process with exit code 128 + signal. Does nothing in any other
 * process, and to signals that the parent has set to be ignored. Call this before anything else. */
void ct_signals_prepare_init_process(void);
/* Ends this process by the signal, as shells expect from an interrupted program. PID 1 ends with exit code 128 + sig.
 */
_Noreturn void ct_signals_end_self(int sig);
/* For a child between fork and exec: unblocks all signals except SIGINT, SIGTERM and SIGUSR1. A stop signal that
 * arrives before the new program calls ct_signals_open stays pending until then instead of killing the program. */
void ct_signals_reset_in_child(void);

#endif
