/* What is to be packed: the images of a folder, their labels and keys. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/pack_impl.h"

#define MAX_DEPTH 16
#define MAX_ITEMS ((size_t)1 << 30)

char *pack_shown(const char *path)
{
	struct ct_str s = {0};

	ct_str_add_escaped(&s, path, strlen(path), 200);
	return s.s;
}

/* CT_DATA with "src/path: text" and a hint. */
static enum ct_status refuse(const char *src, const char *path, const char *text, const char *hint)
{
	char *shown = pack_shown(path);

	(void)CT_FAIL(CT_DATA, "%s%s%s: %s", src, path[0] ? "/" : "", shown ? shown : "", text);
	ct_error_hint("%s", hint);
	ct_free(shown);
	return CT_DATA;
}

static bool is_image(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* Takes path. */
static enum ct_status add_item(struct pack_list *list, char *path, const struct stat *sb, int32_t label)
{
	if (list->n == list->cap) {
		size_t cap = list->cap ? list->cap * 2 : 1024;
		struct pack_item *v = cap <= MAX_ITEMS ? ct_realloc(list->v, cap, sizeof(*v)) : NULL;

		if (!v) {
			ct_free(path);
			return CT_NOMEM;
		}
		list->v = v;
		list->cap = cap;
	}
	list->v[list->n++] = (struct pack_item){
		.path = path,
		.size = (uint64_t)sb->st_size,
		.mtime_ns = (int64_t)sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec,
		.label = label,
	};
	return CT_OK;
}

static enum ct_status walk(const char *src, const char *dir, int32_t label, int depth, struct pack_list *list);

/* Takes path. Hidden files are not looked at. */
static enum ct_status visit(const char *src, char *path, const char *name, int32_t label, int depth,
			    struct pack_list *list)
{
	char *file = ct_path_join(src, path);
	enum ct_status st = file ? CT_OK : CT_NOMEM;
	struct stat sb;

	if (st == CT_OK && name[0] != '.' && stat(file, &sb) != 0)
		st = refuse(src, path, strerror(errno), "remove it, or make it readable");
	else if (st == CT_OK && name[0] != '.' && S_ISREG(sb.st_mode) && is_image(name)) {
		st = add_item(list, path, &sb, label);
		path = NULL;
	} else if (st == CT_OK && name[0] != '.' && S_ISDIR(sb.st_mode)) {
		st = depth < MAX_DEPTH ? walk(src, path, label, depth + 1, list)
				       : refuse(src, path, "too many folders deep", "is there a loop of links?");
	}
	ct_free(file);
	ct_free(path);
	return st;
}

/* Images below src/dir in bytewise order, `dir` "" or a path below src. */
static enum ct_status walk(const char *src, const char *dir, int32_t label, int depth, struct pack_list *list)
{
	char *full, **names;
	enum ct_status st;
	size_t n;

	CT_TRY_ALLOC(full = dir[0] ? ct_path_join(src, dir) : ct_strdup(src));
	st = ct_dir_list(full, &names, &n);
	ct_free(full);
	CT_TRY(st);
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		char *path = dir[0] ? ct_path_join(dir, names[i]) : ct_strdup(names[i]);

		st = path ? visit(src, path, names[i], label, depth, list) : CT_NOMEM;
	}
	ct_dir_list_free(names, n);
	return st;
}

/* The folders of src, sorted; *loose: images beside them. */
static enum ct_status list_folders(const char *src, struct pack_names *folders, size_t *loose)
{
	enum ct_status st = CT_OK;
	char **names, *path;
	struct stat sb;
	size_t n;

	CT_TRY(ct_dir_list(src, &names, &n));
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		if (names[i][0] == '.')
			continue;
		path = ct_path_join(src, names[i]);
		if (!path)
			st = CT_NOMEM;
		else if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
			st = pack_names_add(folders, names[i], strlen(names[i]));
		else
			*loose += is_image(names[i]);
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status check_folders(const char *src, const struct pack_names *folders, size_t loose)
{
	char text[160];

	if (folders->n == 0 && loose == 0)
		return refuse(src, "", "holds no images",
			      "give a folder with one folder of .jpg or .png files a class");
	if (loose == 0)
		return CT_OK;
	snprintf(text, sizeof(text), "%zu images lie %s, so their classes are not known", loose,
		 folders->n == 0 ? "here without class folders" : "beside the class folders");
	return refuse(src, "", text,
		      folders->n == 0
			      ? "ImageNet's val comes like this: give --val-map FILE with lines \"FILE CLASS\" (or "
				"LOC_val_solution.csv), or make one folder a class"
			      : "move them into folders, or give --val-map FILE that names the class of every image");
}

static enum ct_status add_folder(const char *src, const char *name, struct pack_list *list)
{
	int label = pack_names_find(&list->classes, name, strlen(name));
	size_t before = list->n;

	if (label < 0)
		return refuse(src, name, "is not in the list of classes",
			      "the list is that of --classes, or classes.txt beside the shards");
	CT_TRY(walk(src, name, label, 1, list));
	if (list->n == before)
		return refuse(src, name, "this class holds no images",
			      "every folder is a class: remove it, or put .jpg or .png files there");
	return CT_OK;
}

static enum ct_status list_by_folder(const char *src, struct pack_list *list)
{
	struct pack_names folders = {0};
	size_t loose = 0;
	bool name_classes = list->classes.n == 0;
	enum ct_status st = list_folders(src, &folders, &loose);

	if (st == CT_OK)
		st = check_folders(src, &folders, loose);
	for (size_t i = 0; i < folders.n && name_classes && st == CT_OK; i++)
		st = pack_names_add(&list->classes, folders.v[i], strlen(folders.v[i]));
	for (size_t i = 0; i < folders.n && st == CT_OK; i++)
		st = add_folder(src, folders.v[i], list);
	pack_names_release(&folders);
	return st;
}

/* Its path up to the extension, as WebDataset can hold it: readers take the first dot of the last part for the end of
 * the key, and indexes hold names between blanks. */
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

/* v: items in the order of their keys. Those that share one get keys with the extension in them; *n counts them. final:
 * sharing is an error instead. */
static enum ct_status part_keys(struct pack_item **v, size_t n_items, bool final, size_t *n)
{
	*n = 0;
	for (size_t i = 0, end; i < n_items; i = end) {
		for (end = i + 1; end < n_items && strcmp(v[i]->key, v[end]->key) == 0;)
			end++;
		if (end == i + 1)
			continue;
		if (final) {
			(void)CT_FAIL(CT_DATA, "two images would have the key \"%.200s\", one of %.20s", v[i]->key,
				      strrchr(v[i]->path, '.'));
			ct_error_hint("rename one of them");
			return CT_DATA;
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

/* Without a list given: the list that is made here. */
static enum ct_status write_classes(struct pack_list *list)
{
	struct ct_str s = {0};

	for (size_t i = 0; i < list->classes.n; i++) {
		if (strpbrk(list->classes.v[i], "\n\r")) {
			ct_str_release(&s);
			return CT_FAIL(CT_DATA, "the name of class %zu holds a line break", i);
		}
		ct_str_addf(&s, "%zu %s\n", i, list->classes.v[i]);
	}
	list->classes_text = s.s;
	return ct_str_status(&s);
}

enum ct_status pack_list_make(const struct ct_pack_opts *opts, const char *classes, struct pack_list *out)
{
	*out = (struct pack_list){0};
	if (classes)
		CT_TRY(pack_classes_read(classes, &out->classes, &out->classes_text));
	if (opts->val_map) {
		CT_TRY(walk(opts->src, "", -1, 0, out));
		if (out->n == 0)
			return refuse(opts->src, "", "holds no images", "give the folder of the .JPEG files");
		CT_TRY(pack_map_apply(opts->val_map, out));
	} else {
		CT_TRY(list_by_folder(opts->src, out));
	}
	CT_TRY(make_keys(out));
	if (!out->classes_text)
		CT_TRY(write_classes(out));
	return opts->shuffle ? shuffle(out, opts->seed) : CT_OK;
}

void pack_list_release(struct pack_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		ct_free(list->v[i].path);
		ct_free(list->v[i].key);
	}
	ct_free(list->v);
	pack_names_release(&list->classes);
	ct_free(list->classes_text);
	*list = (struct pack_list){0};
}
