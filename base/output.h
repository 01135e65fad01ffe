/* Text for standard output and standard error, which may be a terminal that was stopped (Ctrl-S), a pager, or a pipe that
 * nobody reads. At first ct_output_write waits for the reader, as write(2) does: right for a command that prints its
 * result. A program that must go on calls ct_output_never_wait: from then on, the reader gets what it takes at once, up
 * to 64 KiB are kept for later, and what comes on top is dropped and counted. When the reader is back, a line says how
 * many lines are missing. The two streams stay in order where they are the same file.
 * Thread safe. Allocates nothing. Write errors are ignored: a terminal that was closed ends no run. */
#ifndef CT_BASE_OUTPUT_H
#define CT_BASE_OUTPUT_H

#include <stdint.h>

#include "base/status.h"

/* fd: STDOUT_FILENO or STDERR_FILENO. Complete lines. */
void ct_output_write(int fd, const char *text, size_t len);
/* The same of at most 4 KiB; longer text is cut. */
void ct_output_print(int fd, const char *fmt, ...) CT_PRINTF(2, 3);
/* A text that a later one replaces, such as a status line: dropped uncounted when it can't be written at once. */
void ct_output_transient(int fd, const char *text, size_t len);

/* For the rest of the process. The descriptors themselves stay as they are: other processes share them. */
void ct_output_never_wait(void);
/* Tries again to write what is kept; true: there is still something. */
bool ct_output_pending(void);
/* Waits for the reader until the deadline (base/clock.h); what is left then is dropped. Call before the process ends. */
void ct_output_finish(int64_t deadline_ns);

#endif
