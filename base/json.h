/* JSON values, parsing and printing. json.c is the only file that includes jansson.h. The parser accepts at most 64
 * MiB, a nesting depth of 64 and one million values. It rejects duplicate keys and \u0000. A number is either an int64
 * or a double. Object keys keep their insertion order. */
#ifndef CT_BASE_JSON_H
#define CT_BASE_JSON_H

#include <stdint.h>

#include "base/mem.h"

typedef struct ct_json ct_json; /* a value; a child is borrowed from its parent */

/* Errors are CT_DATA; the message contains `where` (a file name or a description), the line and the column. *out is
 * owned by the caller. */
enum ct_status ct_json_parse(const char *text, size_t len, const char *where, ct_json **out) CT_MUST_CHECK;
ct_json *ct_json_object(void);
ct_json *ct_json_array(void);
void ct_json_destroy(ct_json *j);

/* The functions below that build values do not report failed allocations immediately; ct_json_dump reports them.
 * Non-finite doubles are written as null. A function that takes ownership of a value may free it immediately, so
 * complete the value before you pass it. */
void ct_json_set_str(ct_json *o, const char *key, const char *value);
void ct_json_set_i64(ct_json *o, const char *key, int64_t value);
void ct_json_set_f64(ct_json *o, const char *key, double value);
void ct_json_set_bool(ct_json *o, const char *key, bool value);
void ct_json_set(ct_json *o, const char *key, ct_json *value); /* takes value */
void ct_json_push(ct_json *array, ct_json *value);             /* takes value */
void ct_json_push_str(ct_json *array, const char *value);
void ct_json_push_i64(ct_json *array, int64_t value);
void ct_json_push_f64(ct_json *array, double value);
/* Appends the value to out, as one line without a newline, or on several lines with an indentation of two spaces if
 * pretty is true. A double is written with the fewest digits that parse to the same value, and never in the form of an
 * integer. Bytes in strings that are not valid UTF-8 are written as "\xNN". */
enum ct_status ct_json_dump(const ct_json *j, bool pretty, struct ct_str *out) CT_MUST_CHECK;

/* The functions below that read a member return CT_DATA, with the key in the message, if the key is missing or its
 * value has another type. In this case *out is unchanged. Strings are borrowed. */
enum ct_status ct_json_get_str(const ct_json *o, const char *key, const char **out) CT_MUST_CHECK;
enum ct_status ct_json_get_i64(const ct_json *o, const char *key, int64_t *out) CT_MUST_CHECK;
enum ct_status ct_json_get_f64(const ct_json *o, const char *key, double *out) CT_MUST_CHECK; /* accepts integers */
enum ct_status ct_json_get_bool(const ct_json *o, const char *key, bool *out) CT_MUST_CHECK;
const ct_json *ct_json_get(const ct_json *o, const char *key); /* NULL if absent */
bool ct_json_is_object(const ct_json *j);
bool ct_json_is_array(const ct_json *j);
size_t ct_json_len(const ct_json *j); /* members or elements; 0 for other types */
const ct_json *ct_json_at(const ct_json *array, size_t i);
/* Returns the key (borrowed) and value of the next member of an object; NULL at the end. *cursor must be NULL in the
 * first call. The object must not change during the iteration. */
const char *ct_json_next(const ct_json *o, void **cursor, const ct_json **value);
const char *ct_json_as_str(const ct_json *j);        /* NULL if it is not a string */
bool ct_json_as_i64(const ct_json *j, int64_t *out); /* false if it is not an integer */
bool ct_json_as_f64(const ct_json *j, double *out);  /* accepts integers; false if it is not a number; for tests */

#endif
