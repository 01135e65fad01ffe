/* A name is expanded recursively: for each number of its first pair of brackets, the string after the brackets is
 * expanded with everything before it as the prefix, so the rightmost range changes fastest. Numbers keep the width of
 * the first number of their range, with leading zeros. Lists come from the environment, so depth, lengths and the
 * number of names are limited, and the limit is checked for each name, before a large range has used up the memory. */
#include "dist/rendezvous/nodelist_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_NAME 255
#define MAX_BRACKETS 8

struct list {
	const char *text; /* for messages */
	char **names;
	size_t n, cap, max;
};

static enum ct_status malformed(const char *text, const char *why)
{
	return CT_FAIL(CT_USAGE, "node list \"%.200s\": %s", text, why);
}

static enum ct_status push(struct list *l, const char *name)
{
	if (name[0] == '\0')
		return malformed(l->text, "an empty name");
	if (l->n == l->max)
		return CT_FAIL(CT_USAGE, "node list \"%.200s\" has more than %zu names", l->text, l->max);
	CT_TRY_GROW(l->names, l->n, l->cap);
	l->names[l->n] = ct_strdup(name);
	if (!l->names[l->n])
		return CT_NOMEM;
	l->n++;
	return CT_OK;
}

/* Reads the digits at *p and returns how many there are. A number above 10^9 is not a host number. */
static size_t read_number(const char **p, int64_t *out)
{
	size_t n = strspn(*p, "0123456789");

	*out = n > 0 && n < 10 ? strtoll(*p, NULL, 10) : -1;
	*p += n;
	return *out >= 0 ? n : 0;
}

static enum ct_status expand(struct list *l, const char *prefix, const char *rest, int depth);

/* Expands "1-3,7", up to the closing bracket: makes names from the prefix, each number, and the text after the
 * bracket. */
static enum ct_status expand_ranges(struct list *l, const char *prefix, const char *p, const char *after, int depth)
{
	while (*p != ']') {
		char name[MAX_NAME + 1];
		int64_t first, last;
		size_t width = read_number(&p, &first);

		last = first;
		if (width > 0 && *p == '-') {
			p++;
			if (read_number(&p, &last) == 0)
				width = 0;
		}
		if (width == 0 || last < first || (*p != ',' && *p != ']') || (*p == ',' && p[1] == ']'))
			return malformed(l->text, "a range in brackets must look like 1-3 or 7");
		p += *p == ',';
		for (int64_t i = first; i <= last; i++) {
			struct ct_str s = {0};
			bool fits;

			ct_str_addf(&s, "%s%0*" PRId64, prefix, (int)width, i);
			fits = !s.failed && s.len <= MAX_NAME;
			if (fits)
				memcpy(name, s.s, s.len + 1);
			ct_str_release(&s);
			if (!fits)
				return malformed(l->text, "a name of more than 255 bytes");
			CT_TRY(expand(l, name, after, depth + 1));
		}
	}
	return CT_OK;
}

/* Expands `rest`, one item of the list, NUL-terminated. */
static enum ct_status expand(struct list *l, const char *prefix, const char *rest, int depth)
{
	char name[MAX_NAME + 1];
	size_t plain = strcspn(rest, "[]"), n = strlen(prefix);
	const char *close;

	if (n + plain > MAX_NAME)
		return malformed(l->text, "a name of more than 255 bytes");
	memcpy(name, prefix, n);
	memcpy(name + n, rest, plain);
	name[n + plain] = '\0';
	if (rest[plain] == '\0')
		return push(l, name);
	close = strchr(rest + plain, ']');
	if (rest[plain] == ']' || !close || close == rest + plain + 1)
		return malformed(l->text, "brackets do not match");
	if (depth == MAX_BRACKETS)
		return malformed(l->text, "too many brackets in one name");
	return expand_ranges(l, name, rest + plain + 1, close + 1, depth);
}

/* The length of the first item: up to the first comma that is not in brackets. */
static size_t item_len(const char *p)
{
	int open = 0;
	size_t i = 0;

	for (; p[i] && (p[i] != ',' || open > 0); i++)
		open += (p[i] == '[') - (p[i] == ']');
	return i;
}

enum ct_status ct__nodelist_expand(const char *text, size_t max, char ***names, size_t *n)
{
	struct list l = {.text = text, .max = max};
	enum ct_status st = CT_OK;
	const char *p = text;

	do {
		size_t len = item_len(p);
		char *item = ct_strndup(p, len);

		st = item ? expand(&l, "", item, 0) : CT_NOMEM;
		ct_free(item);
		p += len;
	} while (st == CT_OK && *p++ == ',');
	if (st != CT_OK) {
		ct__nodelist_free(l.names, l.n);
		return st;
	}
	*names = l.names;
	*n = l.n;
	return CT_OK;
}

void ct__nodelist_free(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ct_free(names[i]);
	ct_free(names);
}

enum ct_status ct__countlist_at(const char *text, int i, int *out)
{
	const char *p = text;
	int64_t at = 0;

	while (*p) {
		int64_t count, times = 1;
		bool good = read_number(&p, &count) > 0;

		if (good && strncmp(p, "(x", 2) == 0) {
			p += 2;
			good = read_number(&p, &times) > 0 && times > 0 && *p == ')';
			p += good;
		}
		if (!good || (*p != '\0' && *p != ','))
			return CT_FAIL(CT_USAGE, "list of counts \"%.200s\" must look like 2(x3),1", text);
		if (i < at + times) {
			*out = (int)count;
			return CT_OK;
		}
		at += times;
		p += *p == ',';
	}
	return CT_FAIL(CT_USAGE, "list of counts \"%.200s\" has no entry %d", text, i);
}
