/* Stop signals of a worker or launcher as a file descriptor, so that no handler and no global is needed. */
#ifndef CT_TRAINER_LAUNCH_SIGNALS_H
#define CT_TRAINER_LAUNCH_SIGNALS_H

#include "base/status.h"

/* Blocks SIGINT, SIGTERM, SIGUSR1 (and SIGCHLD, SIGHUP, SIGTSTP with children) in this and all later threads, ignores SIGPIPE
 * and SIGXFSZ (so that writes give errors), and returns a non-blocking signalfd. Call before any thread is started. */
enum ct_status ct_signals_open(bool children, int *fd) CT_MUST_CHECK;
/* Number of the next pending signal, 0 when none. */
int ct_signals_next(int fd);
void ct_signals_close(int fd);
/* Stops this process as Ctrl-Z (SIGTSTP, which ct_signals_open with children takes) does by default, and returns when it
 * is continued. At once where nobody could continue it: in an orphaned process group. */
void ct_signals_suspend_self(void);
/* In a child between fork and exec: unblocks all but SIGINT, SIGTERM and SIGUSR1. A stop that comes before the new
 * program's own ct_signals_open stays pending until then, instead of killing it. */
void ct_signals_reset_in_child(void);

#endif
