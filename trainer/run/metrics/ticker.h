/* The progress line of a command that processes many items. It is shown if standard error is a terminal, and redrawn at
 * most ten times a second. The log erases it before it prints, so a process may have only one progress line at a time.
 * Only one thread at a time may use a ticker. */
#ifndef CT_TRAINER_RUN_METRICS_TICKER_H
#define CT_TRAINER_RUN_METRICS_TICKER_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_ticker ct_ticker;

/* `what` describes the work, for example "checking train". It is borrowed. */
enum ct_status ct_ticker_create(const char *what, ct_ticker **out) CT_MUST_CHECK;
void ct_ticker_destroy(ct_ticker *t); /* erases the line */
/* `note` is shown at the end of the line, for example "3 bad"; it may be NULL. */
void ct_ticker_show(ct_ticker *t, uint64_t done, uint64_t total, const char *note);

/* Formats the line that is shown after `seconds` seconds. The result has fewer than `width` columns. For tests. */
void ct_ticker_line(const char *what, uint64_t done, uint64_t total, double seconds, const char *note, int width,
		    char *out, size_t size);

#endif
