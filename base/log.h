/* Log lines: `12:30:01.123 info 1/4 dist: text` on standard error, and in a file when one is set.
 * Levels, rank and file belong to the process. Thread safe. Do not log metrics or the result of a command. */
#ifndef CT_BASE_LOG_H
#define CT_BASE_LOG_H

#include "base/status.h"

enum ct_log_level { CT_LOG_ERROR, CT_LOG_WARN, CT_LOG_INFO, CT_LOG_DEBUG, CT_LOG_TRACE };

/* Sets the levels from a string such as "info" or "warn,dist=debug,data=trace" (the value of CTRAIN_LOG and log.level).
 * An unknown word is CT_CONFIG with a suggestion, and changes nothing. */
enum ct_status ct_log_configure(const char *spec) CT_MUST_CHECK;
/* Shown as rank/world in every line; rank < 0: no rank field. */
void ct_log_set_rank(int rank, int world);
/* Also appends all lines to `path` (opened with O_APPEND, closed by ct_log_close). While a file is open, info lines go
 * only to the file. The terminal shows errors and warnings, and lines of levels that were requested explicitly. */
enum ct_status ct_log_open_file(const char *path) CT_MUST_CHECK;
void ct_log_close(void);
/* CT_IO if the log file was removed, renamed or replaced: what is logged to it is lost. Without a file: CT_OK. */
enum ct_status ct_log_check(void) CT_MUST_CHECK;
/* fn (NULL: none) is called before each line on standard error so that a live status line can remove itself from the
 * terminal. It is called under the log's lock and must not log. */
void ct_log_set_before(void (*fn)(void *user), void *user);
/* Whether lines of the calling thread go to the log file only (initially false), for messages that another rank of the
 * host logs as well. */
void ct_log_off_terminal(bool off);
bool ct_log_enabled(enum ct_log_level level, const char *component);
/* Writes an error line to the log file only, at any level, for a message that is printed to the terminal elsewhere. */
void ct_log_record(const char *component, const char *fmt, ...) CT_PRINTF(2, 3);
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
