/* Status codes and the error chain.
 *
 * Every function that can fail returns `enum ct_status`: 0 for success, a negative value for failure, and CT_INPROGRESS
 * if the operation has not finished yet. The message for the user is stored in a thread-local chain. CT_FAIL starts the
 * chain, ct_error_wrap prepends context ("loading x.gz"), ct_error_hint adds advice, and each CT_TRY through which the
 * error is returned adds a file:line frame, which is shown at debug level only. The chain is printed once, only by
 * `main`. The design follows the check macros of NCCL and zstd. */
#ifndef CT_BASE_STATUS_H
#define CT_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, value, exit code of the program, meaning) */
#define CT_STATUS_LIST(X)                                                       \
	X(OK, 0, 0, "done")                                                     \
	X(INPROGRESS, 1, 70, "not finished yet")                                \
	X(DIFFERENT, 2, 1, "what was compared differs")                         \
	X(USAGE, -1, 2, "wrong command line")                                   \
	X(CONFIG, -2, 2, "wrong configuration")                                 \
	X(UNSUPPORTED, -3, 2, "not available in this build or on this machine") \
	X(MISMATCH, -4, 2, "ranks disagree")                                    \
	X(DATA, -5, 3, "unusable data")                                         \
	X(NOT_FOUND, -6, 3, "not found")                                        \
	X(DEVICE, -7, 4, "device error")                                        \
	X(NOMEM, -8, 4, "out of memory")                                        \
	X(COMM, -9, 5, "communication error")                                   \
	X(PEER_LOST, -10, 5, "lost a peer")                                     \
	X(TIMEOUT, -11, 5, "timed out")                                         \
	X(CANCELLED, -12, 5, "cancelled")                                       \
	X(NUMERIC, -13, 6, "not a finite number")                               \
	X(IO, -14, 7, "file system error")                                      \
	X(BUG, -15, 70, "bug in ctrain")                                        \
	X(INTERRUPTED, -16, 75, "stopped by a signal")                          \
	X(NO_DEVICE, -17, 4, "no such device")

enum ct_status {
#define CT_STATUS_ENUM(name, value, code, text) CT_##name = value,
	CT_STATUS_LIST(CT_STATUS_ENUM)
#undef CT_STATUS_ENUM
};

/* What a program may need to know about an error besides its status. Programs decide by the status and by these facts;
 * messages and hints are for people. The values cross the store, so new ones come at the end. */
enum ct_reason {
	CT_REASON_NONE,
	CT_REASON_PROBLEMS,    /* the message is a list of lines "file:line:column: error: ..." */
	CT_REASON_WRONG_TOKEN, /* the other side does not know the same secret */
	CT_REASON_NO_ROUTE,    /* no route leads to the address */
	CT_REASON_REJECTED,    /* the host of the address rejects the connection */
	CT_REASON_REPORTED,    /* another rank prints the same message, so this one need not */
	CT_REASON_NO_LOCKS,    /* the file system has no locks */
	CT_REASON_N
};

#define CT_MUST_CHECK __attribute__((warn_unused_result))
#define CT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* These functions return the symbol of a status ("PEER_LOST"), its meaning, and its exit code (README.md). Unknown
 * values are treated as BUG. */
const char *ct_status_name(enum ct_status st);
const char *ct_status_text(enum ct_status st);
int ct_status_exit_code(enum ct_status st);
/* Returns the first status with this exit code, or CT_BUG. */
enum ct_status ct_status_of_exit_code(int code);
/* Returns true if the value is that of a status for a failure. A value that another process has sent may be any. */
bool ct_status_is_failure(int value);

/* Starts a new chain on this thread, which replaces the existing chain if there is one. Call it through CT_FAIL. The
 * functions below add to the chain. All of them return its status, so that the last one is what a function returns:
 *
 *	CT_FAIL(CT_CONFIG, "%s and %s are set", a, b);
 *	return ct_error_hint("set only one of them");
 */
enum ct_status ct_error_set(enum ct_status st, const char *file, int line, const char *fmt, ...) CT_PRINTF(4, 5);
/* Does the same for an error of a kind that reports count. The message is "WHERE: TAG: ...", or "TAG: ..." if where is
 * NULL. The tag is a short word, such as "jpeg-truncated". Call it through CT_FAIL_TAG. */
enum ct_status ct_error_set_tagged(enum ct_status st, const char *file, int line, const char *where, const char *tag,
				   const char *fmt, ...) CT_PRINTF(6, 7);
/* Prepends a prefix to the message: "loading x.gz: <message>". */
enum ct_status ct_error_wrap(const char *fmt, ...) CT_PRINTF(1, 2);
/* Sets or appends the hint ("hint: ..." on its own line), which says what the user can do. */
enum ct_status ct_error_hint(const char *fmt, ...) CT_PRINTF(1, 2);
/* Add facts. caused_by: the failure of another rank, with this pid, has caused the error. */
enum ct_status ct_error_because(enum ct_reason reason);
enum ct_status ct_error_caused_by(int rank, int pid);
enum ct_reason ct_error_reason(void);
void ct_error_frame(const char *file, int line, const char *func);

/* Longer messages (such as dozens of problems in a config file) are truncated to this size and end with "...". */
#define CT_ERROR_MESSAGE_MAX 32768
#define CT_ERROR_TAG_MAX 32 /* with the NUL */

/* Return the message (without the hint) and the hint of the current chain, or "" if there is none. The strings are
 * valid until the next call of one of the functions above. */
const char *ct_error_message(void);
const char *ct_error_hint_text(void);
/* Return the tag of the current chain, or "" if there is none, and its position in the message, or 0. What precedes it,
 * and its ": ", states where the error is, including what ct_error_wrap has added. */
const char *ct_error_tag(void);
size_t ct_error_tag_at(void);
/* Returns all frames, one per line, or "" if there are none. */
const char *ct_error_frames(void);
enum ct_status ct_error_status(void);
void ct_error_clear(void);

/* A copy of a chain without its tag, to pass to another thread or process. It contains no pointers. Long messages and
 * hints are truncated. */
struct ct_error {
	enum ct_status status;
	enum ct_reason reason;
	int cause_rank, cause_pid; /* of the rank that has caused the error; cause_pid is 0: unknown */
	char message[1024];
	char hint[512];
};
void ct_error_save(struct ct_error *out);
/* Makes `e` this thread's chain and returns e->status. */
enum ct_status ct_error_restore(const struct ct_error *e);

#define CT_FAIL(st, ...) ct_error_set((st), __FILE__, __LINE__, __VA_ARGS__)
#define CT_FAIL_TAG(st, where, tag, ...) ct_error_set_tagged((st), __FILE__, __LINE__, (where), (tag), __VA_ARGS__)

/* Returns from the calling function if `expr` failed. CT_INPROGRESS is not a failure. */
#define CT_TRY(expr)                                                  \
	do {                                                          \
		enum ct_status ct_try_st_ = (expr);                   \
		if (ct_try_st_ < 0) {                                 \
			ct_error_frame(__FILE__, __LINE__, __func__); \
			return ct_try_st_;                            \
		}                                                     \
	} while (0)

/* Stores the status in `st`, and jumps to `label` if `expr` failed. */
#define CT_TRY_GOTO(expr, st, label)                                  \
	do {                                                          \
		(st) = (expr);                                        \
		if ((st) < 0) {                                       \
			ct_error_frame(__FILE__, __LINE__, __func__); \
			goto label;                                   \
		}                                                     \
	} while (0)

/* For bugs in ctrain itself: prints file:line and aborts, in every build. No input may trigger it. */
#define CT_ASSERT(cond) ((cond) ? (void)0 : ct_assert_failed(#cond, __FILE__, __LINE__))
__attribute__((noreturn)) void ct_assert_failed(const char *what, const char *file, int line);

#define CT_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
