/* Log lines: `12:30:01.123 info 1/4 dist: text` on standard error, and in a file when one is set.
 * Levels, rank and file are state of the process. Thread safe. Logs are not metrics and not a command's result. */
#ifndef CT_BASE_LOG_H
#define CT_BASE_LOG_H

#include "base/status.h"

enum ct_log_level { CT_LOG_ERROR, CT_LOG_WARN, CT_LOG_INFO, CT_LOG_DEBUG, CT_LOG_TRACE };

/* Levels from a text such as "info" or "warn,dist=debug,data=trace" (the value of CTRAIN_LOG and log.level).
 * Unknown words: CT_CONFIG with a suggestion, nothing changed. */
enum ct_status ct_log_configure(const char *spec) CT_MUST_CHECK;
/* Shown as rank/world in every line; rank < 0: no rank field. */
void ct_log_set_rank(int rank, int world);
/* Also append all lines to `path` (opened O_APPEND; closed by ct_log_close). While a file is open, info lines go only
 * there: the terminal keeps what asks for attention, and what was asked for by a higher level. */
enum ct_status ct_log_open_file(const char *path) CT_MUST_CHECK;
void ct_log_close(void);
/* CT_IO when the log file was removed, renamed or replaced since: what is logged to it is lost. Without a file: CT_OK. */
enum ct_status ct_log_check(void) CT_MUST_CHECK;
/* fn (NULL: none) is called before each line that goes to standard error, under the log's lock, so it must not log: a
 * live status line takes itself off the terminal there. */
void ct_log_set_before(void (*fn)(void *user), void *user);
bool ct_log_enabled(enum ct_log_level level, const char *component);
/* One line; control bytes in the text are escaped. */
void ct_log_write(enum ct_log_level level, const char *component, const char *fmt, ...) CT_PRINTF(3, 4);

/* A .c file says `#define CT_LOG_COMPONENT "dist"` before including this header. */
#define CT_LOG(level, ...)                                                    \
	do {                                                                  \
		if (ct_log_enabled((level), CT_LOG_COMPONENT))                \
			ct_log_write((level), CT_LOG_COMPONENT, __VA_ARGS__); \
	} while (0)
#define CT_ERROR(...) CT_LOG(CT_LOG_ERROR, __VA_ARGS__)
#define CT_WARN(...) CT_LOG(CT_LOG_WARN, __VA_ARGS__)
#define CT_INFO(...) CT_LOG(CT_LOG_INFO, __VA_ARGS__)
#define CT_DEBUG(...) CT_LOG(CT_LOG_DEBUG, __VA_ARGS__)
#define CT_TRACE(...) CT_LOG(CT_LOG_TRACE, __VA_ARGS__)

#endif
