/* Checked heap memory and growing strings. The only place that calls malloc and related functions.
 * On failure the functions return NULL and leave a CT_NOMEM chain; use CT_TRY_ALLOC. */
#ifndef CT_BASE_MEM_H
#define CT_BASE_MEM_H

#include <stdarg.h>
#include <stdint.h>

#include "base/status.h"

/* n*size bytes, zeroed, overflow-checked. n*size == 0 gives a valid pointer. */
void *ct_calloc(size_t n, size_t size);
void *ct_realloc(void *p, size_t n, size_t size); /* new bytes are not zeroed; p stays valid on failure */
void ct_free(void *p);
/* Zeroed, `align` a power of two. Freed with ct_free_aligned. Large blocks ask for huge pages. */
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

/* Room for element number n of an array at p with room for *cap elements of `size` bytes: returns p, or the larger copy that
 * replaces it (*cap is at least doubled). On failure NULL, and p stays valid. New elements are not zeroed. */
void *ct_array_grow(void *p, size_t n, size_t *cap, size_t size);
/* The same for variables: p, and the counts n and cap of any integer type. Returns CT_NOMEM from the calling function. */
#define CT_TRY_GROW(p, n, cap)                                                             \
	do {                                                                               \
		size_t ct_cap_ = (size_t)(cap);                                            \
		void *ct_grown_ = ct_array_grow((p), (size_t)(n), &ct_cap_, sizeof(*(p))); \
		CT_TRY_ALLOC(ct_grown_);                                                   \
		(p) = ct_grown_;                                                           \
		(cap) = ct_cap_;                                                           \
	} while (0)

/* Number of allocations by this process so far, with all functions above. Tests check that a step allocates nothing. */
uint64_t ct_mem_count(void);
/* The same of the calling thread alone. */
uint64_t ct_mem_count_of_thread(void);
/* For tests: makes the n-th allocation from now fail (0: none). */
void ct_mem_fail_after(uint64_t n);

/* A growing string. A zero-initialized one is empty. The content is NUL-terminated; s may be NULL while it is empty, so use
 * ct_str_text. A failure to allocate is sticky: check ct_str_status at the end. */
struct ct_str {
	char *s;
	size_t len, cap;
	bool failed;
};
void ct_str_add(struct ct_str *b, const char *text);
void ct_str_add_bytes(struct ct_str *b, const void *p, size_t n);
void ct_str_addf(struct ct_str *b, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_str_addv(struct ct_str *b, const char *fmt, va_list ap) CT_PRINTF(2, 0);
/* Adds untrusted text. Control bytes and invalid UTF-8 become \xNN. Text after max bytes is replaced by "...". */
void ct_str_add_escaped(struct ct_str *b, const char *p, size_t n, size_t max);
/* Writes the escaped form of the first character of p (n > 0 bytes) to out, NUL-terminated. Returns how many bytes of p it
 * covers. Allocates nothing. */
size_t ct_escape_next(const char *p, size_t n, char out[5]);
/* Copies name [n] to out [len], escaped in the same way. The result is NUL-terminated and shortened with "..." to fit. */
void ct_name_escape(const char *name, size_t n, char *out, size_t len);
bool ct_utf8_valid(const char *p, size_t n);
const char *ct_str_text(const struct ct_str *b);
enum ct_status ct_str_status(const struct ct_str *b) CT_MUST_CHECK;
void ct_str_clear(struct ct_str *b); /* keeps the memory */
void ct_str_release(struct ct_str *b);

/* "512 bytes", "1.50 MiB", "2.25 GiB": a number for people, with three significant digits; returns out. */
#define CT_BYTES_TEXT 24
const char *ct_bytes_text(uint64_t bytes, char out[CT_BYTES_TEXT]);

/* The element of words [n] nearest to `word` by edit distance, or NULL if none is near. For "did you mean". */
const char *ct_suggest(const char *word, const char *const *words, size_t n);

/* Parse a number strictly: the complete string must be one number in range. On failure return CT_USAGE; *out stays unchanged. */
enum ct_status ct_parse_i64(const char *s, int64_t *out) CT_MUST_CHECK;
enum ct_status ct_parse_f64(const char *s, double *out) CT_MUST_CHECK;

#endif
