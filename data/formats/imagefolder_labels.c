/* Rows name images with or without their suffix. All images of the listed directories are therefore sorted by their
 * path without suffix, and each row is searched by its exact path first, then as a path without suffix; several matches
 * are an error. row_of then gives the row of each image, so samples keep the order of the directory scan and do not
 * depend on the order of the list.
 *
 * Rows of all parts are matched, not only those of this set: an image with two labels, or in two parts, is a mistake
 * that would falsify the accuracy. Test rows are an exception, as their images may be missing. The classes are always
 * those of the training rows or of a class list. Leading zeros of labels do not matter with a class list, or if all
 * labels of the training data are numbers. */
#include "data/formats/imagefolder_labels_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/label.h"
#include "data/files/label_list.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

#define NONE UINT32_MAX

/* An image of the directory. */
struct entry {
	const char *path;
	size_t stem; /* length of the path without the suffix */
	uint32_t image;
};

struct labeling {
	const char *root, *file; /* file: the path of the list */
	const struct ct_dataset_spec *spec;
	struct ct_label_list list, training; /* training: if it is another list */
	enum ct_label_part part;             /* of the rows to use */
	struct ct_class_list *classes;
	bool numbered;         /* the classes are those of a class list, so that labels may be their numbers */
	bool any_zeros;        /* the leading zeros of labels do not matter */
	struct entry *entries; /* [n], sorted by by_stem */
	uint32_t n;
	uint32_t *row_of; /* [n] the row of each image, or NONE */
};

static int compare_stems(const char *a, size_t n, const char *b, size_t m)
{
	const int order = memcmp(a, b, n < m ? n : m);

	return order ? order : (n > m) - (n < m);
}

static int by_stem(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	const int order = compare_stems(x->path, x->stem, y->path, y->stem);

	return order ? order : strcmp(x->path, y->path);
}

static size_t stem_of(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && ct_image_extension(dot + 1, strlen(dot + 1)) ? (size_t)(dot - path) : strlen(path);
}

/* Returns the index of the first entry that is not before this stem. */
static uint32_t first_at(const struct labeling *s, const char *stem, size_t n)
{
	uint32_t lo = 0, hi = s->n;

	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (compare_stems(s->entries[mid].path, s->entries[mid].stem, stem, n) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Returns the number of the images that a row names, by their path with or without the suffix, and the last one. *image
 * is NONE if there is none. */
static uint32_t find_images(const struct labeling *s, const struct ct_label_row *row, uint32_t *image)
{
	const size_t len = strlen(row->image), stem = stem_of(row->image);
	uint32_t i, n = 0;

	*image = NONE;
	for (i = first_at(s, row->image, stem);
	     i < s->n && s->entries[i].stem == stem && memcmp(s->entries[i].path, row->image, stem) == 0; i++) {
		if (strcmp(s->entries[i].path, row->image) == 0) {
			*image = s->entries[i].image;
			return 1;
		}
	}
	for (i = first_at(s, row->image, len);
	     i < s->n && s->entries[i].stem == len && memcmp(s->entries[i].path, row->image, len) == 0; i++) {
		*image = s->entries[i].image;
		n++;
	}
	return n;
}

/* Finds the image of a row. *image is NONE if there is none. */
static enum ct_status find_image(const struct labeling *s, const struct ct_label_row *row, uint32_t *image)
{
	const uint32_t n = find_images(s, row, image);

	if (n < 2)
		return CT_OK;
	CT_FAIL(CT_DATA, "%s:%u: there are %u images with the name \"%s\" in %s", s->file, row->line, n, row->image,
		s->root);
	return ct_error_hint("write the suffix");
}

/* Returns the path of an image whose name, without directories and suffix, is that of the row; or NULL. */
static const char *find_elsewhere(const struct ct_image_dir_images *all, const struct ct_label_row *row)
{
	const char *want = ct_path_name(row->image);

	for (size_t i = 0; i < all->n; i++) {
		const char *path = all->paths.s + all->at[i], *name = ct_path_name(path);

		if (compare_stems(name, stem_of(name), want, stem_of(want)) == 0)
			return path;
	}
	return NULL;
}

/* Names the directory that contains the image of the row, whose path below s->root is `found`. */
static void hint_directory(const struct labeling *s, const struct ct_label_row *row, const char *found)
{
	const size_t n = stem_of(found), tail = stem_of(row->image), prefix = n > tail ? n - tail : 0;
	const char *train = s->spec->path && strcmp(s->spec->path, ".") != 0 ? s->spec->path : "";

	if (prefix > 1 && found[prefix - 1] == '/' && memcmp(found + prefix, row->image, tail) == 0)
		ct_error_hint("%.200s exists; if the names are relative to its directory, set data.train=%s%s%.*s",
			      found, train, train[0] ? "/" : "", (int)prefix - 1, found);
	else
		ct_error_hint("%.200s exists; data.train must be the directory to which the names are relative", found);
}

static enum ct_status missing_image(const struct labeling *s, const struct ct_label_row *row, uint32_t n_missing)
{
	struct ct_image_dir_images all;
	const char *elsewhere;
	char shown[160];
	bool exists;
	char *path;

	ct_name_escape(row->image, strlen(row->image), shown, sizeof(shown));
	CT_TRY_ALLOC(path = ct_path_join(s->root, row->image));
	exists = ct_file_exists(path);
	ct_free(path);
	CT_TRY(ct_image_dir_scan(s->root, "", true, &all));
	elsewhere = find_elsewhere(&all, row);
	CT_FAIL(CT_DATA,
		exists ? "%s:%u: \"%s\" in %s is not a .jpg, .jpeg or .png file (%u of %zu rows have no image)"
		       : "%s:%u: there is no image \"%s\" in %s (%u of %zu rows have no image)",
		s->file, row->line, shown, s->root, n_missing, s->list.n);
	if (exists)
		ct_error_hint("convert the image, or remove the line");
	else if (elsewhere)
		hint_directory(s, row, elsewhere);
	else
		ct_error_hint(
			"add the file, or remove the line; data.train is the directory to which the names are relative");
	ct_image_dir_images_release(&all);
	return CT_DATA;
}

static enum ct_status twice(const struct labeling *s, const struct ct_label_row *a, const struct ct_label_row *b)
{
	const bool label = strcmp(a->label, b->label) != 0;
	char shown[160], was[80], is[80];

	ct_name_escape(b->image, strlen(b->image), shown, sizeof(shown));
	ct_name_escape(a->label, strlen(a->label), was, sizeof(was));
	ct_name_escape(b->label, strlen(b->label), is, sizeof(is));
	if (label) {
		CT_FAIL(CT_DATA, "%s:%u: \"%s\" has the label \"%s\", but \"%s\" in line %u", s->file, b->line, shown,
			is, was, a->line);
		return ct_error_hint("an image has one class: remove the line that is wrong");
	}
	CT_FAIL(CT_DATA, "%s:%u: \"%s\" is in another part of the data (column \"%s\") than in line %u", s->file,
		b->line, shown, s->list.split, a->line);
	return ct_error_hint("accuracy on images that are also trained on is too high: remove one of the lines");
}

static enum ct_status append(const struct ct_image_dir_images *f, struct ct_image_dir_images *out)
{
	for (size_t i = 0; i < f->n; i++) {
		CT_TRY_GROW(out->at, out->n, out->cap);
		out->at[out->n++] = out->paths.len + f->at[i];
	}
	ct_str_add_bytes(&out->paths, ct_str_text(&f->paths), f->paths.len);
	return ct_str_status(&out->paths);
}

/* Appends the images of a directory of the list. */
static enum ct_status scan_directory(const struct labeling *s, const char *directory, struct ct_image_dir_images *out)
{
	struct ct_image_dir_images f;
	enum ct_status st = ct_image_dir_scan(s->root, directory, false, &f);

	if (st == CT_NOT_FOUND) { /* its images are missing */
		ct_error_clear();
		return CT_OK;
	}
	CT_TRY(st);
	st = append(&f, out);
	ct_image_dir_images_release(&f);
	return st;
}

/* Scans the directories that the list names, in strcmp order. */
static enum ct_status scan(const struct labeling *s, struct ct_image_dir_images *out)
{
	enum ct_status st = CT_OK;
	const char *before = NULL;
	size_t n = 0;
	char **names;

	CT_TRY_ALLOC(names = CT_NEW_ARRAY(char *, s->list.n));
	for (size_t i = 0; i < s->list.n && st == CT_OK; i++) {
		const char *image = s->list.rows[i].image, *slash = strrchr(image, '/');
		const size_t len = slash ? (size_t)(slash - image) : 0;

		if (n > 0 && strlen(names[n - 1]) == len && memcmp(names[n - 1], image, len) == 0)
			continue;
		names[n] = ct_strndup(image, len);
		st = names[n] ? CT_OK : CT_NOMEM;
		n += names[n] != NULL;
	}
	ct_strings_sort(names, n);
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		if (!before || strcmp(before, names[i]) != 0)
			st = scan_directory(s, names[i], out);
		before = names[i];
	}
	ct_dir_list_free(names, n);
	return st;
}

/* Fills s->entries. */
static enum ct_status index_images(struct labeling *s, const struct ct_image_dir_images *images)
{
	if (images->n >= NONE)
		return CT_FAIL(CT_UNSUPPORTED, "%s contains more than %u images", s->root, NONE - 1);
	s->n = (uint32_t)images->n;
	CT_TRY_ALLOC(s->entries = CT_NEW_ARRAY(struct entry, s->n));
	CT_TRY_ALLOC(s->row_of = CT_NEW_ARRAY(uint32_t, s->n));
	for (uint32_t i = 0; i < s->n; i++) {
		const char *path = images->paths.s + images->at[i];

		s->entries[i] = (struct entry){path, stem_of(path), i};
		s->row_of[i] = NONE;
	}
	qsort(s->entries, s->n, sizeof(*s->entries), by_stem);
	return CT_OK;
}

/* Fills s->row_of from the test rows, which this set does not use: their images may be missing, or in other rows, too.
 */
static void match_test_rows(struct labeling *s)
{
	for (size_t i = 0; i < s->list.n; i++) {
		const struct ct_label_row *row = &s->list.rows[i];
		uint32_t image;

		if (row->part == CT_LABEL_TEST && find_images(s, row, &image) == 1 && s->row_of[image] == NONE)
			s->row_of[image] = (uint32_t)i;
	}
}

/* Fills s->row_of, from the rows of all parts. */
static enum ct_status match_rows(struct labeling *s)
{
	const struct ct_label_row *missing = NULL;
	uint32_t n_missing = 0;

	for (size_t i = 0; i < s->list.n; i++) {
		const struct ct_label_row *row = &s->list.rows[i], *before;
		uint32_t image;

		if (row->part == CT_LABEL_TEST && s->part != CT_LABEL_TEST)
			continue;
		CT_TRY(find_image(s, row, &image));
		if (image == NONE) {
			missing = missing ? missing : row;
			n_missing++;
			continue;
		}
		before = s->row_of[image] == NONE ? NULL : &s->list.rows[s->row_of[image]];
		if (before && (strcmp(before->label, row->label) != 0 || before->part != row->part))
			return twice(s, before, row);
		s->row_of[image] = (uint32_t)i;
	}
	if (n_missing)
		return missing_image(s, missing, n_missing);
	if (s->part != CT_LABEL_TEST)
		match_test_rows(s);
	return CT_OK;
}

/* Determines which rows are those of this set. */
static enum ct_status choose_part(struct labeling *s)
{
	const struct ct_dataset_spec *spec = s->spec;
	const struct ct_label_list *l = &s->list;
	const bool of_training = !spec->train_labels || strcmp(spec->train_labels, spec->labels) == 0;

	s->part = CT_LABEL_TRAIN;
	if (spec->val_fraction > 0 && l->per_part[CT_LABEL_VAL]) {
		CT_FAIL(CT_DATA,
			"%s: the column \"%s\" marks %zu rows as evaluation data, but data.val_fraction is also set",
			s->file, l->split, l->per_part[CT_LABEL_VAL]);
		return ct_error_hint("remove data.val_fraction, or ignore the column with data.labels.split=none");
	}
	if (spec->train || spec->val_fraction > 0 || (!of_training && !l->split))
		return CT_OK;
	s->part = l->per_part[CT_LABEL_VAL] ? CT_LABEL_VAL : CT_LABEL_TEST;
	if (l->per_part[s->part])
		return CT_OK;
	if (l->split)
		CT_FAIL(CT_DATA, "%s: the column \"%s\" marks no row as evaluation data", s->file, l->split);
	else
		CT_FAIL(CT_DATA, "%s has no column that divides the images, so there is no evaluation data", s->file);
	return ct_error_hint(
		"data.val_fraction=0.2 uses 20 %% of the images of each class for evaluation, data.val_labels is a file for "
		"the evaluation data, and data.val=none trains without evaluation");
}

static enum ct_status classes_of_training(struct labeling *s)
{
	const struct ct_dataset_spec *spec = s->spec;
	const struct ct_label_columns columns = {spec->image_column, spec->class_column, spec->split_column};
	enum ct_status st;
	char *path;

	if (spec->train || !spec->train_labels || strcmp(spec->train_labels, spec->labels) == 0) {
		s->any_zeros = ct_label_list_has_numbers(&s->list);
		return ct_label_list_classes(&s->list, s->file, s->classes);
	}
	CT_TRY_ALLOC(path = ct_path_join(spec->dir && spec->dir[0] ? spec->dir : ".", spec->train_labels));
	st = ct_label_list_load(path, &columns, &s->training);
	if (st == CT_OK)
		st = ct_label_list_classes(&s->training, path, s->classes);
	s->any_zeros = ct_label_list_has_numbers(&s->training);
	ct_free(path);
	return st;
}

/* A label is a class as it is written, or else without leading zeros. */
static void remove_zeros(struct labeling *s)
{
	for (size_t i = 0; i < s->list.n; i++) {
		struct ct_label_row *row = &s->list.rows[i];

		if (ct_class_list_find(s->classes, row->label) < 0)
			ct_label_row_remove_zeros(row);
	}
}

/* Warns if the other list has some of the same images as training data. */
static void warn_shared_images(const struct labeling *s)
{
	const struct ct_label_row *first = NULL;
	const char *root = s->spec->classes_of;
	size_t n = 0;

	if (!root || !s->spec->path || strcmp(root, s->spec->path) != 0)
		return;
	for (size_t i = 0; i < s->training.n; i++) {
		const struct ct_label_row *row = &s->training.rows[i];
		uint32_t image;

		if (row->part != CT_LABEL_TRAIN)
			continue;
		if (find_images(s, row, &image) != 1 || s->row_of[image] == NONE ||
		    s->list.rows[s->row_of[image]].part != s->part)
			continue;
		first = first ? first : &s->list.rows[s->row_of[image]];
		n++;
	}
	if (n)
		CT_WARN("%s:%u: \"%s\" is also training data (%zu such image%s), so the accuracy is too high: remove these lines from one of the files",
			s->file, first->line, first->image, n, ct_plural((int64_t)n));
}

static enum ct_status unknown_class(const struct labeling *s, const struct ct_label_row *row)
{
	char shown[80];

	ct_name_escape(row->label, strlen(row->label), shown, sizeof(shown));
	if (s->numbered) {
		CT_FAIL(CT_DATA, "%s:%u: the list of %d classes does not contain the class \"%s\"", s->file, row->line,
			s->classes->n, shown);
		return ct_error_hint(
			"data.classes_file has one line per class, and a label is a name in it or a number from 0");
	}
	CT_FAIL(CT_DATA,
		"%s:%u: the class \"%s\" is only in the evaluation data; the training data has %d classes without it",
		s->file, row->line, shown, s->classes->n);
	return ct_error_hint("add images of this class to the training data, or remove the line");
}

static enum ct_status label_of(const struct labeling *s, const struct ct_label_row *row, int32_t *label)
{
	*label = ct_class_list_find(s->classes, row->label);
	if (*label < 0 && s->numbered && ct_label_parse(row->label, strlen(row->label), label) &&
	    *label >= s->classes->n)
		*label = -1;
	return *label < 0 ? unknown_class(s, row) : CT_OK;
}

/* Removes the images without a row of this part from `images`, and sets the labels of the others. */
static enum ct_status keep_labeled(const struct labeling *s, struct ct_image_dir_images *images, int32_t *labels)
{
	size_t kept = 0, unlisted = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct ct_label_row *row = s->row_of[i] == NONE ? NULL : &s->list.rows[s->row_of[i]];

		unlisted += !row;
		if (!row || row->part != s->part)
			continue;
		CT_TRY(label_of(s, row, &labels[kept]));
		images->at[kept++] = images->at[i];
	}
	images->n = kept;
	if (unlisted)
		CT_INFO("%s: %zu images in %s are not in this list, and are not used", s->file, unlisted, s->root);
	return CT_OK;
}

static void warn_missing_classes(const struct labeling *s, const int32_t *labels, size_t n)
{
	int n_missing = 0, first = 0;
	uint8_t *has = CT_NEW_ARRAY(uint8_t, (size_t)s->classes->n);

	for (size_t i = 0; i < n && has; i++)
		has[labels[i]] = 1;
	for (int k = s->classes->n - 1; k >= 0 && has; k--) {
		n_missing += !has[k];
		first = has[k] ? first : k;
	}
	if (n_missing)
		CT_WARN("%s: %d of the %d classes of the training data have no image in the evaluation data; the first one is \"%s\"",
			s->file, n_missing, s->classes->n, s->classes->names[first]);
	ct_free(has);
}

static enum ct_status load(struct labeling *s, struct ct_image_dir_images *images, int32_t **labels)
{
	const struct ct_dataset_spec *spec = s->spec;
	const struct ct_label_columns columns = {spec->image_column, spec->class_column, spec->split_column};

	CT_TRY(ct_label_list_load(s->file, &columns, &s->list));
	CT_TRY(choose_part(s));
	s->numbered = s->any_zeros = s->classes->n > 0;
	if (!s->numbered)
		CT_TRY(classes_of_training(s));
	if (s->any_zeros)
		remove_zeros(s);
	CT_TRY(scan(s, images));
	CT_TRY(index_images(s, images));
	CT_TRY(match_rows(s));
	warn_shared_images(s);
	CT_TRY_ALLOC(*labels = CT_NEW_ARRAY(int32_t, images->n));
	CT_TRY(keep_labeled(s, images, *labels));
	if (!spec->train && spec->val_fraction <= 0)
		warn_missing_classes(s, *labels, images->n);
	return CT_OK;
}

enum ct_status ct__folder_labels_load(const char *root, const struct ct_dataset_spec *spec,
				      struct ct_class_list *classes, struct ct_image_dir_images *images,
				      int32_t **labels)
{
	struct labeling s = {.root = root, .spec = spec, .classes = classes};
	enum ct_status st;
	char *file;

	*images = (struct ct_image_dir_images){0};
	*labels = NULL;
	CT_TRY_ALLOC(file = ct_path_join(spec->dir && spec->dir[0] ? spec->dir : ".", spec->labels));
	s.file = file;
	st = load(&s, images, labels);
	ct_label_list_release(&s.list);
	ct_label_list_release(&s.training);
	ct_free(s.entries);
	ct_free(s.row_of);
	ct_free(file);
	return st;
}
