/* The class list comes from the first of these that exists: the file that the config names, a classes.txt, the
 * directories of the training data, the directories themselves. A list that the config names must contain every
 * directory. A classes.txt may have been put there for another purpose, so it is dropped with a warning if it is
 * invalid or lacks a directory. Evaluation data takes the classes of the training data, so labels mean the same in both
 * sets even if it has no images of some class; a class that only it has is an error. */
#include "data/formats/imagefolder_classes_impl.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/label.h"
#include "data/formats/imagefolder_scan.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

struct labeling {
	const char *root;
	struct ct_class_list *classes;
	bool of_training; /* `classes` are those of the training data */
};

enum ct_status ct__folder_classes_load(const struct ct_dataset_spec *spec, struct ct_class_list *classes)
{
	const char *dir = spec->dir && spec->dir[0] ? spec->dir : ".", *duplicate;
	bool given = spec->classes && spec->classes[0];
	enum ct_status st = CT_OK;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(dir, given ? spec->classes : "classes.txt"));
	if (given || ct_file_exists(path))
		st = ct_class_list_load(path, classes);
	duplicate = st == CT_OK ? ct_class_list_duplicate(classes) : NULL;
	if (duplicate)
		st = CT_FAIL(CT_DATA, "%s: two classes have the name \"%s\", so it cannot identify a directory", path,
			     duplicate);
	ct_free(path);
	if (st == CT_DATA && !given) {
		CT_WARN("class names are not used: %s", ct_error_message());
		ct_error_clear();
		ct_class_list_release(classes);
		st = CT_OK;
	}
	return st;
}

/* Uses the class directories of the training data as the class list, so that the evaluation data need not have images
 * of every class. Does nothing if there are none. */
static enum ct_status classes_of_training(struct labeling *s, const struct ct_dataset_spec *spec)
{
	enum ct_status st;
	char *path, **names;
	size_t n;

	if (spec->train || !spec->classes_of)
		return CT_OK;
	CT_TRY_ALLOC(path = ct_path_join(spec->dir && spec->dir[0] ? spec->dir : ".", spec->classes_of));
	st = ct_image_dir_classes(path, &names, &n);
	ct_free(path);
	if (st == CT_NOT_FOUND) {
		ct_error_clear();
		return CT_OK;
	}
	CT_TRY(st);
	if (n > 0 && n <= CT_MAX_LABEL) {
		st = ct_class_list_from_ids(names, (int)n, s->classes);
		s->of_training = true;
	}
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status unknown_class(const struct labeling *s, const struct ct_dataset_spec *spec, const char *directory)
{
	char shown[80];

	ct_name_escape(directory, strlen(directory), shown, sizeof(shown));
	if (s->of_training) {
		CT_FAIL(CT_DATA,
			"%s/%s: this class is only in the evaluation data; the training data (%s) has no such directory",
			s->root, shown, spec->classes_of);
		return ct_error_hint(
			"move some of its images to a directory of that name in the training data, or remove it");
	}
	CT_FAIL(CT_DATA, "%s/%s: the class list does not contain this directory", s->root, shown);
	return ct_error_hint(
		"data.classes_file must have one line per class: the name of the directory, or \"INDEX DIRECTORY NAME\"");
}

static void warn_missing_classes(const struct labeling *s, const int *labels, size_t n)
{
	const int n_missing = s->classes->n - (int)n; /* the labels differ */

	for (int k = 0; n_missing > 0 && k < s->classes->n; k++) {
		size_t i = 0;

		while (i < n && labels[i] != k)
			i++;
		if (i < n)
			continue;
		CT_WARN("%s: %d of the %d classes of the training data have no directory here; the first one is \"%s\"",
			s->root, n_missing, s->classes->n, s->classes->names[k]);
		return;
	}
}

/* Releases classes.txt if it does not contain all directories. */
static void check_classes_txt(const struct labeling *s, char *const *directories, size_t n)
{
	char shown[80];

	for (size_t i = 0; i < n && s->classes->n; i++) {
		if (ct_class_list_find(s->classes, directories[i]) >= 0)
			continue;
		ct_name_escape(directories[i], strlen(directories[i]), shown, sizeof(shown));
		CT_WARN("classes.txt is not used: it does not contain \"%s\", which is a directory in %s", shown,
			s->root);
		ct_class_list_release(s->classes);
	}
}

enum ct_status ct__folder_classes_label(const char *root, const struct ct_dataset_spec *spec, char *const *directories,
					size_t n, struct ct_class_list *classes, int *labels)
{
	struct labeling s = {.root = root, .classes = classes};

	if (!(spec->classes && spec->classes[0]))
		check_classes_txt(&s, directories, n);
	if (classes->n == 0)
		CT_TRY(classes_of_training(&s, spec));
	if (classes->n == 0)
		CT_TRY(ct_class_list_from_ids(directories, (int)n, classes));
	for (size_t i = 0; i < n; i++) {
		labels[i] = ct_class_list_find(classes, directories[i]);
		if (labels[i] < 0)
			return unknown_class(&s, spec, directories[i]);
	}
	if (s.of_training)
		warn_missing_classes(&s, labels, n);
	return CT_OK;
}
