/* Native backtraces of all threads of this process, for reports after a failure: when a signal such as SIGSEGV ends the
 * process, and on request. A signal handler writes them, so it makes only async-signal-safe calls: it stores addresses,
 * and the executable mappings of the process. base/process/symbols.h turns the addresses into names of functions.
 *
 * The file, one line each:
 *   reason TEXT
 *   thread TID NAME
 *   at ADDRESS            hexadecimal; the innermost function first
 *   map START-END ...     a line of /proc/self/maps */
#ifndef CT_BASE_STACKS_H
#define CT_BASE_STACKS_H

#include <stdbool.h>

/* The signal with which a thread is asked for its backtrace. No thread may block it. */
int ct_stacks_signal(void);
/* From now on, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write backtraces to this file before they end the process.
 * Leaves signals alone that already have a handler, for example of a sanitizer. The file is created only when there is
 * something to write. Call it before threads are started. */
void ct_stacks_enable(const char *path);
/* Writes the backtraces now, unless they have been written before. Threads that do not answer within 0.3 s are missing.
 * Does nothing without ct_stacks_enable. */
void ct_stacks_write(const char *reason);

#endif
