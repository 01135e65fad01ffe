/* Class lists and maps from file to class. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/pack_impl.h"

#define MAX_TEXT ((size_t)256 << 20)
#define MAX_CLASSES 1000000

enum ct_status pack_names_add(struct pack_names *names, const char *text, size_t len)
{
	if (names->n == names->cap) {
		size_t cap = names->cap ? names->cap * 2 : 64;
		char **v;

		CT_TRY_ALLOC(v = ct_realloc(names->v, cap, sizeof(*v)));
		names->v = v;
		names->cap = cap;
	}
	CT_TRY_ALLOC(names->v[names->n] = ct_strndup(text, len));
	names->n++;
	return CT_OK;
}

void pack_names_release(struct pack_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		ct_free(names->v[i]);
	ct_free(names->v);
	*names = (struct pack_names){0};
}

int pack_names_find(const struct pack_names *names, const char *text, size_t len)
{
	for (size_t i = 0; i < names->n; i++) {
		if (strncmp(names->v[i], text, len) == 0 && names->v[i][len] == '\0')
			return (int)i;
	}
	return -1;
}

/* Lines of a text, without their ends and blanks around; empty ones are left out. */
struct lines {
	const char *next, *line;
	size_t len, number;
};

static bool next_line(struct lines *l)
{
	while (*l->next) {
		size_t n = strcspn(l->next, "\n");

		l->line = l->next + strspn(l->next, " \t\r");
		l->len = l->line < l->next + n ? (size_t)(l->next + n - l->line) : 0;
		while (l->len > 0 && strchr(" \t\r", l->line[l->len - 1]))
			l->len--;
		l->next += n + (l->next[n] == '\n');
		l->number++;
		if (l->len > 0)
			return true;
	}
	return false;
}

static enum ct_status read_text(const char *path, char **text)
{
	size_t len;

	CT_TRY(ct_file_read(path, MAX_TEXT, text, &len));
	if (strlen(*text) == len)
		return CT_OK;
	ct_free(*text);
	*text = NULL;
	return CT_FAIL(CT_DATA, "%s is not a text file", path);
}

static bool is_number(const char *p, size_t len)
{
	return len > 0 && len < 10 && strspn(p, "0123456789") >= len;
}

static size_t word(const char *p, size_t len)
{
	size_t n = 0;

	while (n < len && p[n] != ' ' && p[n] != '\t')
		n++;
	return n;
}

/* "index name ...": the number must be the line's, and the name is the word behind it when others follow ("0 n01440764
 * tench"). */
static enum ct_status class_name(const char *path, const struct lines *l, size_t index, const char **name, size_t *len)
{
	size_t first = word(l->line, l->len), skip = first;

	*name = l->line;
	*len = l->len;
	if (first == l->len || !is_number(l->line, first))
		return CT_OK;
	if (strtoul(l->line, NULL, 10) != index)
		return CT_FAIL(CT_DATA, "%s:%zu: class number %.*s where %zu is expected", path, l->number, (int)first,
			       l->line, index);
	while (skip < l->len && (l->line[skip] == ' ' || l->line[skip] == '\t'))
		skip++;
	*name = l->line + skip;
	*len = l->len - skip;
	/* WordNet ids are names of folders, what follows is for people. */
	first = word(*name, *len);
	if (first == 9 && (*name)[0] == 'n' && is_number(*name + 1, 8))
		*len = first;
	return CT_OK;
}

static enum ct_status parse_classes(const char *path, const char *text, struct pack_names *out)
{
	struct lines l = {.next = text};
	const char *name;
	size_t len;

	while (next_line(&l)) {
		CT_TRY(class_name(path, &l, out->n, &name, &len));
		if (out->n >= MAX_CLASSES)
			return CT_FAIL(CT_DATA, "%s has more than %d lines", path, MAX_CLASSES);
		CT_TRY(pack_names_add(out, name, len));
	}
	return out->n > 0 ? CT_OK : CT_FAIL(CT_DATA, "%s names no class", path);
}

enum ct_status pack_classes_read(const char *path, struct pack_names *out, char **text)
{
	enum ct_status st;

	CT_TRY(read_text(path, text));
	st = parse_classes(path, *text, out);
	if (st < 0) {
		pack_names_release(out);
		ct_free(*text);
		*text = NULL;
	}
	return st;
}

/* What a map says of one file. */
struct entry {
	const char *file, *cls; /* into the text */
	size_t file_len, cls_len, number;
};

struct map {
	const char *path;
	struct entry *v;
	size_t n, cap;
	bool in_order; /* no file names: the n-th line is the n-th file */
};

static size_t separator(const char *p, size_t len)
{
	size_t n = 0;

	while (n < len && !strchr(" \t,", p[n]))
		n++;
	return n;
}

static enum ct_status add_entry(struct map *m, const struct lines *l)
{
	size_t n = separator(l->line, l->len), skip = n;
	struct entry *e;

	if (m->n == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 1024;

		CT_TRY_ALLOC(e = ct_realloc(m->v, cap, sizeof(*e)));
		m->v = e;
		m->cap = cap;
	}
	while (skip < l->len && strchr(" \t,", l->line[skip]))
		skip++;
	e = &m->v[m->n++];
	*e = (struct entry){.file = l->line, .file_len = n, .cls = l->line + skip, .number = l->number};
	/* LOC_val_solution.csv goes on with the boxes of objects. */
	e->cls_len = separator(e->cls, l->len - skip);
	if (e->cls_len == 0) {
		*e = (struct entry){.cls = l->line, .cls_len = n, .number = l->number};
		m->in_order = true;
	}
	if (m->in_order && e->file_len > 0)
		return CT_FAIL(CT_DATA, "%s:%zu: expected \"FILE CLASS\" on every line, or one class a line", m->path,
			       l->number);
	return CT_OK;
}

static int by_file(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	size_t n = x->file_len < y->file_len ? x->file_len : y->file_len;
	int c = memcmp(x->file, y->file, n);

	return c ? c : (x->file_len > y->file_len) - (x->file_len < y->file_len);
}

static enum ct_status parse_map(struct map *m, const char *text)
{
	static const char csv[] = "ImageId,";
	struct lines l = {.next = text};

	while (next_line(&l)) {
		if (m->n > 0 || l.len < strlen(csv) || memcmp(l.line, csv, strlen(csv)) != 0)
			CT_TRY(add_entry(m, &l));
	}
	if (m->n == 0)
		return CT_FAIL(CT_DATA, "%s is empty", m->path);
	if (m->in_order && is_number(m->v[0].cls, m->v[0].cls_len)) {
		(void)CT_FAIL(CT_DATA,
			      "%s holds numbers without file names: ImageNet's ground truth file counts classes"
			      " in an order of its own, not that of the sorted WordNet ids",
			      m->path);
		ct_error_hint("give lines \"ILSVRC2012_val_00000001.JPEG n01751748\", or LOC_val_solution.csv");
		return CT_DATA;
	}
	if (!m->in_order)
		qsort(m->v, m->n, sizeof(*m->v), by_file);
	for (size_t i = 1; i < m->n && !m->in_order; i++) {
		if (by_file(&m->v[i - 1], &m->v[i]) == 0)
			return CT_FAIL(CT_DATA, "%s:%zu and %zu name the same file", m->path, m->v[i - 1].number,
				       m->v[i].number);
	}
	return CT_OK;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All classes of the map in bytewise order. */
static enum ct_status collect_classes(const struct map *m, struct pack_names *out)
{
	struct pack_names all = {0};
	enum ct_status st = CT_OK;

	for (size_t i = 0; i < m->n && st == CT_OK; i++)
		st = pack_names_add(&all, m->v[i].cls, m->v[i].cls_len);
	if (st == CT_OK)
		qsort(all.v, all.n, sizeof(*all.v), by_text);
	for (size_t i = 0; i < all.n && st == CT_OK; i++) {
		if (i == 0 || strcmp(all.v[i - 1], all.v[i]) != 0)
			st = pack_names_add(out, all.v[i], strlen(all.v[i]));
	}
	pack_names_release(&all);
	return st;
}

static const struct entry *find_entry(const struct map *m, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
	const struct entry *e;
	struct entry key = {.file = name, .file_len = strlen(name)};

	e = bsearch(&key, m->v, m->n, sizeof(*m->v), by_file);
	if (e || !dot)
		return e;
	key.file_len = (size_t)(dot - name);
	return bsearch(&key, m->v, m->n, sizeof(*m->v), by_file);
}

static enum ct_status label_of(const struct map *m, const struct entry *e, bool numbers,
			       const struct pack_names *classes, int32_t *out)
{
	if (numbers) {
		if (!is_number(e->cls, e->cls_len))
			return CT_FAIL(CT_DATA, "%s:%zu: \"%.*s\" is no number, unlike in other lines", m->path,
				       e->number, (int)(e->cls_len < 60 ? e->cls_len : 60), e->cls);
		*out = (int32_t)strtoul(e->cls, NULL, 10);
		if (classes->n > 0 && (size_t)*out >= classes->n)
			return CT_FAIL(CT_DATA, "%s:%zu: label %d, but there are %zu classes", m->path, e->number, *out,
				       classes->n);
		return CT_OK;
	}
	*out = pack_names_find(classes, e->cls, e->cls_len);
	if (*out < 0) {
		(void)CT_FAIL(CT_DATA, "%s:%zu: class \"%.*s\" is not in the list of %zu classes", m->path, e->number,
			      (int)(e->cls_len < 60 ? e->cls_len : 60), e->cls, classes->n);
		ct_error_hint("the list is that of --classes, or classes.txt beside the shards");
		return CT_DATA;
	}
	return CT_OK;
}

static enum ct_status apply_map(const struct map *m, struct pack_list *list)
{
	bool numbers = is_number(m->v[0].cls, m->v[0].cls_len);

	if (m->in_order && m->n != list->n)
		return CT_FAIL(CT_DATA, "%s has %zu lines, and there are %zu images", m->path, m->n, list->n);
	if (!numbers && list->classes.n == 0)
		CT_TRY(collect_classes(m, &list->classes));
	for (size_t i = 0; i < list->n; i++) {
		const struct entry *e = m->in_order ? &m->v[i] : find_entry(m, list->v[i].path);

		if (!e) {
			char *shown = pack_shown(list->v[i].path);

			(void)CT_FAIL(CT_DATA, "%s says nothing about %s", m->path, shown ? shown : "");
			ct_free(shown);
			return CT_DATA;
		}
		CT_TRY(label_of(m, e, numbers, &list->classes, &list->v[i].label));
	}
	return CT_OK;
}

enum ct_status pack_map_apply(const char *path, struct pack_list *list)
{
	struct map m = {.path = path};
	char *text = NULL;
	enum ct_status st;

	CT_TRY(read_text(path, &text));
	st = parse_map(&m, text);
	if (st == CT_OK)
		st = apply_map(&m, list);
	ct_free(m.v);
	ct_free(text);
	return st;
}
