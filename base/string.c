/* Strings and numbers; declared in base/mem.h. A growing string remembers that an allocation has failed and then
 * ignores additions, so that callers check once, at the end. Everything that may come from a file or a user is escaped
 * by one function, ct_escape_next, before it is shown: control characters could change the terminal, and invalid UTF-8
 * or exotic line breaks could damage a log or a YAML file. Numbers are parsed strictly, and messages quote what was
 * wrong. "Did you mean" uses the edit distance with transpositions, and accepts a prefix as well. */
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COLUMNS 80 /* of ct_str_add_wrapped */

#define SUGGEST_MAX_LEN 63

bool ct_ends_with(const char *text, const char *tail)
{
	size_t n = strlen(text), k = strlen(tail);

	return n >= k && strcmp(text + n - k, tail) == 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void ct_strings_sort(char **strings, size_t n)
{
	if (n)
		qsort(strings, n, sizeof(*strings), by_bytes);
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(struct ct_str *b, size_t n)
{
	size_t need, cap;
	char *s;

	if (b->failed)
		return false;
	if (__builtin_add_overflow(b->len, n, &need) || need >= PTRDIFF_MAX / 2) {
		b->failed = true;
		return false;
	}
	if (need + 1 <= b->cap)
		return true;
	cap = b->cap ? b->cap * 2 : 64;
	if (cap < need + 1)
		cap = need + 1;
	s = ct_realloc(b->s, cap, 1);
	if (!s) {
		b->failed = true;
		return false;
	}
	b->s = s;
	b->cap = cap;
	return true;
}

void ct_str_add_bytes(struct ct_str *b, const void *p, size_t n)
{
	if (!reserve(b, n))
		return;
	if (n > 0)
		memcpy(b->s + b->len, p, n);
	b->len += n;
	b->s[b->len] = '\0';
}

void ct_str_add(struct ct_str *b, const char *text)
{
	ct_str_add_bytes(b, text, strlen(text));
}

void ct_str_addf(struct ct_str *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(b, fmt, ap);
	va_end(ap);
}

void ct_str_addv(struct ct_str *b, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	if (n < 0)
		b->failed = true;
	else if (reserve(b, (size_t)n)) {
		vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void ct_str_add_f64(struct ct_str *b, double v)
{
	char text[40];

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	/* 1000000 instead of 1e+06. */
	if (strchr(text, 'e') && fabs(v) >= 1 && fabs(v) < 1e15 && v == floor(v))
		snprintf(text, sizeof(text), "%.0f", v);
	ct_str_add(b, text);
}

/* Length in bytes of the UTF-8 character at p, or 0 if it is not well-formed (Unicode 15, table 3-7). */
static size_t utf8_len(const unsigned char *p, size_t n)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;

	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return 0;
	}
	/* Overlong forms, surrogates, and code points above U+10FFFF. */
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
	    (p[0] == 0xF4 && p[1] > 0x8F))
		return 0;
	return len;
}

bool ct_utf8_valid(const char *p, size_t n)
{
	for (size_t i = 0, len; i < n; i += len) {
		len = utf8_len((const unsigned char *)p + i, n - i);
		if (len == 0)
			return false;
	}
	return true;
}

size_t ct_escape_next(const char *p, size_t n, char out[5])
{
	const unsigned char *u = (const unsigned char *)p;
	size_t len = utf8_len(u, n);
	bool control = len == 0 || u[0] < 0x20 || u[0] == 0x7F || (u[0] == 0xC2 && u[1] < 0xA0);
	/* U+2028 and U+2029, which YAML and some programs take for line breaks, and the characters with the property
	 * Bidi_Control (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), which can change the order in
	 * which the rest of a line is shown. */
	bool hidden = (len == 2 && u[0] == 0xD8 && u[1] == 0x9C) ||
		      (len == 3 && u[0] == 0xE2 &&
		       ((u[1] == 0x80 && (u[2] == 0x8E || u[2] == 0x8F || (u[2] >= 0xA8 && u[2] <= 0xAE))) ||
			(u[1] == 0x81 && u[2] >= 0xA6 && u[2] <= 0xA9)));

	if (control || hidden) {
		snprintf(out, 5, "\\x%02x", u[0]);
		return 1;
	}
	memcpy(out, p, len);
	out[len] = '\0';
	return len;
}

void ct_str_add_escaped(struct ct_str *b, const char *p, size_t n, size_t max)
{
	size_t i = 0;

	while (i < n) {
		char out[5];
		size_t taken = ct_escape_next(p + i, n - i, out);

		if (i + taken > max) {
			ct_str_add(b, "...");
			return;
		}
		ct_str_add(b, out);
		i += taken;
	}
}

void ct_str_add_lines(struct ct_str *b, const char *text)
{
	const size_t n = strlen(text);
	char out[5];

	for (size_t i = 0, taken; i < n; i += taken) {
		taken = text[i] == '\n' ? 1 : ct_escape_next(text + i, n - i, out);
		ct_str_add(b, text[i] == '\n' ? "\n" : out);
	}
}

/* Returns true if a spreadsheet would take the field as a formula. */
static bool is_formula(const char *text)
{
	char *end;

	if (strncmp(text, "\xEF\xBC", 2) == 0) /* the full-width forms of the characters below */
		return strchr("\x9D\x8B\x8D\xA0", text[2]) != NULL;
	if (text[0] == '\0' || !strchr("=+-@\t\r\n", text[0]))
		return false;
	(void)strtod(text, &end);
	return end == text || *end != '\0'; /* not a number */
}

void ct_str_add_csv(struct ct_str *b, const char *text)
{
	const bool formula = is_formula(text), quoted = formula || strpbrk(text, ",;\t\"\r\n");

	if (quoted)
		ct_str_add(b, formula ? "\"'" : "\"");
	for (; *text; text++) {
		if (*text == '"')
			ct_str_add(b, "\"");
		ct_str_add_bytes(b, text, 1);
	}
	if (quoted)
		ct_str_add(b, "\"");
}

const char *ct_str_text(const struct ct_str *b)
{
	return b->s ? b->s : "";
}

enum ct_status ct_str_status(const struct ct_str *b)
{
	if (b->failed)
		return CT_FAIL(CT_NOMEM, "out of memory: no room for a string of more than %zu bytes", b->len);
	return CT_OK;
}

void ct_str_clear(struct ct_str *b)
{
	b->len = 0;
	b->failed = false;
	if (b->s)
		b->s[0] = '\0';
}

void ct_str_release(struct ct_str *b)
{
	ct_free(b->s);
	*b = (struct ct_str){0};
}

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edit distance with transpositions (optimal string alignment), ignoring case. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][SUGGEST_MAX_LEN + 1];

	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *row = rows[i % 3];
		const size_t *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);

			row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (ca != cb));
			if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
			    cb == tolower((unsigned char)a[i - 2]) && up2[j - 2] + 1 < row[j])
				row[j] = up2[j - 2] + 1;
		}
	}
	return rows[na % 3][nb];
}

const char *ct_suggest(const char *word, const char *const *words, size_t n)
{
	size_t len = strlen(word), best, near;
	const char *found = NULL;

	if (len == 0 || len > SUGGEST_MAX_LEN)
		return NULL;
	/* A third of the letters may be wrong; "cos" for "cosine" is just close enough. */
	near = len < 3 ? 1 : len / 3 + (len % 3 != 0);
	best = near + 1;
	for (size_t i = 0; i < n; i++) {
		size_t other = strlen(words[i]), d;

		if (other > SUGGEST_MAX_LEN)
			continue;
		d = edit_distance(word, len, words[i], other);
		if (d > near && len >= 3 && strncasecmp(word, words[i], len) == 0)
			d = near;
		/* Two short words without a common letter are not close. */
		if (d < best && d < (len > other ? len : other)) {
			best = d;
			found = words[i];
		}
	}
	return found;
}

const char *ct_bytes_text(uint64_t bytes, char out[CT_BYTES_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(out, CT_BYTES_TEXT, "%d byte%s", (int)bytes, ct_plural((int64_t)bytes));
		return out;
	}
	/* A value that would be rounded to 1024 moves to the next unit. */
	for (v /= 1024; v >= 1023.5 && u + 1 < CT_ARRAY_LEN(units); u++)
		v /= 1024;
	snprintf(out, CT_BYTES_TEXT, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
	return out;
}

static enum ct_status bad_number(const char *s, const char *why)
{
	struct ct_str b = {0};
	enum ct_status st;

	ct_str_add_escaped(&b, s, strlen(s), 60);
	st = CT_FAIL(CT_USAGE, "\"%s\" is %s", ct_str_text(&b), why);
	ct_str_release(&b);
	return st;
}

/* Returns why s is not a number, or NULL. */
static const char *parse_i64(const char *s, int64_t *out)
{
	char *end;
	long long v;

	if (s[0] == '\0' || s[strspn(s, "+-0123456789")] != '\0')
		return "not an integer";
	errno = 0;
	v = strtoll(s, &end, 10);
	if (*end != '\0' || end == s)
		return "not an integer";
	if (errno == ERANGE)
		return "out of the range of 64-bit integers";
	*out = v;
	return NULL;
}

enum ct_status ct_parse_i64(const char *s, int64_t *out)
{
	const char *why = parse_i64(s, out);

	return why ? bad_number(s, why) : CT_OK;
}

int64_t ct_env_i64(const char *name, int64_t fallback)
{
	const char *text = getenv(name);

	if (text)
		(void)parse_i64(text, &fallback);
	return fallback;
}

bool ct_parse_range(const char *s, int64_t lo, int64_t hi, int64_t *first, int64_t *last)
{
	size_t len = strcspn(s, "-");
	char text[24];

	if (s[len] != '-' || len >= sizeof(text))
		return false;
	memcpy(text, s, len);
	text[len] = '\0';
	if (ct_parse_i64(text, first) != CT_OK || ct_parse_i64(s + len + 1, last) != CT_OK) {
		ct_error_clear();
		return false;
	}
	return lo <= *first && *first <= *last && *last <= hi;
}

enum ct_status ct_parse_f64(const char *s, double *out)
{
	char *end;
	double v;

	/* Reject what strtod accepts in addition to plain decimals: whitespace, hexadecimal, inf, nan. */
	if (s[0] == '\0' || s[strspn(s, "+-.0123456789eE")] != '\0')
		return bad_number(s, "not a number");
	v = strtod(s, &end);
	if (*end != '\0' || end == s)
		return bad_number(s, "not a number");
	if (isinf(v))
		return bad_number(s, "out of the range of 64-bit floating point");
	*out = v;
	return CT_OK;
}

void ct_name_escape(const char *name, size_t n, char *out, size_t len)
{
	size_t used = 0, mark = 0;
	char one[5];

	for (size_t i = 0; len > 0 && i < n;) {
		size_t step = ct_escape_next(name + i, n - i, one), k = strlen(one);

		if (used + k + 1 > len) {
			snprintf(out + mark, len - mark, "...");
			return;
		}
		memcpy(out + used, one, k);
		used += k;
		i += step;
		if (used + 4 <= len)
			mark = used;
	}
	if (len > 0)
		out[used] = '\0';
}

void ct_str_add_wrapped(struct ct_str *b, const char *text, size_t at, size_t indent)
{
	bool first = true;

	while (*text) {
		size_t word = strcspn(text, " ");

		if (!first && at + 1 + word > COLUMNS) {
			ct_str_addf(b, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			ct_str_add(b, " ");
			at++;
		}
		ct_str_add_bytes(b, text, word);
		at += word;
		text += word + (text[word] == ' ');
		first = false;
	}
	ct_str_add(b, "\n");
}

void ct_str_add_shell(struct ct_str *b, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-";

	if (word[0] && word[strspn(word, plain)] == '\0') {
		ct_str_add(b, word);
		return;
	}
	ct_str_add(b, "'");
	for (; *word; word++) {
		if (*word == '\'')
			ct_str_add(b, "'\\''");
		else
			ct_str_add_bytes(b, word, 1);
	}
	ct_str_add(b, "'");
}

static bool same_name(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]))
			return false;
	}
	return true;
}

bool ct_word_in(const char *words, const char *name, size_t len)
{
	for (const char *s = words; *s; s += strspn(s, " ")) {
		const size_t n = strcspn(s, " ");

		if (n == len && same_name(s, name, n))
			return true;
		s += n;
	}
	return false;
}
