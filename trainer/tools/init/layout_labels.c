/* Every CSV file of the directory is tried, except for those whose names mean predictions. Of each file first only the
 * start is read: other tables may have the same columns, and may be large. A file is a list if the first training image
 * that it names exists, in the directory or in a directory in it. Of several lists, the one for training and the one
 * for evaluation are recognized by words in their names, and if this is not unique, the user has to choose. Problems
 * with files are not errors, but the first one is remembered, and one with a file that has the columns of a list takes
 * precedence. */
#include "trainer/tools/init/layout_labels_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/label_list.h"
#include "data/formats/imagefolder_scan.h"

enum { MAX_LISTS = 16 };

/* A CSV file that is a list of labels. */
struct list {
	char file[CT_LAYOUT_PATH]; /* relative to the directory */
	char root[256];            /* the directory of its images */
	char image[64], label[64]; /* columns */
	char split[64];            /* column; "": all are training images */
};

struct finder {
	const struct ct_layout *l;
	const char *below;  /* consider only images in this directory in l->dir; NULL: any */
	char **directories; /* [n_directories] in l->dir */
	size_t n_directories;
	struct list lists[MAX_LISTS];
	int n;
	struct ct__no_labels why;
};

static enum ct_status copy(char *to, size_t size, const char *from)
{
	if (!ct_utf8_valid(from, strlen(from))) {
		CT_FAIL(CT_DATA, "%s: the name is not valid UTF-8, as YAML requires", from);
		return ct_error_hint("rename it");
	}
	if ((size_t)snprintf(to, size, "%s", from) < size)
		return CT_OK;
	return CT_FAIL(CT_DATA, "the name \"%.60s...\" is too long", from);
}

/* Returns whether dir/root/image exists, perhaps with the suffix of an image. */
static bool has_image(const char *dir, const char *root, const char *image)
{
	static const char *const suffixes[] = {"", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG"};
	bool found = false;

	for (size_t i = 0; i < CT_ARRAY_LEN(suffixes) && !found; i++) {
		char *path = ct_strfmt("%s/%s/%s%s", dir, root, image, suffixes[i]);

		found = path && ct_file_exists(path);
		ct_free(path);
	}
	return found;
}

static bool is_below(const char *path, const char *directory)
{
	const size_t n = strlen(directory);

	return strncmp(path, directory, n) == 0 && path[n] == '/';
}

/* Finds the directory, in l->dir or this directory itself, that contains the first image of the list. */
static const char *find_root(const struct finder *f, const struct ct_label_list *list)
{
	const char *image = list->rows[0].image;

	for (size_t i = 0; i < list->n; i++) {
		if (list->rows[i].part == CT_LABEL_TRAIN) {
			image = list->rows[i].image;
			break;
		}
	}
	if ((!f->below || is_below(image, f->below)) && has_image(f->l->dir, ".", image))
		return ".";
	for (size_t i = 0; i < f->n_directories; i++) {
		const char *d = f->directories[i];

		if ((!f->below || strcmp(d, f->below) == 0) && has_image(f->l->dir, d, image))
			return d;
	}
	return NULL;
}

static enum ct_status take_list(struct finder *f, const char *file, const char *path, const struct ct_label_list *list)
{
	const char *root = find_root(f, list);
	struct list *out = &f->lists[f->n];

	if (!root) {
		CT_FAIL(CT_DATA, "%s:%u: there is no image \"%.160s\" in %s or in a directory in it", path,
			list->rows[0].line, list->rows[0].image, f->l->dir);
		return ct_error_hint(
			"the names in the file must be relative to this directory, or to a directory in it");
	}
	if (f->n == MAX_LISTS)
		return CT_OK;
	CT_TRY(copy(out->file, sizeof(out->file), file));
	CT_TRY(copy(out->root, sizeof(out->root), root));
	CT_TRY(copy(out->image, sizeof(out->image), list->image));
	CT_TRY(copy(out->label, sizeof(out->label), list->label));
	if (list->per_part[CT_LABEL_VAL] + list->per_part[CT_LABEL_TEST] > 0)
		CT_TRY(copy(out->split, sizeof(out->split), list->split));
	f->n++;
	return CT_OK;
}

/* file: relative to l->dir, or absolute. */
static enum ct_status read_list(struct finder *f, const char *file, bool *has_columns)
{
	static const struct ct_label_columns usual = {0};
	struct ct_label_list list;
	enum ct_status st;
	char *path;
	bool all;

	CT_TRY_ALLOC(path = ct_path_join(f->l->dir, file));
	st = ct_label_list_load_start(path, &usual, &list, &all);
	*has_columns = list.has_columns;
	/* Other tables may have such columns too, and may be large. */
	if (st == CT_OK && !all && (list.per_part[CT_LABEL_TRAIN] == 0 || find_root(f, &list))) {
		ct_label_list_release(&list);
		st = ct_label_list_load(path, &usual, &list);
	}
	if (st == CT_OK) {
		st = take_list(f, file, path, &list);
		ct_label_list_release(&list);
	}
	ct_free(path);
	return st;
}

static bool has_word(const char *name, const char *word)
{
	return strcasestr(name, word) != NULL;
}

/* Other programs and `ctrain predict --csv` write files that look similar. */
static bool is_csv_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return name[0] != '.' && dot && (strcasecmp(dot, ".csv") == 0 || strcasecmp(dot, ".tsv") == 0) &&
	       !has_word(name, "submission") && !has_word(name, "prediction");
}

static void note_error(struct finder *f, bool is_list)
{
	if (f->why.error.status == CT_OK || (is_list && !f->why.is_list)) {
		ct_error_save(&f->why.error);
		f->why.is_list = is_list;
	}
}

static enum ct_status read_lists(struct finder *f)
{
	enum ct_status st = CT_OK;
	char **names;
	size_t n;

	CT_TRY(ct_dir_list(f->l->dir, &names, &n));
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		bool has_columns = false;

		if (!is_csv_name(names[i]))
			continue;
		st = read_list(f, names[i], &has_columns);
		if (st < 0 && st != CT_NOMEM) {
			note_error(f, has_columns);
			ct_error_clear();
			st = CT_OK;
		}
	}
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status ambiguous(const struct finder *f)
{
	struct ct_str names = {0};

	for (int i = 0; i < f->n; i++)
		ct_str_addf(&names, "%s%s", i ? ", " : "", f->lists[i].file);
	CT_FAIL(CT_DATA, "%s contains %d lists of labels: %s", f->l->dir, f->n, ct_str_text(&names));
	ct_error_hint("select one, for example --labels %s/%s%s", f->l->dir, f->lists[0].file,
		      f->n_directories > 1 ? "; --labels none uses the directories as the classes" : "");
	ct_str_release(&names);
	return CT_DATA;
}

/* Returns the only list whose name contains the word, or NULL. */
static const struct list *list_named(const struct finder *f, const char *word, const struct list *but)
{
	const struct list *found = NULL;

	for (int i = 0; i < f->n; i++) {
		if (&f->lists[i] == but || !has_word(ct_path_name(f->lists[i].file), word))
			continue;
		if (found)
			return NULL;
		found = &f->lists[i];
	}
	return found;
}

static enum ct_status choose(const struct finder *f, struct ct_layout *l)
{
	const struct list *train = f->n == 1 ? &f->lists[0] : list_named(f, "train", NULL), *val = NULL;

	if (!train)
		train = list_named(f, "labels", NULL);
	if (!train)
		return ambiguous(f);
	if (!train->split[0])
		val = list_named(f, "val", train);
	if (!train->split[0] && !val)
		val = list_named(f, "test", train);
	CT_TRY(copy(l->labels, sizeof(l->labels), train->file));
	CT_TRY(copy(l->train, sizeof(l->train), train->root));
	CT_TRY(copy(l->image_column, sizeof(l->image_column), train->image));
	CT_TRY(copy(l->class_column, sizeof(l->class_column), train->label));
	CT_TRY(copy(l->split_column, sizeof(l->split_column), train->split));
	l->has_val = train->split[0] || val;
	if (!val)
		return CT_OK;
	CT_TRY(copy(l->val_labels, sizeof(l->val_labels), val->file));
	return strcmp(val->root, train->root) == 0 ? CT_OK : copy(l->val, sizeof(l->val), val->root);
}

/* Reads one file, or all files in l->dir, and chooses among the lists. */
static enum ct_status find(struct ct_layout *l, const char *file, const char *below, struct ct__no_labels *why)
{
	struct finder *f;
	enum ct_status st;
	bool has_columns;

	CT_TRY_ALLOC(f = CT_NEW(struct finder));
	f->l = l;
	f->below = below;
	st = ct_image_dir_classes(l->dir, &f->directories, &f->n_directories);
	if (st == CT_OK)
		st = file ? read_list(f, file, &has_columns) : read_lists(f);
	if (st == CT_OK && f->n > 0) {
		st = choose(f, l);
		if (st < 0) {
			f->why = (struct ct__no_labels){.is_list = true};
			ct_error_save(&f->why.error);
		}
	}
	if (why)
		*why = f->why;
	ct_dir_list_free(f->directories, f->n_directories);
	ct_free(f);
	return st;
}

enum ct_status ct__layout_use_labels(const char *path, struct ct_layout *l)
{
	char file[CT_LAYOUT_PATH];

	if (!realpath(path, file))
		return CT_FAIL(errno == ENOENT || errno == ENOTDIR ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s", path,
			       strerror(errno));
	return find(l, is_below(file, l->dir) ? file + strlen(l->dir) + 1 : file, NULL, NULL);
}

enum ct_status ct__layout_find_labels(struct ct_layout *l, struct ct__no_labels *why)
{
	return find(l, NULL, NULL, why);
}

enum ct_status ct__layout_find_labels_beside(struct ct_layout *l, struct ct__no_labels *why)
{
	char *below = ct_strdup(ct_path_name(l->dir)), *parent = ct_path_dir(l->dir);
	struct ct_layout beside = *l;
	enum ct_status st = below && parent ? copy(beside.dir, sizeof(beside.dir), parent) : CT_NOMEM;

	if (st == CT_OK)
		st = find(&beside, NULL, below, why);
	if (st == CT_OK && beside.labels[0])
		*l = beside;
	ct_free(parent);
	ct_free(below);
	return st;
}
