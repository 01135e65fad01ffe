/* A progress line of a command that goes through many items, on standard error where that is a terminal; nothing
 * elsewhere. Redrawn at most ten times a second; log lines make room for themselves while it is open (one at a time in a
 * process). Used by one thread at a time. */
#ifndef CT_TRAINER_REPORT_TICKER_H
#define CT_TRAINER_REPORT_TICKER_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_ticker ct_ticker;

/* what: "checking train". Borrowed. */
enum ct_status ct_ticker_create(const char *what, ct_ticker **out) CT_MUST_CHECK;
void ct_ticker_destroy(ct_ticker *t); /* takes the line off */
/* note: shown at its end, "3 bad", or NULL. */
void ct_ticker_show(ct_ticker *t, uint64_t done, uint64_t total, const char *note);

/* The line as it is after so many seconds, in fewer than `width` columns: for tests. */
void ct_ticker_line(const char *what, uint64_t done, uint64_t total, double seconds, const char *note, int width,
		    char *out, size_t size);

#endif
