/* Logging. A log line looks like `12:30:01.123 info 1/4 dist: text`. Lines are written to standard error, and also to a
 * log file if one is open. Levels, rank and log file are global to the process. Thread safe. Do not use the log for
 * metrics or for the result of a command. */
#ifndef CT_BASE_LOG_H
#define CT_BASE_LOG_H

#include "base/status.h"

enum ct_log_level { CT_LOG_ERROR, CT_LOG_WARN, CT_LOG_INFO, CT_LOG_DEBUG, CT_LOG_TRACE };

/* Sets the levels from a string such as "info" or "warn,dist=debug,data=trace", as in CTRAIN_LOG and log.level. If the
 * string contains an unknown word, the levels do not change and the result is CT_CONFIG with a suggestion. */
enum ct_status ct_log_configure(const char *spec) CT_MUST_CHECK;
/* After this call, every line contains "rank/world". A negative rank removes this field again. */
void ct_log_set_rank(int rank, int world);
/* Also appends all lines to the file `path` (opened with O_APPEND) until ct_log_close. While a log file is open, info
 * lines are written only to the file, unless ct_log_show_info requests something else. */
enum ct_status ct_log_open_file(const char *path) CT_MUST_CHECK;
void ct_log_close(void);
/* Determines when info lines are shown on standard error. Errors, warnings, and debug and trace lines (which must be
 * requested explicitly) are always shown. */
enum ct_log_info { CT_LOG_INFO_WITHOUT_FILE /* initially */, CT_LOG_INFO_NEVER, CT_LOG_INFO_ALWAYS };
void ct_log_show_info(enum ct_log_info when);
/* Fails with CT_IO if the log file was removed, renamed or replaced, so that lines are lost. Returns CT_OK if no file
 * is open. */
enum ct_status ct_log_check(void) CT_MUST_CHECK;
/* Makes the log call fn before each line that it writes to standard error, so that fn can remove a live status line
 * from the terminal. fn is called with the log's lock held and must not log. If fn is NULL, no function is called. */
void ct_log_set_before(void (*fn)(void *user), void *user);
/* If true, lines of the calling thread are written only to the log file. Initially false. Use it for messages that
 * another rank on the same host logs as well. */
void ct_log_off_terminal(bool off);
bool ct_log_enabled(enum ct_log_level level, const char *component);
/* Writes an error line only to the log file, regardless of the level, for a message that other code prints to the
 * terminal. */
void ct_log_record(const char *component, const char *fmt, ...) CT_PRINTF(2, 3);
/* Writes one line. Control bytes in the message are escaped. */
void ct_log_write(enum ct_log_level level, const char *component, const char *fmt, ...) CT_PRINTF(3, 4);

/* A .c file that uses these macros must `#define CT_LOG_COMPONENT "dist"` before it includes this header. */
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
