/* The list of images to pack, with their labels and keys. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/formats/imagefolder_scan.h"
#include "data/pack/pack_impl.h"
#include "data/shards/shard_index.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

/* Returns CT_DATA with the message "src/path: reason" and a hint. */
static enum ct_status refuse(const char *src, const char *path, const char *text, const char *hint)
{
	char shown[200];

	ct_name_escape(path, strlen(path), shown, sizeof(shown));
	CT_FAIL(CT_DATA, "%s%s%s: %s", src, path[0] ? "/" : "", shown, text);
	return ct_error_hint("%s", hint);
}

static enum ct_status add_item(struct pack_list *list, const char *src, const char *path, int32_t label)
{
	struct pack_item *item;
	struct stat sb;
	char *full;
	int err;

	CT_TRY_GROW(list->v, list->n, list->cap);
	CT_TRY_ALLOC(full = ct_path_join(src, path));
	err = stat(full, &sb) == 0 ? 0 : errno;
	ct_free(full);
	if (err)
		return refuse(src, path, strerror(err), "remove it, or make it readable");
	item = &list->v[list->n++];
	*item = (struct pack_item){.path = ct_strdup(path),
				   .size = (uint64_t)sb.st_size,
				   .mtime_ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec,
				   .label = label};
	return item->path ? CT_OK : CT_NOMEM;
}

/* Adds the images of src/sub (of src if sub is "") in the order of an imagefolder data set. */
static enum ct_status add_images(struct pack_list *list, const char *src, const char *sub, int32_t label)
{
	struct ct_image_dir_images f;
	enum ct_status st = CT_OK;

	CT_TRY(ct_image_dir_scan(src, sub, true, &f));
	if (f.n == 0 && sub[0])
		CT_WARN("class %s/%s has no images", src, sub);
	if (f.n_others > 0)
		CT_WARN("%s%s%s: %llu files are ignored because they are not .jpg, .jpeg or .png", src,
			sub[0] ? "/" : "", sub, (unsigned long long)f.n_others);
	for (size_t i = 0; i < f.n && st == CT_OK; i++)
		st = add_item(list, src, f.paths.s + f.at[i], label);
	ct_image_dir_images_release(&f);
	return st;
}

/* Refuses images directly in src, because they belong to no class. */
static enum ct_status check_loose(const char *src, size_t n_folders)
{
	struct ct_image_dir_images f;
	char text[120];
	size_t n;

	CT_TRY(ct_image_dir_scan(src, "", false, &f));
	n = f.n;
	ct_image_dir_images_release(&f);
	if (n == 0 && n_folders == 0)
		return refuse(src, "", "contains no images",
			      "give a directory with one sub-directory of .jpg or .png files per class");
	if (n == 0)
		return CT_OK;
	snprintf(text, sizeof(text), "%zu images are %s, so their classes are unknown", n,
		 n_folders == 0 ? "not in class directories" : "next to the class directories");
	return refuse(
		src, "", text,
		n_folders == 0
			? "this is the layout of ImageNet's val: give --val-map FILE with lines \"FILE CLASS\" (or "
			  "LOC_val_solution.csv), or make one directory per class"
			: "move them into directories, or give --val-map FILE with the class of every image");
}

static enum ct_status list_by_folder(const char *src, struct pack_list *list)
{
	enum ct_status st;
	char **names;
	size_t n;

	CT_TRY(ct_image_dir_classes(src, &names, &n));
	st = check_loose(src, n);
	if (st == CT_OK && n > CT_MAX_LABEL)
		st = refuse(src, "", "has too many directories", "every directory counts as a class");
	if (st == CT_OK && list->classes.n == 0)
		st = ct_class_list_from_ids(names, (int)n, &list->classes);
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		int label = ct_class_list_find(&list->classes, names[i]);

		if (label < 0)
			st = refuse(
				src, names[i], "is not in the list of classes",
				"the class list is the file given with --classes, or classes.txt in the directory of the shards");
		else
			st = add_images(list, src, names[i], label);
	}
	ct_dir_list_free(names, n);
	if (st == CT_OK && list->n == 0)
		st = refuse(src, "", "none of its directories contains an image",
			    "give a directory with one sub-directory of .jpg or .png files per class");
	return st;
}

/* The path up to the extension, with characters that WebDataset does not support replaced: readers end the key at
 * the first dot of the file name, and indexes separate names by spaces. */
static char *make_key(const char *path, bool whole)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
	bool utf8 = ct_utf8_valid(path, strlen(path));
	size_t name = slash ? (size_t)(slash - path) + 1 : 0;
	char *key = ct_strndup(path, whole || !dot ? strlen(path) : (size_t)(dot - path));

	for (size_t i = 0; key && key[i]; i++) {
		unsigned char c = (unsigned char)key[i];

		if (c <= ' ' || c == 0x7f || (c > 0x7f && !utf8) || (c == '.' && i >= name))
			key[i] = '_';
	}
	return key;
}

static int by_key(const void *a, const void *b)
{
	const struct pack_item *const *x = a, *const *y = b;

	return strcmp((*x)->key, (*y)->key);
}

/* v [n] has the items ordered by key. Appends the extension to the keys of items with the same key, and counts these
 * items in *n. If `final` is set, equal keys are an error. */
static enum ct_status part_keys(struct pack_item **v, size_t n_items, bool final, size_t *n)
{
	*n = 0;
	for (size_t i = 0, end; i < n_items; i = end) {
		for (end = i + 1; end < n_items && strcmp(v[i]->key, v[end]->key) == 0;)
			end++;
		if (end == i + 1)
			continue;
		if (final) {
			CT_FAIL(CT_DATA, "two images would have the key \"%.200s\"; the extension of one is %.20s",
				v[i]->key, strrchr(v[i]->path, '.'));
			return ct_error_hint("rename one of them");
		}
		for (size_t k = i; k < end; k++, (*n)++) {
			ct_free(v[k]->key);
			CT_TRY_ALLOC(v[k]->key = make_key(v[k]->path, true));
		}
	}
	return CT_OK;
}

static enum ct_status make_keys(struct pack_list *list)
{
	struct pack_item **v = CT_NEW_ARRAY(struct pack_item *, list->n);
	enum ct_status st = v ? CT_OK : CT_NOMEM;
	size_t n = 0;

	for (size_t i = 0; i < list->n && st == CT_OK; i++) {
		v[i] = &list->v[i];
		v[i]->key = make_key(v[i]->path, false);
		st = v[i]->key ? CT_OK : CT_NOMEM;
	}
	if (st == CT_OK) {
		qsort(v, list->n, sizeof(struct pack_item *), by_key);
		st = part_keys(v, list->n, false, &n);
	}
	if (st == CT_OK && n > 0) {
		qsort(v, list->n, sizeof(struct pack_item *), by_key);
		st = part_keys(v, list->n, true, &n);
	}
	ct_free(v);
	return st;
}

static enum ct_status shuffle(struct pack_list *list, uint64_t seed)
{
	uint32_t *perm, n = (uint32_t)list->n;
	struct pack_item *v;

	CT_TRY_ALLOC(perm = CT_NEW_ARRAY(uint32_t, n));
	v = CT_NEW_ARRAY(struct pack_item, n);
	if (v) {
		ct_rng_permutation(seed, 0, perm, n);
		for (uint32_t i = 0; i < n; i++)
			v[i] = list->v[perm[i]];
		ct_free(list->v);
		list->v = v;
		list->cap = n;
	}
	ct_free(perm);
	return v ? CT_OK : CT_NOMEM;
}

/* Makes the class list "INDEX NAME" if none was given. */
static enum ct_status write_classes(struct pack_list *list)
{
	struct ct_str s = {0};
	bool broken = false;

	for (int i = 0; i < list->classes.n; i++) {
		broken |= strpbrk(list->classes.ids[i], "\n\r\t") != NULL;
		ct_str_addf(&s, "%d %s\n", i, list->classes.ids[i]);
	}
	list->classes_text = s.s;
	if (broken)
		return CT_FAIL(
			CT_DATA,
			"the name of a class contains a tab or a line break, which are not allowed in a class list");
	return ct_str_status(&s);
}

static enum ct_status load_classes(const char *path, struct pack_list *list)
{
	const char *twice;
	size_t len;

	CT_TRY(ct_class_list_load(path, &list->classes));
	twice = ct_class_list_duplicate(&list->classes);
	if (twice)
		return CT_FAIL(CT_DATA, "%s: two classes have the name \"%s\"", path, twice);
	return ct_file_read(path, (size_t)64 << 20, &list->classes_text, &len);
}

enum ct_status ct__pack_list_make(const struct ct_pack_opts *opts, const char *classes, struct pack_list *out)
{
	*out = (struct pack_list){0};
	if (classes)
		CT_TRY(load_classes(classes, out));
	if (opts->val_map) {
		CT_TRY(add_images(out, opts->src, "", -1));
		if (out->n == 0)
			return refuse(opts->src, "", "contains no images", "give the directory of the .JPEG files");
		CT_TRY(ct__pack_map_apply(opts->val_map, out));
	} else {
		CT_TRY(list_by_folder(opts->src, out));
	}
	CT_TRY(make_keys(out));
	if (!out->classes_text)
		CT_TRY(write_classes(out));
	return opts->shuffle ? shuffle(out, opts->seed) : CT_OK;
}

void ct__pack_list_release(struct pack_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		ct_free(list->v[i].path);
		ct_free(list->v[i].key);
	}
	ct_free(list->v);
	ct_class_list_release(&list->classes);
	ct_free(list->classes_text);
	*list = (struct pack_list){0};
}
