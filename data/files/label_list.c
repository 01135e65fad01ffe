/* Columns are found by their names, which differ between programs: case and separators are ignored, and usual names are
 * tried from the most specific to the least. If only one of two necessary columns is known and one column is left, it
 * is the other one. Paths come from a file of unknown origin: they are cleaned in place, and a path that leads out of
 * the directory is refused. Every problem names file and line. Strings point into the text, which the list owns. The
 * start of a file can be parsed alone, to find out whether it is such a list at all. */
#include "data/files/label_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/csv.h"
#include "data/files/label.h"

#define MAX_FILE ((size_t)1 << 30)
#define START_BYTES ((size_t)1 << 20)
#define START_ROWS 100
#define NONE SIZE_MAX

enum { IMAGE, LABEL, SPLIT, COLUMNS };

/* The usual names of the columns, the most specific first. */
static const char *const usual[COLUMNS] = {
	"filepath filepaths imagepath path paths filename filenames imagefile imagename file files image images img imageid imgid id",
	"label labels class target category classname labelname categoryname classes y",
	"split subset partition dataset set",
};
static const char *const keys[COLUMNS] = {"data.labels.image", "data.labels.class", "data.labels.split"};
static const char *const contents[COLUMNS] = {"the image files", "the classes", "train, val or test"};

struct reader {
	struct ct_csv csv;
	struct ct_label_list *list;
	size_t column[COLUMNS], n_columns;
};

void ct_label_list_release(struct ct_label_list *l)
{
	ct_free(l->rows);
	ct_free(l->text);
	*l = (struct ct_label_list){0};
}

/* Compares a name with a word [n], without regard to case, '-', '_' and spaces. */
static bool is_named(const char *name, const char *word, size_t n)
{
	size_t i = 0;

	for (; *name; name++) {
		if (strchr("-_ ", *name))
			continue;
		while (i < n && strchr("-_ ", word[i]))
			i++;
		if (i == n || tolower((unsigned char)*name) != tolower((unsigned char)word[i]))
			return false;
		i++;
	}
	while (i < n && strchr("-_ ", word[i]))
		i++;
	return i == n && n > 0;
}

static size_t find_named(const struct reader *r, const char *word, size_t n)
{
	for (size_t i = 0; i < r->csv.n; i++) {
		if (is_named(r->csv.fields[i], word, n))
			return i;
	}
	return NONE;
}

static size_t find_usual(const struct reader *r, const char *words)
{
	size_t found = NONE;

	while (*words && found == NONE) {
		const size_t n = strcspn(words, " ");

		found = find_named(r, words, n);
		words += n + (words[n] == ' ');
	}
	return found;
}

static void add_columns(const struct reader *r, struct ct_str *out)
{
	for (size_t i = 0; i < r->csv.n; i++) {
		ct_str_add(out, i ? ", \"" : "\"");
		ct_str_add_escaped(out, r->csv.fields[i], strlen(r->csv.fields[i]), 60);
		ct_str_add(out, "\"");
	}
}

/* name: NULL if the column was looked for by its usual names. */
static enum ct_status unknown_column(const struct reader *r, int k, const char *name)
{
	struct ct_str names = {0};
	const char *near;

	add_columns(r, &names);
	CT_TRY(ct_str_status(&names));
	if (name) {
		CT_FAIL(CT_DATA, "%s:%u: there is no column \"%s\"; the columns are %s", r->csv.path, r->csv.line, name,
			names.s);
		near = ct_suggest(name, (const char *const *)r->csv.fields, r->csv.n);
		ct_error_hint("set %s to the name of the column with %s%s%.60s%s", keys[k], contents[k],
			      near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
	} else {
		CT_FAIL(CT_DATA,
			"%s:%u: no column has one of the usual names of the column with %s; the columns are %s",
			r->csv.path, r->csv.line, contents[k], names.s);
		ct_error_hint(
			"set %s to its name; if the first line does not contain the names of the columns, insert a line "
			"such as \"image,label\"",
			keys[k]);
	}
	ct_str_release(&names);
	return CT_DATA;
}

/* If one of the two necessary columns is not known, but only one column is left, this is it. */
static void find_other(struct reader *r)
{
	const int k = r->column[IMAGE] == NONE ? IMAGE : LABEL;
	size_t n_left = 0, left = NONE;

	if ((r->column[IMAGE] == NONE) == (r->column[LABEL] == NONE))
		return;
	for (size_t i = 0; i < r->csv.n; i++) {
		if (i == r->column[IMAGE] || i == r->column[LABEL] || i == r->column[SPLIT])
			continue;
		left = i;
		n_left++;
	}
	if (n_left == 1)
		r->column[k] = left;
}

static enum ct_status find_columns(struct reader *r, const struct ct_label_columns *columns)
{
	const char *const names[COLUMNS] = {columns->image, columns->label, columns->split};
	struct ct_label_list *l = r->list;

	CT_TRY(ct_csv_next(&r->csv));
	if (r->csv.n == 0)
		return CT_FAIL(CT_DATA, "%s is empty: it contains no labels", r->csv.path);
	for (int k = 0; k < COLUMNS; k++) {
		r->column[k] = names[k] ? find_named(r, names[k], strlen(names[k])) : find_usual(r, usual[k]);
		if (k == SPLIT && names[k] && strcmp(names[k], "none") == 0)
			r->column[k] = NONE;
		else if (names[k] && r->column[k] == NONE)
			return unknown_column(r, k, names[k]);
	}
	find_other(r);
	for (int k = IMAGE; k <= LABEL; k++) {
		if (r->column[k] == NONE)
			return unknown_column(r, k, NULL);
	}
	if (r->column[IMAGE] == r->column[LABEL])
		return CT_FAIL(CT_DATA, "%s:%u: the column \"%s\" cannot contain both the images and the classes",
			       r->csv.path, r->csv.line, r->csv.fields[r->column[IMAGE]]);
	r->n_columns = r->csv.n;
	l->has_columns = true;
	l->image = r->csv.fields[r->column[IMAGE]];
	l->label = r->csv.fields[r->column[LABEL]];
	l->split = r->column[SPLIT] == NONE ? NULL : r->csv.fields[r->column[SPLIT]];
	return CT_OK;
}

/* Removes "." and empty components of a relative path. Returns false if the path leads out of its directory. */
static bool clean_path(char *path)
{
	char *to = path, *from = path;

	for (char *p = path; *p; p++)
		*p = *p == '\\' ? '/' : *p;
	if (path[0] == '/' || (isalpha((unsigned char)path[0]) && path[1] == ':' && path[2] == '/'))
		return false;
	while (*from) {
		const size_t n = strcspn(from, "/");

		if (n == 2 && from[0] == '.' && from[1] == '.')
			return false;
		if (n > 1 || (n == 1 && from[0] != '.')) {
			if (to > path)
				*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n + (from[n] == '/');
	}
	*to = '\0';
	return true;
}

static enum ct_status take_image(const struct reader *r, struct ct_label_row *row)
{
	char shown[160];

	row->image = r->csv.fields[r->column[IMAGE]];
	ct_name_escape(row->image, strlen(row->image), shown, sizeof(shown));
	if (!clean_path(row->image)) {
		CT_FAIL(CT_DATA, "%s:%u: \"%s\" is outside of the directory of the images", r->csv.path, r->csv.line,
			shown);
		return ct_error_hint(
			"write paths that are relative to the directory of the images (data.train), without ..");
	}
	if (row->image[0] == '\0') {
		CT_FAIL(CT_DATA, "%s:%u: the column \"%s\" is empty", r->csv.path, r->csv.line, r->list->image);
		return ct_error_hint("fill in the name of the image, or remove the line");
	}
	return CT_OK;
}

static enum ct_status take_part(const struct reader *r, struct ct_label_row *row)
{
	static const char *const words[CT_LABEL_PARTS] = {"train training", "val valid validation eval dev",
							  "test testing"};
	const char *field = r->column[SPLIT] == NONE ? "train" : r->csv.fields[r->column[SPLIT]];
	char lower[16] = "", shown[80];

	for (size_t i = 0; field[i] && i + 1 < sizeof(lower); i++)
		lower[i] = (char)tolower((unsigned char)field[i]);
	for (int k = 0; k < CT_LABEL_PARTS; k++) {
		if (field[0] == '\0' || !ct_word_in(words[k], lower, strlen(lower)))
			continue;
		row->part = (enum ct_label_part)k;
		return CT_OK;
	}
	ct_name_escape(field, strlen(field), shown, sizeof(shown));
	CT_FAIL(CT_DATA, "%s:%u: \"%s\" in the column \"%s\" is neither training nor evaluation data", r->csv.path,
		r->csv.line, shown, r->list->split);
	return ct_error_hint("write train, val or test; data.labels.split=none ignores the column");
}

static enum ct_status take_row(struct reader *r)
{
	struct ct_label_row row = {.line = r->csv.line};
	struct ct_label_list *l = r->list;

	if (r->csv.n != r->n_columns) {
		CT_FAIL(CT_DATA, "%s:%u: the number of fields is %zu, but there are %zu columns", r->csv.path,
			r->csv.line, r->csv.n, r->n_columns);
		return ct_error_hint("a field that contains the delimiter must be in double quotes");
	}
	CT_TRY(take_image(r, &row));
	row.label = r->csv.fields[r->column[LABEL]];
	if (row.label[0] == '\0') {
		CT_FAIL(CT_DATA, "%s:%u: the label of \"%s\" is empty", r->csv.path, r->csv.line, row.image);
		return ct_error_hint("fill in the class of the image, or remove the line");
	}
	CT_TRY(take_part(r, &row));
	if (l->n == UINT32_MAX)
		return CT_FAIL(CT_UNSUPPORTED, "%s contains more than %u rows", r->csv.path, UINT32_MAX);
	CT_TRY_GROW(l->rows, l->n, l->cap);
	l->rows[l->n++] = row;
	l->per_part[row.part]++;
	return CT_OK;
}

bool ct_label_list_has_numbers(const struct ct_label_list *l)
{
	int32_t number;

	for (size_t i = 0; i < l->n; i++) {
		const struct ct_label_row *row = &l->rows[i];

		if (row->part == CT_LABEL_TRAIN && !ct_label_parse(row->label, strlen(row->label), &number))
			return false;
	}
	return true;
}

void ct_label_row_remove_zeros(struct ct_label_row *row)
{
	char *label = row->label;
	int32_t number;

	if (!ct_label_parse(label, strlen(label), &number))
		return;
	label += strcspn(label, "0123456789");
	label[strspn(label, "0123456789")] = '\0';
	while (label[0] == '0' && label[1])
		label++;
	row->label = label;
}

/* *all: on input, whether the text is the complete file; on output, whether no other rows follow. */
static enum ct_status read_rows(struct reader *r, const struct ct_label_columns *columns, size_t max_rows, bool *all)
{
	CT_TRY(find_columns(r, columns));
	r->csv.is_start = !*all;
	for (;;) {
		CT_TRY(ct_csv_next(&r->csv));
		if (r->csv.n == 0 || r->list->n == max_rows)
			break;
		CT_TRY(take_row(r));
	}
	*all &= r->csv.n == 0;
	if (r->list->n == 0)
		return CT_FAIL(CT_DATA, "%s contains the names of columns, but no labels", r->csv.path);
	return CT_OK;
}

static enum ct_status parse(char *text, size_t len, const char *path, const struct ct_label_columns *columns,
			    size_t max_rows, struct ct_label_list *out, bool *all)
{
	struct reader r = {.list = out};
	enum ct_status st;

	*out = (struct ct_label_list){.text = text};
	st = ct_csv_init(&r.csv, text, len, path);
	if (st == CT_OK)
		st = read_rows(&r, columns, max_rows, all);
	ct_csv_release(&r.csv);
	if (st < 0) {
		const bool has_columns = out->has_columns;

		ct_label_list_release(out);
		out->has_columns = has_columns;
	}
	return st;
}

enum ct_status ct_label_list_parse(char *text, size_t len, const char *path, const struct ct_label_columns *columns,
				   struct ct_label_list *out)
{
	bool all = true;

	return parse(text, len, path, columns, SIZE_MAX, out, &all);
}

enum ct_status ct_label_list_load(const char *path, const struct ct_label_columns *columns, struct ct_label_list *out)
{
	char *text;
	size_t len;

	*out = (struct ct_label_list){0};
	CT_TRY(ct_file_read(path, MAX_FILE, &text, &len));
	return ct_label_list_parse(text, len, path, columns, out);
}

/* Reads the complete lines in the first START_BYTES of the file. */
static enum ct_status read_start(const char *path, char **text, size_t *len, bool *all)
{
	enum ct_status st;
	struct stat sb;
	int fd;

	CT_TRY(ct_file_open(path, CT_FILE_READ, &fd));
	*all = fstat(fd, &sb) == 0 && (uint64_t)sb.st_size <= START_BYTES;
	*len = *all ? (size_t)sb.st_size : START_BYTES;
	*text = ct_realloc(NULL, *len + 1, 1);
	st = *text ? ct_fd_read_at(fd, *text, *len, 0, path) : CT_NOMEM;
	close(fd);
	if (st < 0) {
		ct_free(*text);
		return st;
	}
	while (!*all && *len > 0 && !strchr("\r\n", (*text)[*len - 1]))
		--*len;
	(*text)[*len] = '\0';
	return CT_OK;
}

enum ct_status ct_label_list_load_start(const char *path, const struct ct_label_columns *columns,
					struct ct_label_list *out, bool *all)
{
	char *text;
	size_t len;

	*out = (struct ct_label_list){0};
	CT_TRY(read_start(path, &text, &len, all));
	if (len == 0 && !*all) {
		ct_free(text);
		return CT_FAIL(CT_DATA, "%s:1: the line is longer than %zu bytes", path, START_BYTES);
	}
	return parse(text, len, path, columns, START_ROWS, out, all);
}

enum ct_status ct_label_list_classes(struct ct_label_list *l, const char *path, struct ct_class_list *out)
{
	const bool numbers = ct_label_list_has_numbers(l);
	enum ct_status st;
	size_t n = 0;
	char **ids;

	if (l->per_part[CT_LABEL_TRAIN] == 0) {
		CT_FAIL(CT_DATA, "%s: the column \"%s\" marks no row as training data", path, l->split);
		return ct_error_hint("data.labels.split=none ignores the column");
	}
	CT_TRY_ALLOC(ids = CT_NEW_ARRAY(char *, l->n));
	for (size_t i = 0; i < l->n; i++) {
		if (l->rows[i].part != CT_LABEL_TRAIN)
			continue;
		if (numbers)
			ct_label_row_remove_zeros(&l->rows[i]);
		ids[n++] = l->rows[i].label;
	}
	st = ct_class_list_collect(ids, n, numbers, path, out);
	ct_free(ids);
	return st;
}
