/* Checked heap memory and growing strings. Only mem.c calls malloc and related functions. On failure, functions that
 * allocate return NULL and set a CT_NOMEM error chain; use CT_TRY_ALLOC to return CT_NOMEM to the caller. */
#ifndef CT_BASE_MEM_H
#define CT_BASE_MEM_H

#include <stdarg.h>
#include <stdint.h>

#include "base/status.h"

/* Allocates n * size zeroed bytes and checks for overflow. The pointer is valid even if n * size is 0. */
void *ct_calloc(size_t n, size_t size);
void *ct_realloc(void *p, size_t n, size_t size); /* new bytes are not zeroed; p stays valid on failure */
void ct_free(void *p);
/* Allocates zeroed memory; `align` must be a power of two. Free it with ct_free_aligned. For large blocks, huge pages
 * are requested, and no page exists before it is written for the first time: several threads that write a block share
 * the time that the kernel needs to clear its pages. A benchmark that only reads a block must write it first, because
 * all pages that were never written are one page of zeros. */
void *ct_calloc_aligned(size_t align, size_t bytes);
void ct_free_aligned(void *p);
bool ct_ends_with(const char *s, const char *suffix);
void ct_strings_sort(char **strings, size_t n); /* in strcmp order */
char *ct_strdup(const char *s);
char *ct_strndup(const char *s, size_t n);
char *ct_strfmt(const char *fmt, ...) CT_PRINTF(1, 2);

#define CT_NEW(type) ((type *)ct_calloc(1, sizeof(type)))
#define CT_NEW_ARRAY(type, n) ((type *)ct_calloc((n), sizeof(type)))
#define CT_TRY_ALLOC(assignment)                                      \
	do {                                                          \
		if (!(assignment)) {                                  \
			ct_error_frame(__FILE__, __LINE__, __func__); \
			return CT_NOMEM;                              \
		}                                                     \
	} while (0)

/* Makes room for element n of the array p, which has a capacity of *cap elements of `size` bytes each. Returns p, or a
 * larger copy that replaces p; in the latter case *cap is at least doubled. On failure, returns NULL, and p stays
 * valid. New elements are not zeroed. */
void *ct_array_grow(void *p, size_t n, size_t *cap, size_t size);
/* Calls ct_array_grow and updates the variables p and cap; n and cap may have any integer type. On failure, the macro
 * returns CT_NOMEM from the calling function. */
#define CT_TRY_GROW(p, n, cap)                                                             \
	do {                                                                               \
		size_t ct_cap_ = (size_t)(cap);                                            \
		void *ct_grown_ = ct_array_grow((p), (size_t)(n), &ct_cap_, sizeof(*(p))); \
		CT_TRY_ALLOC(ct_grown_);                                                   \
		(p) = ct_grown_;                                                           \
		(cap) = ct_cap_;                                                           \
	} while (0)

/* Returns the number of allocations that this process has made with the functions above. Tests use it to check that a
 * training step allocates nothing. */
uint64_t ct_mem_count(void);
/* Returns the number of allocations that the calling thread has made. */
uint64_t ct_mem_count_of_thread(void);
/* For tests: makes the n-th allocation from now on fail; 0 disables this. */
void ct_mem_fail_after(uint64_t n);

/* A growing string. A zero-initialized struct is an empty string. The content is NUL-terminated, but s may be NULL
 * while the string is empty; use ct_str_text to read it. Once an allocation has failed, further additions do nothing;
 * check ct_str_status at the end. */
struct ct_str {
	char *s;
	size_t len, cap;
	bool failed;
};
void ct_str_add(struct ct_str *b, const char *text);
void ct_str_add_bytes(struct ct_str *b, const void *p, size_t n);
void ct_str_addf(struct ct_str *b, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_str_addv(struct ct_str *b, const char *fmt, va_list ap) CT_PRINTF(2, 0);
/* Appends v with the fewest digits that convert back to the same number. */
void ct_str_add_f64(struct ct_str *b, double v);
/* Adds the untrusted string p [n]. Control characters, Unicode's line and paragraph separators and controls of the
 * direction of writing, and invalid UTF-8 are written as \xNN. Everything beyond max bytes is replaced by "...". */
void ct_str_add_escaped(struct ct_str *b, const char *p, size_t n, size_t max);
/* Adds an untrusted string in the same way, but keeps its line breaks. */
void ct_str_add_lines(struct ct_str *b, const char *text);
/* Adds an untrusted field of a CSV file, in quotes if necessary (RFC 4180). If a spreadsheet would take it as a
 * formula, it gets the prefix ', as OWASP recommends. */
void ct_str_add_csv(struct ct_str *b, const char *text);
/* Adds text in lines of at most 80 columns, and a line break. The first line starts at column `at`, where something has
 * been written already; the other lines are indented by `indent` spaces. Longer words stay in one piece. */
void ct_str_add_wrapped(struct ct_str *b, const char *text, size_t at, size_t indent);
/* Adds a word of a shell command, in single quotes if necessary. */
void ct_str_add_shell(struct ct_str *b, const char *word);
/* Writes the escaped form of the first character of the n-byte string p to out, and terminates it with NUL. n must be
 * positive. Returns the number of bytes that this character occupies in p. Allocates nothing. */
size_t ct_escape_next(const char *p, size_t n, char out[5]);
/* Copies name [n] to out [len], escaped as by ct_escape_next. The result is NUL-terminated. If it does not fit, it is
 * truncated and ends with "...". */
void ct_name_escape(const char *name, size_t n, char *out, size_t len);
bool ct_utf8_valid(const char *p, size_t n);
const char *ct_str_text(const struct ct_str *b);
enum ct_status ct_str_status(const struct ct_str *b) CT_MUST_CHECK;
void ct_str_clear(struct ct_str *b); /* keeps the memory */
void ct_str_release(struct ct_str *b);

/* Formats a size for messages, with three significant digits: "512 bytes", "1.50 MiB", "2.25 GiB". Returns out. */
#define CT_BYTES_TEXT 24
const char *ct_bytes_text(uint64_t bytes, char out[CT_BYTES_TEXT]);

/* Whether name [len] is one of the words, which are separated by spaces. '-' and '_' are equivalent. */
bool ct_word_in(const char *words, const char *name, size_t len);

/* Returns the plural suffix for messages: "" if n is 1, else "s". */
static inline const char *ct_plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* Returns the element of words [n] that is closest to `word` by edit distance, or NULL if none is close enough. For
 * "did you mean" hints. */
const char *ct_suggest(const char *word, const char *const *words, size_t n);

/* These functions parse a number strictly: the complete string must be a single number in range. On failure, they
 * return CT_USAGE and do not change *out. */
enum ct_status ct_parse_i64(const char *s, int64_t *out) CT_MUST_CHECK;
/* Returns the value of an environment variable, or `fallback` if it is not set or is not a number. */
int64_t ct_env_i64(const char *name, int64_t fallback);
/* Parses "FIRST-LAST", for example "30000-30100". Returns false unless lo <= FIRST <= LAST <= hi and lo >= 0. */
bool ct_parse_range(const char *s, int64_t lo, int64_t hi, int64_t *first, int64_t *last);
enum ct_status ct_parse_f64(const char *s, double *out) CT_MUST_CHECK;

#endif
