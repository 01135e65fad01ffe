/* Braces are expanded from left to right by recursion. What remains is a glob, a directory or a file. Matches of a glob
 * are sorted, because the order of shards determines the order of samples, and must be the same on all ranks. Whether
 * files exist is checked after all words are expanded, so that one error lists those that are missing; none is ever
 * skipped, since the result would be another data set. A shard that occurs twice is an error, too. The total number is
 * limited, because a range of braces can be huge. */
#include "data/shards/shard_list_impl.h"

#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"

#define MAX_SHARDS ((size_t)1 << 20)
#define MAX_DIGITS 9
#define MAX_BRACES 8
#define MISSING_SHOWN 8

struct list {
	const char *dir;
	char **paths;
	size_t n, cap;
};

/* Takes ownership of path. */
static enum ct_status list_add(struct list *l, char *path)
{
	char **more;

	if (!path)
		return CT_NOMEM;
	if (l->n == MAX_SHARDS) {
		ct_free(path);
		return CT_FAIL(CT_CONFIG, "more than %zu shards", MAX_SHARDS);
	}
	more = ct_array_grow(l->paths, l->n, &l->cap, sizeof(*more));
	if (!more) {
		ct_free(path);
		return CT_NOMEM;
	}
	l->paths = more;
	l->paths[l->n++] = path;
	return CT_OK;
}

static bool is_folder(const char *path)
{
	struct stat sb;

	return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

/* Escapes `dir` as a glob that matches only itself. */
static void add_quoted(struct ct_str *s, const char *dir)
{
	for (; *dir; dir++)
		ct_str_addf(s, strchr("*?[]\\{}", *dir) ? "\\%c" : "%c", *dir);
}

/* Adds the matches of dir/pattern and sets *found to their number. */
static enum ct_status list_glob(struct list *l, const char *dir, const char *pattern, size_t *found)
{
	enum ct_status st = CT_OK;
	struct ct_str whole = {0};
	size_t before = l->n;
	glob_t g = {0};
	int rc;

	if (pattern[0] != '/') {
		add_quoted(&whole, dir);
		ct_str_add(&whole, "/");
	}
	ct_str_add(&whole, pattern);
	CT_TRY_GOTO(ct_str_status(&whole), st, done_whole);
	rc = glob(whole.s, GLOB_NOSORT, NULL, &g);
	if (rc != 0 && rc != GLOB_NOMATCH) {
		st = CT_FAIL(rc == GLOB_NOSPACE ? CT_NOMEM : CT_IO, "cannot search for %s", whole.s);
		goto done_whole;
	}
	for (size_t i = 0; rc == 0 && i < g.gl_pathc && st == CT_OK; i++) {
		if (!is_folder(g.gl_pathv[i]))
			st = list_add(l, ct_strdup(g.gl_pathv[i]));
	}
	if (rc == 0)
		globfree(&g);
	*found = l->n - before;
	ct_strings_sort(l->paths + before, *found);
done_whole:
	ct_str_release(&whole);
	return st;
}

/* Adds a hint to the current error. */
static enum ct_status hint_names(enum ct_status st)
{
	ct_error_hint("data.train and data.val are relative to data.dir; `ctrain data pack` makes shards");
	return st;
}

/* Expands a word without braces. */
static enum ct_status add_plain(struct list *l, const char *word)
{
	enum ct_status st;
	size_t found;
	char *path;

	if (strpbrk(word, "*?[")) {
		CT_TRY(list_glob(l, l->dir, word, &found));
		return found ? CT_OK : hint_names(CT_FAIL(CT_NOT_FOUND, "no shard matches %s in %s", word, l->dir));
	}
	CT_TRY_ALLOC(path = ct_path_join(l->dir, word));
	if (!is_folder(path))
		return list_add(l, path);
	st = list_glob(l, path, "*.tar", &found);
	if (st == CT_OK && !found)
		st = hint_names(CT_FAIL(CT_NOT_FOUND, "the directory %s contains no *.tar files", path));
	ct_free(path);
	return st;
}

/* Parses "A..B" of n bytes, digits only. */
static bool parse_range(const char *p, size_t n, uint32_t *first, uint32_t *last, int *width)
{
	uint32_t v[2] = {0, 0};
	size_t digits[2] = {0, 0}, i = 0;
	bool zeros = false;

	for (int k = 0; k < 2; k++) {
		size_t start = i;

		for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) {
			if (++digits[k] > MAX_DIGITS)
				return false;
			v[k] = 10 * v[k] + (uint32_t)(p[i] - '0');
		}
		zeros |= digits[k] > 1 && p[start] == '0';
		if (digits[k] == 0)
			return false;
		if (k == 0) {
			if (n - i < 2 || p[i] != '.' || p[i + 1] != '.')
				return false;
			i += 2;
		}
	}
	*first = v[0];
	*last = v[1];
	*width = zeros ? (int)(digits[0] > digits[1] ? digits[0] : digits[1]) : 0;
	return i == n;
}

static enum ct_status add_word(struct list *l, const char *word, int depth);

/* Expands head + choice + tail, where the tail may contain further braces. */
static enum ct_status add_choice(struct list *l, const char *head, size_t n_head, const char *choice, size_t n_choice,
				 const char *tail, int depth)
{
	enum ct_status st;
	char *word;

	CT_TRY_ALLOC(word = ct_strfmt("%.*s%.*s%s", (int)n_head, head, (int)n_choice, choice, tail));
	st = add_word(l, word, depth + 1);
	ct_free(word);
	return st;
}

static enum ct_status add_range(struct list *l, const char *word, size_t n_head, const char *tail, uint32_t first,
				uint32_t last, int width, int depth)
{
	if (last < first)
		return CT_FAIL(CT_CONFIG, "in the list of shards \"%s\" the numbers decrease: {%u..%u}", word, first,
			       last);
	for (uint32_t i = first; i <= last; i++) {
		char number[16];
		int n = snprintf(number, sizeof(number), "%0*u", width, i);

		CT_TRY(add_choice(l, word, n_head, number, (size_t)n, tail, depth));
	}
	return CT_OK;
}

static enum ct_status add_word(struct list *l, const char *word, int depth)
{
	const char *open = strchr(word, '{'), *close = open ? strchr(open, '}') : strchr(word, '}');
	const char *p = open ? open + 1 : NULL;
	uint32_t first, last;
	size_t n_head;
	int width;

	if (!open && !close)
		return add_plain(l, word);
	if (!open || !close || memchr(p, '{', (size_t)(close - p)) || depth == MAX_BRACES)
		return CT_FAIL(CT_CONFIG, "the braces in the list of shards \"%s\" do not match", word);
	n_head = (size_t)(open - word);
	if (parse_range(p, (size_t)(close - p), &first, &last, &width))
		return add_range(l, word, n_head, close + 1, first, last, width, depth);
	if (!memchr(p, ',', (size_t)(close - p))) {
		CT_FAIL(CT_CONFIG, "in the list of shards \"%s\", {%.*s} is neither a range nor a list", word,
			(int)(close - p), p);
		return ct_error_hint("write {000000..000999} or {a,b,c}");
	}
	for (;;) {
		size_t n = strcspn(p, ",}");

		CT_TRY(add_choice(l, word, n_head, p, n, close + 1, depth));
		if (p[n] == '}')
			return CT_OK;
		p += n + 1;
	}
}

static enum ct_status check_scheme(const char *word)
{
	if (!strstr(word, "://") && strncmp(word, "pipe:", 5) != 0)
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "shards are read from a file system, not from %s", word);
	return ct_error_hint("copy them to this machine or mount them");
}

static enum ct_status add_text(struct list *l, const char *text)
{
	const char *p = text;
	enum ct_status st;
	char *word;

	for (;;) {
		size_t n;

		p += strspn(p, " \t\n\r");
		n = strcspn(p, " \t\n\r");
		if (n == 0)
			return l->n ? CT_OK : CT_FAIL(CT_CONFIG, "the list of shards is empty");
		CT_TRY_ALLOC(word = ct_strndup(p, n));
		st = check_scheme(word);
		if (st == CT_OK)
			st = add_word(l, word, 0);
		ct_free(word);
		CT_TRY(st);
		p += n;
	}
}

static enum ct_status add_default(struct list *l, bool train)
{
	const char *word = train ? "train" : "val";
	enum ct_status st;
	char *path, pattern[32];
	size_t found = 0;

	CT_TRY_ALLOC(path = ct_path_join(l->dir, word));
	st = is_folder(path) ? list_glob(l, path, "*.tar", &found) : CT_OK;
	ct_free(path);
	CT_TRY(st);
	snprintf(pattern, sizeof(pattern), "*%s*.tar", word);
	if (!found)
		CT_TRY(list_glob(l, l->dir, pattern, &found));
	if (found)
		return CT_OK;
	CT_FAIL(CT_NOT_FOUND, "found no shards: there is neither %s/%s/*.tar nor %s/%s%s", l->dir, word, l->dir,
		pattern, ct_file_exists(l->dir) ? "" : ", and the directory does not exist");
	return ct_error_hint(
		"list them in data.%s, for example \"imagenet-%s-{000000..000999}.tar\", relative to data.dir", word,
		word);
}

static enum ct_status check_missing(const struct list *l)
{
	struct ct_str names = {0};
	enum ct_status st;
	size_t missing = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (ct_file_exists(l->paths[i]))
			continue;
		if (missing++ < MISSING_SHOWN)
			ct_str_addf(&names, "%s%s", missing > 1 ? ", " : "", ct_path_name(l->paths[i]));
	}
	if (missing == 0)
		return CT_OK;
	if (missing > MISSING_SHOWN)
		ct_str_addf(&names, " and %zu more", missing - MISSING_SHOWN);
	st = CT_FAIL(CT_NOT_FOUND, "%zu of %zu shards are missing in %s: %s", missing, l->n, l->dir,
		     ct_str_text(&names));
	ct_error_hint(
		"download them, or list only the shards that exist; ctrain never skips missing shards by itself, because "
		"the result would be another data set");
	ct_str_release(&names);
	return st;
}

static enum ct_status check_twice(const struct list *l)
{
	enum ct_status st = CT_OK;
	char **sorted;

	CT_TRY_ALLOC(sorted = CT_NEW_ARRAY(char *, l->n));
	memcpy(sorted, l->paths, l->n * sizeof(*sorted));
	ct_strings_sort(sorted, l->n);
	for (size_t i = 1; i < l->n && st == CT_OK; i++) {
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			st = CT_FAIL(CT_CONFIG, "the list contains shard %s twice", sorted[i]);
	}
	ct_free(sorted);
	return st;
}

enum ct_status ct__shard_list(const char *dir, const char *text, bool train, char ***paths, size_t *n)
{
	struct list l = {.dir = dir && dir[0] ? dir : "."};
	enum ct_status st;

	st = text && text[0] ? add_text(&l, text) : add_default(&l, train);
	if (st == CT_OK)
		st = check_missing(&l);
	if (st == CT_OK)
		st = check_twice(&l);
	if (st < 0) {
		ct_dir_list_free(l.paths, l.n);
		return st;
	}
	*paths = l.paths;
	*n = l.n;
	return CT_OK;
}
