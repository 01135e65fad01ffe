/* The first line decides whether all lines begin with an index; a line that does not follow is an error, because a
 * guess for each line would hide mistakes. A WordNet id is recognized by its form and becomes the id, the rest the
 * name. Every class from 0 to the highest must be named exactly once. Ids are kept as they are, for comparison with
 * directories, and names are escaped, for display. A sorted copy of the ids serves the search; of equal ids,
 * ct_class_list_duplicate finds the first. */
#include "data/files/class_list.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/label.h"

#define MAX_CLASSES (CT_MAX_LABEL + 1)
#define MAX_FILE ((size_t)64 << 20)

struct word {
	const char *p;
	size_t n;
};

struct parser {
	const char *path;
	int line;
	bool indexed; /* each line starts with its index */
	struct ct_class_list list;
	int cap, n_named;
};

void ct_class_list_release(struct ct_class_list *c)
{
	for (int i = 0; i < c->n; i++) {
		ct_free(c->names[i]);
		ct_free(c->ids[i]);
	}
	ct_free(c->names);
	ct_free(c->ids);
	ct_free(c->sorted);
	ct_free(c->label);
	*c = (struct ct_class_list){0};
}

static struct word trim(struct word w)
{
	while (w.n && strchr(" \t\r", w.p[w.n - 1]))
		w.n--;
	while (w.n && strchr(" \t\r", w.p[0])) {
		w.p++;
		w.n--;
	}
	return w;
}

/* Removes and returns the first word. */
static struct word first_word(struct word *rest)
{
	struct word w = {rest->p, 0};

	while (w.n < rest->n && !strchr(" \t\r", w.p[w.n]))
		w.n++;
	*rest = trim((struct word){rest->p + w.n, rest->n - w.n});
	return w;
}

static bool is_number(struct word w)
{
	int32_t v;

	return ct_label_parse(w.p, w.n, &v);
}

/* A letter and eight digits: the id of a WordNet synset. */
static bool is_wnid(struct word w)
{
	if (w.n != 9 || w.p[0] != 'n')
		return false;
	for (size_t i = 1; i < w.n; i++) {
		if (w.p[i] < '0' || w.p[i] > '9')
			return false;
	}
	return true;
}

static enum ct_status reserve(struct ct_class_list *c, int *cap, int n)
{
	char **names, **ids;
	int more = *cap ? *cap : 64;

	while (more < n)
		more *= 2;
	if (more > *cap) {
		CT_TRY_ALLOC(names = ct_realloc(c->names, (size_t)more, sizeof(*names)));
		c->names = names;
		CT_TRY_ALLOC(ids = ct_realloc(c->ids, (size_t)more, sizeof(*ids)));
		c->ids = ids;
		*cap = more;
	}
	for (; c->n < n; c->n++)
		c->names[c->n] = c->ids[c->n] = NULL;
	return CT_OK;
}

static enum ct_status set_class(struct ct_class_list *c, int i, struct word id, struct word name)
{
	struct ct_str shown = {0};

	ct_str_add_escaped(&shown, name.p, name.n, 200);
	CT_TRY(ct_str_status(&shown));
	c->names[i] = shown.s ? shown.s : ct_strdup("");
	c->ids[i] = ct_strndup(id.p, id.n);
	return c->names[i] && c->ids[i] ? CT_OK : CT_NOMEM;
}

static enum ct_status take_line(struct parser *p, struct word line)
{
	int32_t i = p->list.n;
	struct word id = line, name = line, rest = line, first;

	if (p->indexed) {
		first = first_word(&rest);
		if (!ct_label_parse(first.p, first.n, &i) || rest.n == 0)
			return CT_FAIL(CT_DATA,
				       "%s:%d: expected \"INDEX NAME\" or \"INDEX WNID NAME\", as in the first line",
				       p->path, p->line);
		id = name = rest;
	}
	rest = name;
	first = first_word(&rest);
	if (is_wnid(first)) {
		id = first;
		name = rest.n ? rest : first;
	}
	if (i >= MAX_CLASSES)
		return CT_FAIL(CT_DATA, "%s:%d: more than %d classes", p->path, p->line, MAX_CLASSES);
	if (i >= p->list.n)
		CT_TRY(reserve(&p->list, &p->cap, i + 1));
	if (p->list.ids[i])
		return CT_FAIL(CT_DATA, "%s:%d: class %d is listed twice", p->path, p->line, i);
	p->n_named++;
	return set_class(&p->list, i, id, name);
}

struct by_id {
	char *id;
	int label;
};

static int compare_ids(const void *a, const void *b)
{
	const struct by_id *x = a, *y = b;
	int order = strcmp(x->id, y->id);

	return order ? order : (x->label > y->label) - (x->label < y->label);
}

static enum ct_status sort_ids(struct ct_class_list *c)
{
	struct by_id *all;

	CT_TRY_ALLOC(c->sorted = CT_NEW_ARRAY(char *, (size_t)c->n));
	CT_TRY_ALLOC(c->label = CT_NEW_ARRAY(int, (size_t)c->n));
	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct by_id, (size_t)c->n));
	for (int i = 0; i < c->n; i++)
		all[i] = (struct by_id){c->ids[i], i};
	qsort(all, (size_t)c->n, sizeof(*all), compare_ids);
	for (int i = 0; i < c->n; i++) {
		c->sorted[i] = all[i].id;
		c->label[i] = all[i].label;
	}
	ct_free(all);
	return CT_OK;
}

const char *ct_class_list_duplicate(const struct ct_class_list *c)
{
	for (int i = 1; i < c->n; i++) {
		if (strcmp(c->sorted[i - 1], c->sorted[i]) == 0)
			return c->sorted[i];
	}
	return NULL;
}

static enum ct_status parse_all(struct parser *p, const char *text, size_t n)
{
	const char *end = text + n;

	if (n && memchr(text, '\0', n))
		return CT_FAIL(CT_DATA, "%s is not a text file: it contains a NUL byte", p->path);
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text)), *stop = nl ? nl : end;
		struct word line = trim((struct word){text, (size_t)(stop - text)}), rest = line;

		p->line++;
		text = nl ? nl + 1 : end;
		if (line.n == 0 || line.p[0] == '#')
			continue;
		if (p->n_named == 0)
			p->indexed = is_number(first_word(&rest)) && rest.n > 0;
		CT_TRY(take_line(p, line));
	}
	if (p->list.n == 0)
		return CT_FAIL(CT_DATA, "%s is empty: it contains no classes", p->path);
	if (p->n_named < p->list.n)
		return CT_FAIL(CT_DATA, "%s names %d classes, but the highest index of a class is %d", p->path,
			       p->n_named, p->list.n - 1);
	return sort_ids(&p->list);
}

enum ct_status ct_class_list_parse(const char *text, size_t n, const char *path, struct ct_class_list *out)
{
	struct parser p = {.path = path};
	enum ct_status st;

	st = parse_all(&p, text, n);
	if (st < 0) {
		ct_class_list_release(&p.list);
		return st;
	}
	*out = p.list;
	return CT_OK;
}

enum ct_status ct_class_list_load(const char *path, struct ct_class_list *out)
{
	enum ct_status st;
	char *text;
	size_t n;

	CT_TRY(ct_file_read(path, MAX_FILE, &text, &n));
	st = ct_class_list_parse(text, n, path, out);
	ct_free(text);
	return st;
}

enum ct_status ct_class_list_from_ids(char *const *ids, int n, struct ct_class_list *out)
{
	struct ct_class_list c = {0};
	enum ct_status st;
	int cap = 0;

	st = reserve(&c, &cap, n);
	for (int i = 0; i < n && st == CT_OK; i++) {
		struct word w = {ids[i], strlen(ids[i])};

		st = set_class(&c, i, w, w);
	}
	if (st == CT_OK)
		st = sort_ids(&c);
	if (st < 0) {
		ct_class_list_release(&c);
		return st;
	}
	*out = c;
	return CT_OK;
}

static int by_number(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;
	const size_t n = strlen(x), m = strlen(y);

	return n != m ? (n < m ? -1 : 1) : strcmp(x, y);
}

enum ct_status ct_class_list_collect(char **ids, size_t n, bool numbers, const char *path, struct ct_class_list *out)
{
	size_t kept = 0;

	ct_strings_sort(ids, n);
	for (size_t i = 0; i < n; i++) {
		if (kept == 0 || strcmp(ids[kept - 1], ids[i]) != 0)
			ids[kept++] = ids[i];
	}
	if (kept > CT_MAX_LABEL)
		return CT_FAIL(CT_DATA, "%s names %zu classes, but the limit is %d", path, kept, CT_MAX_LABEL);
	if (numbers)
		qsort(ids, kept, sizeof(*ids), by_number);
	return ct_class_list_from_ids(ids, (int)kept, out);
}

static int compare_id(const void *key, const void *element)
{
	return strcmp(key, *(char *const *)element);
}

int ct_class_list_find(const struct ct_class_list *c, const char *id)
{
	char **at = c->n ? bsearch(id, c->sorted, (size_t)c->n, sizeof(*c->sorted), compare_id) : NULL;

	return at ? c->label[at - c->sorted] : -1;
}
