/* Maps from files to classes: `val_map`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/pack/pack_impl.h"
#include "data/shards/shard_index.h"

#define MAX_TEXT ((size_t)256 << 20)
#define SEPARATORS " \t\r,"

/* An entry of a map. Its strings are parts of the text, which is split in place. */
struct entry {
	char *file; /* NULL: the map has no file names */
	char *cls;
	size_t number; /* number of the line */
};

struct map {
	const char *path;
	struct entry *v;
	size_t n, cap;
	bool in_order; /* line n belongs to file n */
};

/* Returns the next word of *rest, or NULL. */
static char *take_word(char **rest)
{
	char *word = *rest + strspn(*rest, SEPARATORS);
	size_t n = strcspn(word, SEPARATORS);

	if (n == 0)
		return NULL;
	*rest = word + n + (word[n] != '\0');
	word[n] = '\0';
	return word;
}

/* "FILE CLASS"; in LOC_val_solution.csv, object boxes follow. */
static enum ct_status add_entry(struct map *m, char *line, size_t number)
{
	char *first = take_word(&line), *second = first ? take_word(&line) : NULL;
	bool alone = first && !second;

	if (!first || (m->n == 0 && second && strcmp(first, "ImageId") == 0))
		return CT_OK;
	if (m->n > 0 && alone != m->in_order)
		return CT_FAIL(CT_DATA, "%s:%zu: expected \"FILE CLASS\" on every line, or one class per line", m->path,
			       number);
	m->in_order = alone;
	CT_TRY_GROW(m->v, m->n, m->cap);
	m->v[m->n++] = (struct entry){.file = alone ? NULL : first, .cls = alone ? first : second, .number = number};
	return CT_OK;
}

static int by_file(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return strcmp(x->file, y->file);
}

static bool are_numbers(const struct map *m)
{
	int32_t label;

	return ct_label_parse(m->v[0].cls, strlen(m->v[0].cls), &label);
}

static enum ct_status parse_map(struct map *m, char *text)
{
	char *line;

	for (size_t number = 1; (line = strsep(&text, "\n")); number++)
		CT_TRY(add_entry(m, line, number));
	if (m->n == 0)
		return CT_FAIL(CT_DATA, "%s is empty", m->path);
	if (m->in_order && are_numbers(m)) {
		CT_FAIL(CT_DATA,
			"%s has numbers without file names: ImageNet's ground truth file numbers the classes in a "
			"different order, not that of the sorted WordNet ids",
			m->path);
		return ct_error_hint(
			"use a file with lines such as \"ILSVRC2012_val_00000001.JPEG n01751748\", or LOC_val_solution.csv");
	}
	if (m->in_order)
		return CT_OK;
	qsort(m->v, m->n, sizeof(*m->v), by_file);
	for (size_t i = 1; i < m->n; i++) {
		if (by_file(&m->v[i - 1], &m->v[i]) == 0)
			return CT_FAIL(CT_DATA, "%s: lines %zu and %zu name the same file", m->path, m->v[i - 1].number,
				       m->v[i].number);
	}
	return CT_OK;
}

/* Collects all classes of the map in strcmp order. */
static enum ct_status collect_classes(const struct map *m, struct ct_class_list *out)
{
	enum ct_status st;
	char **ids;

	CT_TRY_ALLOC(ids = CT_NEW_ARRAY(char *, m->n));
	for (size_t i = 0; i < m->n; i++)
		ids[i] = m->v[i].cls;
	st = ct_class_list_collect(ids, m->n, false, m->path, out);
	ct_free(ids);
	return st;
}

/* Finds the entry of a file by its name with or without the extension. */
static const struct entry *find_entry(const struct map *m, const char *path)
{
	const char *name = ct_path_name(path), *dot = strrchr(name, '.');
	struct entry key = {.file = ct_strdup(name)}, *e;

	if (!key.file)
		return NULL;
	e = bsearch(&key, m->v, m->n, sizeof(*m->v), by_file);
	if (!e && dot) {
		key.file[dot - name] = '\0';
		e = bsearch(&key, m->v, m->n, sizeof(*m->v), by_file);
	}
	ct_free(key.file);
	return e;
}

static enum ct_status label_of(const struct map *m, const struct entry *e, bool numbers,
			       const struct ct_class_list *classes, int32_t *out)
{
	if (numbers && !ct_label_parse(e->cls, strlen(e->cls), out))
		return CT_FAIL(CT_DATA, "%s:%zu: \"%.60s\" is not a number, but other lines have numbers", m->path,
			       e->number, e->cls);
	if (numbers && classes->n > 0 && *out >= classes->n)
		return CT_FAIL(CT_DATA, "%s:%zu: label %d is out of range: there are %d classes", m->path, e->number,
			       *out, classes->n);
	if (numbers)
		return CT_OK;
	*out = ct_class_list_find(classes, e->cls);
	if (*out >= 0)
		return CT_OK;
	CT_FAIL(CT_DATA, "%s:%zu: class \"%.60s\" is not in the list of %d classes", m->path, e->number, e->cls,
		classes->n);
	return ct_error_hint(
		"the class list is the file given with --classes, or classes.txt in the directory of the shards");
}

static enum ct_status apply_map(const struct map *m, struct pack_list *list)
{
	bool numbers = are_numbers(m);

	if (m->in_order && m->n != list->n)
		return CT_FAIL(CT_DATA, "%s has %zu lines, but there are %zu images", m->path, m->n, list->n);
	if (!numbers && list->classes.n == 0)
		CT_TRY(collect_classes(m, &list->classes));
	for (size_t i = 0; i < list->n; i++) {
		const struct entry *e = m->in_order ? &m->v[i] : find_entry(m, list->v[i].path);
		char shown[200];

		if (!e) {
			ct_name_escape(list->v[i].path, strlen(list->v[i].path), shown, sizeof(shown));
			return CT_FAIL(CT_DATA, "%s does not contain %s", m->path, shown);
		}
		CT_TRY(label_of(m, e, numbers, &list->classes, &list->v[i].label));
	}
	return CT_OK;
}

enum ct_status ct__pack_map_apply(const char *path, struct pack_list *list)
{
	struct map m = {.path = path};
	char *text = NULL;
	enum ct_status st;
	size_t len;

	CT_TRY(ct_file_read(path, MAX_TEXT, &text, &len));
	st = strlen(text) == len ? parse_map(&m, text) : CT_FAIL(CT_DATA, "%s is not a text file", path);
	if (st == CT_OK)
		st = apply_map(&m, list);
	ct_free(m.v);
	ct_free(text);
	return st;
}
