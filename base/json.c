/* A ct_json is a jansson json_t; `struct ct_json` is never defined. Depth and number of values are limited by a scan
 * before jansson parses the text. The scan only has to recognize strings, since jansson rejects everything that is
 * invalid.
 *
 * If a builder runs out of memory, ct_json_dump must report it, but there may be no memory to record the failure.
 * Therefore the builder marks the container by taking a second reference to it. All other values have one owner and a
 * reference count of one. A parent takes over the mark of a value, so only the root needs to be looked at. Values are
 * printed here and not by jansson, because of the form of numbers and of strings that are not valid UTF-8. */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)64 << 20)
#define MAX_DEPTH 64
#define MAX_VALUES 1000000

static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;
static _Thread_local bool hook_failed; /* jansson does not always report that it ran out of memory */

static void *hook_malloc(size_t n)
{
	void *p = ct_realloc(NULL, n, 1);

	hook_failed |= !p;
	return p;
}

/* libctrain_infer (infer/CMakeLists.txt) defines this as 1: jansson belongs to the whole process, so a library must not
 * change its functions. */
#ifndef CT_IN_LIBRARY
#define CT_IN_LIBRARY 0
#endif

static void set_hooks(void)
{
	if (!CT_IN_LIBRARY)
		json_set_alloc_funcs(hook_malloc, ct_free);
}

static json_t *raw(const ct_json *j)
{
	return (json_t *)(uintptr_t)j;
}

static ct_json *wrapped(json_t *j)
{
	return (ct_json *)(void *)j;
}

/* Limits that jansson does not check: depth and number of values. */
static enum ct_status check_limits(const char *text, size_t len, const char *where)
{
	size_t depth = 0, n_values = 0, line = 1, line_start = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '\n') {
			line++;
			line_start = i + 1;
		}
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"')
			in_string = true;
		else if ((c == ']' || c == '}') && depth > 0)
			depth--;
		else if (c == '[' || c == '{')
			depth++;
		if (depth > MAX_DEPTH)
			return CT_FAIL(CT_DATA, "%s:%zu:%zu: nested deeper than %d", where, line, i - line_start + 1,
				       MAX_DEPTH);
		if ((c == ',' || c == '[' || c == '{') && ++n_values > MAX_VALUES)
			return CT_FAIL(CT_DATA, "%s:%zu:%zu: more than %d values", where, line, i - line_start + 1,
				       MAX_VALUES);
	}
	return CT_OK;
}

enum ct_status ct_json_parse(const char *text, size_t len, const char *where, ct_json **out)
{
	struct ct_str why = {0};
	json_error_t e;
	json_t *j;

	pthread_once(&hooks_once, set_hooks);
	if (len > MAX_BYTES)
		return CT_FAIL(CT_DATA, "%s: JSON of %zu bytes is over the limit of %zu bytes", where, len, MAX_BYTES);
	CT_TRY(check_limits(text, len, where));
	hook_failed = false;
	j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!j && hook_failed)
		return ct_error_wrap("reading %s", where);
	if (!j) {
		/* jansson quotes the input in its message. */
		ct_str_add_escaped(&why, e.text, strlen(e.text), JSON_ERROR_TEXT_LENGTH);
		CT_FAIL(CT_DATA, "%s:%d:%d: not valid JSON: %s", where, e.line, e.column, ct_str_text(&why));
		ct_str_release(&why);
		return CT_DATA;
	}
	*out = wrapped(j);
	return CT_OK;
}

ct_json *ct_json_object(void)
{
	pthread_once(&hooks_once, set_hooks);
	return wrapped(json_object());
}

ct_json *ct_json_array(void)
{
	pthread_once(&hooks_once, set_hooks);
	return wrapped(json_array());
}

/* jansson has one shared instance each of true, false and null, without a reference count. */
static bool is_failed(const json_t *j)
{
	return (json_is_object(j) || json_is_array(j)) && j->refcount > 1;
}

static void mark_failed(json_t *j)
{
	if (j && !is_failed(j))
		json_incref(j);
}

void ct_json_destroy(ct_json *j)
{
	if (!j)
		return;
	if (is_failed(raw(j)))
		json_decref(raw(j));
	json_decref(raw(j));
}

/* A parent that takes a failed value takes over its mark, so that only roots are marked. */
static void take_mark(json_t *parent, json_t *value)
{
	if (value && is_failed(value)) {
		json_decref(value);
		mark_failed(parent);
	}
}

static void set_raw(json_t *o, const char *key, json_t *value)
{
	CT_ASSERT(!o || json_is_object(o));
	take_mark(o, value);
	if (json_object_set_new_nocheck(o, key, value) != 0)
		mark_failed(o);
}

static void push_raw(json_t *array, json_t *value)
{
	CT_ASSERT(!array || json_is_array(array));
	take_mark(array, value);
	if (json_array_append_new(array, value) != 0)
		mark_failed(array);
}

/* Returns NULL if out of memory. Does not check UTF-8: ct_json_dump checks both values and keys. */
static json_t *make_string(const char *value)
{
	return value ? json_string_nocheck(value) : json_null();
}

void ct_json_set_str(ct_json *o, const char *key, const char *value)
{
	set_raw(raw(o), key, make_string(value));
}

void ct_json_set_i64(ct_json *o, const char *key, int64_t value)
{
	set_raw(raw(o), key, json_integer(value));
}

void ct_json_set_f64(ct_json *o, const char *key, double value)
{
	set_raw(raw(o), key, isfinite(value) ? json_real(value) : json_null());
}

void ct_json_set_bool(ct_json *o, const char *key, bool value)
{
	set_raw(raw(o), key, json_boolean(value));
}

void ct_json_set(ct_json *o, const char *key, ct_json *value)
{
	set_raw(raw(o), key, raw(value));
}

void ct_json_push(ct_json *array, ct_json *value)
{
	push_raw(raw(array), raw(value));
}

void ct_json_push_str(ct_json *array, const char *value)
{
	push_raw(raw(array), make_string(value));
}

void ct_json_push_i64(ct_json *array, int64_t value)
{
	push_raw(raw(array), json_integer(value));
}

void ct_json_push_f64(ct_json *array, double value)
{
	push_raw(raw(array), isfinite(value) ? json_real(value) : json_null());
}

static void dump_valid_string(const char *s, size_t n, struct ct_str *out)
{
	static const char plain[] = "\b\t\n\f\r\"\\", letter[] = "btnfr\"\\";
	size_t start = 0;

	ct_str_add(out, "\"");
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		const char *p;

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		ct_str_add_bytes(out, s + start, i - start);
		start = i + 1;
		p = c ? strchr(plain, c) : NULL;
		if (p)
			ct_str_addf(out, "\\%c", letter[p - plain]);
		else
			ct_str_addf(out, "\\u%04x", c);
	}
	ct_str_add_bytes(out, s + start, n - start);
	ct_str_add(out, "\"");
}

static void dump_string(const char *s, size_t n, struct ct_str *out)
{
	struct ct_str b = {0};

	if (ct_utf8_valid(s, n)) {
		dump_valid_string(s, n, out);
		return;
	}
	ct_str_add_escaped(&b, s, n, SIZE_MAX);
	out->failed |= b.failed;
	dump_valid_string(ct_str_text(&b), b.len, out);
	ct_str_release(&b);
}

static void dump_real(double v, struct ct_str *out)
{
	char buf[40];

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(buf, sizeof(buf), "%.*g", digits, v);
		if (strtod(buf, NULL) == v)
			break;
	}
	ct_str_add(out, buf);
	if (!strpbrk(buf, ".e"))
		ct_str_add(out, ".0");
}

static void newline(bool pretty, int depth, struct ct_str *out)
{
	if (pretty)
		ct_str_addf(out, "\n%*s", 2 * depth, "");
}

static void dump_value(json_t *j, bool pretty, int depth, struct ct_str *out)
{
	const char *comma = "", *key;
	json_t *value;
	size_t i;

	CT_ASSERT(depth <= MAX_DEPTH);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		ct_str_add(out, "{");
		json_object_foreach(j, key, value) {
			ct_str_add(out, comma);
			newline(pretty, depth + 1, out);
			dump_string(key, strlen(key), out);
			ct_str_add(out, pretty ? ": " : ":");
			dump_value(value, pretty, depth + 1, out);
			comma = ",";
		}
		if (*comma)
			newline(pretty, depth, out);
		ct_str_add(out, "}");
		break;
	case JSON_ARRAY:
		ct_str_add(out, "[");
		json_array_foreach(j, i, value) {
			ct_str_add(out, comma);
			newline(pretty, depth + 1, out);
			dump_value(value, pretty, depth + 1, out);
			comma = ",";
		}
		if (*comma)
			newline(pretty, depth, out);
		ct_str_add(out, "]");
		break;
	case JSON_STRING:
		dump_string(json_string_value(j), json_string_length(j), out);
		break;
	case JSON_INTEGER:
		ct_str_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
		break;
	case JSON_REAL:
		dump_real(json_real_value(j), out);
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		ct_str_add(out, json_is_true(j) ? "true" : "false");
		break;
	case JSON_NULL:
		ct_str_add(out, "null");
		break;
	}
}

enum ct_status ct_json_dump(const ct_json *j, bool pretty, struct ct_str *out)
{
	if (!j || is_failed(raw(j)))
		return CT_FAIL(CT_NOMEM, "out of memory while building JSON");
	dump_value(raw(j), pretty, 0, out);
	CT_TRY(ct_str_status(out));
	return CT_OK;
}

static const char *type_name(const json_t *j)
{
	static const char *const names[] = {
		[JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
		[JSON_INTEGER] = "an integer", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
		[JSON_FALSE] = "false",        [JSON_NULL] = "null",
	};

	return names[json_typeof(j)];
}

static enum ct_status fail_type(const json_t *v, const char *key, const char *wanted)
{
	if (!v)
		return CT_FAIL(CT_DATA, "key \"%s\" is missing", key);
	return CT_FAIL(CT_DATA, "key \"%s\" is %s, not %s", key, type_name(v), wanted);
}

enum ct_status ct_json_get_str(const ct_json *o, const char *key, const char **out)
{
	const json_t *v = json_object_get(raw(o), key);

	if (!json_is_string(v))
		return fail_type(v, key, "a string");
	*out = json_string_value(v);
	return CT_OK;
}

enum ct_status ct_json_get_i64(const ct_json *o, const char *key, int64_t *out)
{
	const json_t *v = json_object_get(raw(o), key);

	if (!json_is_integer(v))
		return fail_type(v, key, "an integer");
	*out = json_integer_value(v);
	return CT_OK;
}

enum ct_status ct_json_get_f64(const ct_json *o, const char *key, double *out)
{
	const json_t *v = json_object_get(raw(o), key);

	if (!json_is_number(v))
		return fail_type(v, key, "a number");
	*out = json_number_value(v);
	return CT_OK;
}

enum ct_status ct_json_get_bool(const ct_json *o, const char *key, bool *out)
{
	const json_t *v = json_object_get(raw(o), key);

	if (!json_is_boolean(v))
		return fail_type(v, key, "true or false");
	*out = json_is_true(v);
	return CT_OK;
}

const ct_json *ct_json_get(const ct_json *o, const char *key)
{
	return wrapped(json_object_get(raw(o), key));
}

bool ct_json_is_object(const ct_json *j)
{
	return json_is_object(raw(j));
}

bool ct_json_is_array(const ct_json *j)
{
	return json_is_array(raw(j));
}

size_t ct_json_len(const ct_json *j)
{
	return json_is_array(raw(j)) ? json_array_size(raw(j)) : json_object_size(raw(j));
}

const ct_json *ct_json_at(const ct_json *array, size_t i)
{
	return wrapped(json_array_get(raw(array), i));
}

const char *ct_json_next(const ct_json *o, void **cursor, const ct_json **value)
{
	*cursor = *cursor ? json_object_iter_next(raw(o), *cursor) : json_object_iter(raw(o));
	if (!*cursor)
		return NULL;
	*value = wrapped(json_object_iter_value(*cursor));
	return json_object_iter_key(*cursor);
}

const char *ct_json_as_str(const ct_json *j)
{
	return json_string_value(raw(j));
}

bool ct_json_as_i64(const ct_json *j, int64_t *out)
{
	if (!json_is_integer(raw(j)))
		return false;
	*out = json_integer_value(raw(j));
	return true;
}

bool ct_json_as_f64(const ct_json *j, double *out)
{
	if (!json_is_number(raw(j)))
		return false;
	*out = json_number_value(raw(j));
	return true;
}
