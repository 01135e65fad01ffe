/* Output to standard output and standard error, which may be a terminal stopped with Ctrl-S, a pager, or a pipe that no
 * one reads. By default, ct_output_write waits for the reader, as write(2) does; this is right for a command that
 * prints its result. A program that must not block calls ct_output_never_wait. From then on, up to 64 KiB of text that
 * the reader does not accept immediately is buffered, and further text is dropped. When the reader accepts text again,
 * a line reports how many lines are missing. If both streams are the same file, the order of their lines is kept.
 * Thread safe. Allocates no memory. Write errors are ignored, so that a run continues when the terminal is closed. */
#ifndef CT_BASE_OUTPUT_H
#define CT_BASE_OUTPUT_H

#include <stdint.h>

#include "base/status.h"

/* Writes complete lines to fd, which is STDOUT_FILENO or STDERR_FILENO. */
void ct_output_write(int fd, const char *text, size_t len);
/* Does the same for formatted text of at most 4 KiB; longer text is truncated. */
void ct_output_print(int fd, const char *fmt, ...) CT_PRINTF(2, 3);
/* Does the same for output that later output replaces, such as a status line. If it cannot be written immediately, it
 * is dropped and not counted as missing. */
void ct_output_transient(int fd, const char *text, size_t len);

/* From this call on, writing never waits. This cannot be undone. The flags of the descriptors do not change, because
 * other processes share them. */
void ct_output_never_wait(void);
/* Tries to write buffered text; returns true if some is left. */
bool ct_output_pending(void);
/* Writes buffered text, waits for the reader until the deadline (base/clock.h), and then drops the rest. Call it before
 * the process ends. */
void ct_output_finish(int64_t deadline_ns);

#endif
