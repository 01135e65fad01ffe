/* Lists of labels are looked for first, then class directories, and only if there are none, lists in the directory
 * above, which may belong to other directories. Errors are collected on the way, and the one that explains most is
 * reported: if there was a file that appears to be a list, why it cannot be used, otherwise that there are no class
 * directories. Paths must be valid UTF-8, because they go into a YAML file. */
#include "trainer/tools/init/image_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/formats/imagefolder_scan.h"
#include "trainer/tools/init/layout_labels_impl.h"

/* Returns the first of the names that is in the list, or NULL. */
static const char *first_of(const char *const *names, size_t n_names, char *const *list, size_t n)
{
	for (size_t k = 0; k < n_names; k++) {
		for (size_t i = 0; i < n; i++) {
			if (strcmp(list[i], names[k]) == 0)
				return names[k];
		}
	}
	return NULL;
}

static enum ct_status no_classes(const char *dir)
{
	struct ct_image_dir_images found;
	size_t n_images;

	CT_TRY(ct_image_dir_scan(dir, "", false, &found));
	n_images = found.n;
	ct_image_dir_images_release(&found);
	if (n_images) {
		CT_FAIL(CT_DATA, "%s contains %zu image%s but no class directories, so the classes are unknown", dir,
			n_images, ct_plural((int64_t)n_images));
		return ct_error_hint(
			"create one directory per class and move the images into them, for example cats/ and dogs/; or add labels.csv with the columns image and label");
	}
	CT_FAIL(CT_DATA, "%s contains neither class directories nor images", dir);
	return ct_error_hint("put the images of each class into a directory: DIR/cats/1.jpg, DIR/dogs/1.jpg and so on");
}

static enum ct_status one_class(const char *dir, const char *name)
{
	char *below = ct_path_join(dir, name), **names = NULL;
	enum ct_status st = below ? CT_OK : CT_NOMEM;
	size_t n = 0;

	if (st == CT_OK)
		st = ct_image_dir_classes(below, &names, &n);
	if (st == CT_OK && n > 1) {
		st = CT_FAIL(CT_DATA, "%s contains only the directory \"%s\", which itself contains %zu directories",
			     dir, name, n);
		ct_error_hint("if these are the classes: ctrain init %s", below);
	} else if (st == CT_OK) {
		CT_FAIL(CT_DATA, "%s contains only one class directory, \"%s\"", dir, name);
		st = ct_error_hint(
			"a classifier needs at least two classes: add a directory for what is not in this one");
	}
	ct_dir_list_free(names, n);
	ct_free(below);
	return st;
}

/* Checks the directories that would be the classes. */
static enum ct_status check_classes(const char *dir)
{
	enum ct_status st = CT_OK;
	char **names;
	size_t n;

	CT_TRY(ct_image_dir_classes(dir, &names, &n));
	if (n == 0)
		st = no_classes(dir);
	else if (n == 1)
		st = one_class(dir, names[0]);
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status find_classes(struct ct_layout *l)
{
	static const char *const trains[] = {"train", "training"}, *const vals[] = {"val", "valid", "validation",
										    "test"};
	enum ct_status st;
	char **names, *classes;
	size_t n;

	CT_TRY(ct_image_dir_classes(l->dir, &names, &n));
	const char *train = first_of(trains, CT_ARRAY_LEN(trains), names, n);
	const char *val = train ? first_of(vals, CT_ARRAY_LEN(vals), names, n) : NULL;
	snprintf(l->train, sizeof(l->train), "%s", train ? train : ".");
	snprintf(l->val, sizeof(l->val), "%s", val ? val : "");
	l->has_val = val != NULL;
	ct_dir_list_free(names, n);
	CT_TRY_ALLOC(classes = train ? ct_path_join(l->dir, train) : ct_strdup(l->dir));
	st = check_classes(classes);
	ct_free(classes);
	return st;
}

/* Finds the files with labels, or else the class directories. *unused: why a file that appears to be a list of labels
 * is not used; its status is CT_OK if there is no such file. */
static enum ct_status find_any(struct ct_layout *l, struct ct_error *unused)
{
	struct ct__no_labels in_dir = {0}, beside = {0};
	struct ct_error no_classes;
	enum ct_status st = ct__layout_find_labels(l, &in_dir);

	if (in_dir.is_list && !l->labels[0])
		*unused = in_dir.error;
	if (st < 0 || l->labels[0])
		return st;
	st = find_classes(l);
	if (st != CT_DATA)
		return st;
	ct_error_save(&no_classes);
	ct_error_clear();
	st = ct__layout_find_labels_beside(l, &beside);
	/* Other files beside the directory may be about other directories. */
	if (st < 0 && beside.is_list && unused->status == CT_OK)
		*unused = beside.error;
	if (st < 0 || l->labels[0])
		return st;
	return ct_error_restore(in_dir.error.status < 0 ? &in_dir.error : &no_classes);
}

/* Sets the absolute path. */
static enum ct_status find_dir(const char *dir, struct ct_layout *out)
{
	*out = (struct ct_layout){.train = "."};
	if (!realpath(dir, out->dir))
		return CT_FAIL(errno == ENOENT || errno == ENOTDIR ? CT_NOT_FOUND : CT_IO,
			       "cannot open the directory %s: %s", dir, strerror(errno));
	if (!ct_utf8_valid(out->dir, strlen(out->dir))) {
		CT_FAIL(CT_DATA, "%s: the path is not valid UTF-8, as YAML requires", dir);
		return ct_error_hint("rename the directory");
	}
	return CT_OK;
}

enum ct_status ct_layout_find(const char *dir, const char *labels, struct ct_layout *out)
{
	struct ct_error unused = {0};

	CT_TRY(find_dir(dir, out));
	if (!labels)
		return find_any(out, &unused);
	return strcmp(labels, "none") == 0 ? find_classes(out) : ct__layout_use_labels(labels, out);
}

void ct_layout_find_list(const char *dir, struct ct_layout *out, struct ct_error *unused)
{
	*unused = (struct ct_error){0};
	if (find_dir(dir, out) < 0 || find_any(out, unused) < 0)
		ct_error_clear();
	if (out->labels[0])
		*unused = (struct ct_error){0};
}

enum ct_status ct_layout_open(const struct ct_layout *l, bool train, ct_dataset **out)
{
	const struct ct_dataset_spec spec = {
		.name = "imagefolder",
		.dir = l->dir,
		.path = train || !l->val[0] ? l->train : l->val,
		.classes_of = l->train,
		.labels = l->labels[0] ? !train && l->val_labels[0] ? l->val_labels : l->labels : NULL,
		.train_labels = l->labels,
		.threads = ct_cpu_count(),
		.train = train};

	return ct_dataset_open(&spec, out);
}
