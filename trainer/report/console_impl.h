/* The terminal output of a run, written by rank 0: text lines and the final table on standard output, and a live status
 * line on standard error. The live line is redrawn in place and truncated to the current width of the terminal. The
 * cursor stays at its start, so that the complete line can be erased after a resize. Write errors are ignored, so
 * closing the terminal does not end the run. */
#ifndef CT_TRAINER_REPORT_CONSOLE_IMPL_H
#define CT_TRAINER_REPORT_CONSOLE_IMPL_H

#include <stdarg.h>

#include "trainer/report/metrics.h"

typedef struct ct_console ct_console;

/* mode is live, plain (one line for each line of metrics.jsonl), off, or auto: live if standard error is a terminal
 * that can move the cursor, otherwise plain. While a console exists, the log erases the live line before it prints
 * (ct_log_set_before), so a process may have only one console at a time. */
enum ct_status ct__console_create(enum ct_cfg_console mode, ct_console **out) CT_MUST_CHECK;
void ct__console_destroy(ct_console *c); /* erases the live line */
bool ct__console_is_live(const ct_console *c);
/* Redraws the live line, at most 10 times a second unless the phase has changed. */
void ct__console_progress(ct_console *c, const struct ct_progress *p);
/* Prints a line above the live line; adds the newline. */
void ct__console_say(ct_console *c, const char *fmt, ...) CT_PRINTF(2, 3);
void ct__console_sayv(ct_console *c, const char *fmt, va_list ap);
/* Erases the live line and prints the final table. */
void ct__console_summary(ct_console *c, const struct ct_run_summary *s);

/* Pure formatting functions. They write NUL-terminated ASCII of at most size-1 bytes. */

/* Formats the status line in fewer than `width` columns. If it is too long, fields are omitted in the order rate, eta,
 * percent, loss, step; if it is still too long, it is truncated. */
void ct__console_line(const struct ct_progress *p, int width, char *out, size_t size);
void ct__console_span(double seconds, char *out,
		      size_t size); /* "0.42s", "7s", "3m07s", "2h05m" or "3d04h"; "?" if not finite */
void ct__console_rate(double per_second, char *out, size_t size); /* "312" "4.52k" "1.20M" */
enum ct_status ct__console_table(const struct ct_run_summary *s, bool bold, struct ct_str *out) CT_MUST_CHECK;

#endif
