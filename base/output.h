/* Text for standard output and standard error, which may be a terminal that was stopped (Ctrl-S), a pager, or a pipe
 * that no one reads. Initially ct_output_write waits for the reader, as write(2) does, which is right for a command
 * that prints its result. A program that must not block calls ct_output_never_wait. From then on, text that the reader
 * does not accept immediately is buffered up to 64 KiB; further text is dropped and counted. When the reader accepts
 * text again, a line reports how many lines are missing. If both streams are the same file, their order is kept. Thread
 * safe. Allocates no memory. Write errors are ignored: closing the terminal does not end a run. */
#ifndef CT_BASE_OUTPUT_H
#define CT_BASE_OUTPUT_H

#include <stdint.h>

#include "base/status.h"

/* fd: STDOUT_FILENO or STDERR_FILENO. Complete lines. */
void ct_output_write(int fd, const char *text, size_t len);
/* The same for formatted text of at most 4 KiB; longer text is cut. */
void ct_output_print(int fd, const char *fmt, ...) CT_PRINTF(2, 3);
/* For text that later text replaces, such as a status line: if it cannot be written at once, it is dropped, not
 * counted. */
void ct_output_transient(int fd, const char *text, size_t len);

/* For the rest of the process. Does not change the descriptors, because other processes share them. */
void ct_output_never_wait(void);
/* Tries again to write buffered text; returns whether some is left. */
bool ct_output_pending(void);
/* Waits for the reader until the deadline (base/clock.h), then drops the rest. Call it before the process ends. */
void ct_output_finish(int64_t deadline_ns);

#endif
