/* The label is the last word of a line, since file names may contain spaces. Labels are numbers only if all of them
 * are; otherwise they are ids, which a class list must contain, or which become the list in sorted order. Lines are
 * sorted by file for the search, and a file that is listed twice is an error. Lines are marked when their file is
 * found, so those that remain name files that do not exist; they are reported as skipped samples and do not make the
 * set unusable. */
#include "data/formats/imagefolder_map_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/label.h"

#define MAX_FILE ((size_t)1 << 30)

void ct__folder_map_release(struct ct_image_dir_map *m)
{
	for (size_t i = 0; i < m->n_skipped; i++)
		ct_free(m->skipped[i].file);
	ct_free(m->skipped);
	ct_free(m->lines);
	ct_free(m->text);
	*m = (struct ct_image_dir_map){0};
}

enum ct_status ct__folder_map_find(const char *root, char **path)
{
	static const char *const names[] = {"val.txt", "labels.txt"};

	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++) {
		CT_TRY_ALLOC(*path = ct_path_join(root, names[i]));
		if (ct_file_exists(*path))
			return CT_OK;
		ct_free(*path);
	}
	*path = NULL;
	return CT_OK;
}

static int by_file(const void *a, const void *b)
{
	return strcmp(((const struct ct_image_dir_line *)a)->file, ((const struct ct_image_dir_line *)b)->file);
}

/* Splits "FILE LABEL" in place. The label is the last word, so file names may contain whitespace. */
static enum ct_status split_line(char *line, const char *path, size_t number, struct ct_image_dir_line *out)
{
	char *what, *end = line + strlen(line);

	while (end > line && strchr(" \t\r", end[-1]))
		*--end = '\0';
	for (what = end; what > line && !strchr(" \t", what[-1]); what--)
		;
	for (end = what; end > line && strchr(" \t", end[-1]);)
		*--end = '\0';
	if (what == line || line[0] == '\0')
		return CT_FAIL(CT_DATA, "%s:%zu: expected \"FILE LABEL\" or \"FILE WNID\"", path, number);
	if (strchr(line, '/'))
		return CT_FAIL(CT_DATA, "%s:%zu: expected a file name in this directory, without a path", path, number);
	*out = (struct ct_image_dir_line){.file = line, .what = what, .label = -1};
	return CT_OK;
}

static enum ct_status read_lines(struct ct_image_dir_map *m, const char *path)
{
	size_t cap = 0, number = 0;
	char *rest = m->text, *line;

	while ((line = strsep(&rest, "\n"))) {
		number++;
		line += strspn(line, " \t\r");
		if (line[0] == '\0' || line[0] == '#')
			continue;
		CT_TRY_GROW(m->lines, m->n, cap);
		CT_TRY(split_line(line, path, number, &m->lines[m->n]));
		m->n++;
	}
	return m->n ? CT_OK : CT_FAIL(CT_DATA, "%s is empty: it contains no labels", path);
}

/* Returns whether the labels are numbers: either all of them are, or none. */
static bool set_numbers(struct ct_image_dir_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		if (!ct_label_parse(m->lines[i].what, strlen(m->lines[i].what), &m->lines[i].label))
			return false;
	}
	return true;
}

/* Makes the class list: the distinct ids of the lines, sorted. */
static enum ct_status collect_classes(const struct ct_image_dir_map *m, const char *path, struct ct_class_list *classes)
{
	enum ct_status st;
	char **ids;

	CT_TRY_ALLOC(ids = CT_NEW_ARRAY(char *, m->n));
	for (size_t i = 0; i < m->n; i++)
		ids[i] = m->lines[i].what;
	st = ct_class_list_collect(ids, m->n, false, path, classes);
	ct_free(ids);
	return st;
}

static enum ct_status set_labels(struct ct_image_dir_map *m, const char *path, struct ct_class_list *classes)
{
	char shown[80];

	if (set_numbers(m))
		return CT_OK;
	if (classes->n == 0)
		CT_TRY(collect_classes(m, path, classes));
	for (size_t i = 0; i < m->n; i++) {
		m->lines[i].label = ct_class_list_find(classes, m->lines[i].what);
		if (m->lines[i].label >= 0)
			continue;
		ct_name_escape(m->lines[i].what, strlen(m->lines[i].what), shown, sizeof(shown));
		return CT_FAIL(CT_DATA, "%s: class \"%s\" is not in the list of classes", path, shown);
	}
	return CT_OK;
}

static enum ct_status check_twice(const struct ct_image_dir_map *m, const char *path)
{
	char shown[160];

	for (size_t i = 1; i < m->n; i++) {
		if (strcmp(m->lines[i - 1].file, m->lines[i].file) != 0)
			continue;
		ct_name_escape(m->lines[i].file, strlen(m->lines[i].file), shown, sizeof(shown));
		return CT_FAIL(CT_DATA, "%s: %s is listed twice", path, shown);
	}
	return CT_OK;
}

static enum ct_status load(struct ct_image_dir_map *m, const char *path, struct ct_class_list *classes)
{
	size_t len;

	CT_TRY(ct_file_read(path, MAX_FILE, &m->text, &len));
	if (strlen(m->text) != len)
		return CT_FAIL(CT_DATA, "%s is not a text file: it contains a NUL byte", path);
	CT_TRY(read_lines(m, path));
	CT_TRY(set_labels(m, path, classes));
	qsort(m->lines, m->n, sizeof(*m->lines), by_file);
	return check_twice(m, path);
}

enum ct_status ct__folder_map_load(const char *path, struct ct_class_list *classes, struct ct_image_dir_map *out)
{
	enum ct_status st;

	*out = (struct ct_image_dir_map){0};
	st = load(out, path, classes);
	if (st < 0)
		ct__folder_map_release(out);
	return st;
}

int32_t ct__folder_map_take(struct ct_image_dir_map *m, const char *file)
{
	struct ct_image_dir_line key = {.file = (char *)(uintptr_t)file},
				 *at = bsearch(&key, m->lines, m->n, sizeof(key), by_file);

	if (!at)
		return -1;
	at->taken = true;
	return at->label;
}

enum ct_status ct__folder_map_skip(struct ct_image_dir_map *m, const char *file, const char *tag, const char *reason)
{
	struct ct_image_dir_skipped s = {.tag = tag, .reason = reason};
	char shown[160];

	if (m->n_skipped == UINT32_MAX)
		return CT_FAIL(CT_UNSUPPORTED, "more than %u files without an image or a label", UINT32_MAX);
	CT_TRY_GROW(m->skipped, m->n_skipped, m->cap_skipped);
	ct_name_escape(file, strlen(file), shown, sizeof(shown));
	CT_TRY_ALLOC(s.file = ct_strdup(shown));
	m->skipped[m->n_skipped++] = s;
	return CT_OK;
}

enum ct_status ct__folder_map_rest(struct ct_image_dir_map *m)
{
	for (size_t i = 0; i < m->n; i++) {
		if (!m->lines[i].taken)
			CT_TRY(ct__folder_map_skip(m, m->lines[i].file, "no-image", "the file does not exist"));
	}
	return CT_OK;
}
