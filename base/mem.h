/* Checked heap memory, growing strings. The only place that calls malloc and friends.
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
bool ct_ends_with(const char *text, const char *tail); /* allocates nothing */
void ct_texts_sort(char **texts, size_t n);            /* by their bytes */
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

/* Allocations made by this process so far (all of the above): for "a step allocates nothing" tests. */
uint64_t ct_mem_count(void);
/* Tests only: the n-th allocation from now fails (0: off). */
void ct_mem_fail_after(uint64_t n);

/* A growing string. Zero-initialised is empty; text is NUL-terminated (s may be NULL while empty: use ct_str_text).
 * Out of memory is sticky: ct_str_status tells at the end. */
struct ct_str {
	char *s;
	size_t len, cap;
	bool failed;
};
void ct_str_add(struct ct_str *b, const char *text);
void ct_str_add_bytes(struct ct_str *b, const void *p, size_t n);
void ct_str_addf(struct ct_str *b, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_str_addv(struct ct_str *b, const char *fmt, va_list ap) CT_PRINTF(2, 0);
/* Adds text from input with control bytes and invalid UTF-8 shown as \xNN, cut after max bytes with "...". */
void ct_str_add_escaped(struct ct_str *b, const char *p, size_t n, size_t max);
/* The step behind it, without memory: the escaped form of the first character of p (n > 0 bytes) into out,
 * NUL-terminated; returns how many bytes of p it stands for. */
size_t ct_escape_next(const char *p, size_t n, char out[5]);
/* Copies name [n] to out [len] with control bytes and invalid UTF-8 shown as \xNN; NUL-terminated, cut with "..." to fit. */
void ct_name_escape(const char *name, size_t n, char *out, size_t len);
bool ct_utf8_valid(const char *p, size_t n);
const char *ct_str_text(const struct ct_str *b);
enum ct_status ct_str_status(const struct ct_str *b) CT_MUST_CHECK;
void ct_str_clear(struct ct_str *b); /* keeps the memory */
void ct_str_release(struct ct_str *b);

/* The nearest of `words` (n of them) to `word` by edit distance, or NULL when none is near: "did you mean". */
const char *ct_suggest(const char *word, const char *const *words, size_t n);

/* Strict numbers: the whole text must be one number in range. On failure CT_USAGE without touching *out. */
enum ct_status ct_parse_i64(const char *s, int64_t *out) CT_MUST_CHECK;
enum ct_status ct_parse_f64(const char *s, double *out) CT_MUST_CHECK;

#endif
