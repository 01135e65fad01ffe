/* Directories are read depth first. Each level knows its parents by device and inode, so that a link to one of them
 * does not lead into an endless loop; other links are followed. Entries come in the order of the file system, which
 * differs between hosts, so the result is sorted at the end, by directory and then by name as in torchvision: the
 * indexes of samples must be the same on all ranks. Paths are stored one after the other in one string, because a data
 * set may have millions of them. Threads take class directories one by one, each with a result of its own. */
#include "data/formats/imagefolder_scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/work_queue.h"
#include "data/files/label.h"

#define MAX_DEPTH 32
#define MAX_THREADS 64

/* A directory that is being scanned, linked to its parents. */
struct level {
	const struct level *up;
	dev_t dev;
	ino_t ino;
	int depth;
};

void ct_image_dir_images_release(struct ct_image_dir_images *f)
{
	ct_str_release(&f->paths);
	ct_free(f->at);
	*f = (struct ct_image_dir_images){0};
}

static enum ct_status fail_errno(const char *path)
{
	int err = errno;

	return CT_FAIL(err == ENOENT || err == ENOTDIR ? CT_NOT_FOUND : CT_IO, "cannot read directory %s: %s", path,
		       strerror(err));
}

static bool is_folder(DIR *dir, const struct dirent *e)
{
	struct stat sb;

	if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	return fstatat(dirfd(dir), e->d_name, &sb, 0) == 0 && S_ISDIR(sb.st_mode);
}

static bool has_image_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && dot > name && ct_image_extension(dot + 1, strlen(dot + 1));
}

static enum ct_status add_image(struct ct_image_dir_images *f, const char *sub, const char *name)
{
	CT_TRY_GROW(f->at, f->n, f->cap);
	f->at[f->n++] = f->paths.len;
	ct_str_addf(&f->paths, "%s%s%s", sub, sub[0] ? "/" : "", name);
	ct_str_add_bytes(&f->paths, "", 1);
	return ct_str_status(&f->paths);
}

static enum ct_status walk(const char *root, const char *sub, bool deep, const struct level *up,
			   struct ct_image_dir_images *f);

static enum ct_status walk_below(const char *root, const char *sub, const char *name, const struct level *here,
				 struct ct_image_dir_images *f)
{
	enum ct_status st;
	char *below;

	CT_TRY_ALLOC(below = sub[0] ? ct_strfmt("%s/%s", sub, name) : ct_strdup(name));
	st = walk(root, below, true, here, f);
	ct_free(below);
	return st;
}

static enum ct_status read_entries(const char *root, const char *sub, bool deep, DIR *dir, const struct level *here,
				   struct ct_image_dir_images *f)
{
	const struct dirent *e;

	for (;;) {
		errno = 0;
		e = readdir(dir);
		if (!e)
			return errno ? fail_errno(sub) : CT_OK;
		if (e->d_name[0] == '.')
			continue;
		if (is_folder(dir, e)) {
			if (deep)
				CT_TRY(walk_below(root, sub, e->d_name, here, f));
		} else if (has_image_name(e->d_name)) {
			CT_TRY(add_image(f, sub, e->d_name));
		} else {
			f->n_others++;
		}
	}
}

static enum ct_status walk(const char *root, const char *sub, bool deep, const struct level *up,
			   struct ct_image_dir_images *f)
{
	struct level here = {.up = up, .depth = up ? up->depth + 1 : 0};
	enum ct_status st = CT_OK;
	struct stat sb;
	char *path;
	DIR *dir;

	CT_TRY_ALLOC(path = sub[0] ? ct_path_join(root, sub) : ct_strdup(root));
	dir = opendir(path);
	if (!dir || fstat(dirfd(dir), &sb) != 0) {
		st = fail_errno(path);
		goto done;
	}
	here.dev = sb.st_dev;
	here.ino = sb.st_ino;
	for (const struct level *l = up; l; l = l->up) {
		if (l->dev == here.dev && l->ino == here.ino)
			goto done; /* a link to a parent directory */
	}
	if (here.depth > MAX_DEPTH) {
		st = CT_FAIL(CT_DATA, "%s: directories are nested more than %d deep", path, MAX_DEPTH);
		goto done;
	}
	st = read_entries(root, sub, deep, dir, &here, f);
done:
	if (dir)
		closedir(dir);
	ct_free(path);
	return st;
}

/* Compares the directories first, each as one string, and then the names. */
static int compare_paths(const char *a, const char *b)
{
	const char *sa = strrchr(a, '/'), *sb = strrchr(b, '/');
	size_t na = sa ? (size_t)(sa - a) : 0, nb = sb ? (size_t)(sb - b) : 0;
	int order = memcmp(a, b, na < nb ? na : nb);

	if (order == 0)
		order = (na > nb) - (na < nb);
	return order ? order : strcmp(a + na, b + nb);
}

static int by_path(const void *a, const void *b, void *paths)
{
	return compare_paths((const char *)paths + *(const uint64_t *)a, (const char *)paths + *(const uint64_t *)b);
}

enum ct_status ct_image_dir_scan(const char *root, const char *sub, bool deep, struct ct_image_dir_images *out)
{
	struct level top = {0};
	enum ct_status st;
	struct stat sb;

	*out = (struct ct_image_dir_images){0};
	if (stat(root, &sb) != 0)
		return fail_errno(root);
	top.dev = sb.st_dev;
	top.ino = sb.st_ino;
	st = walk(root, sub, deep, sub[0] ? &top : NULL, out);
	if (st < 0) {
		ct_image_dir_images_release(out);
		return st;
	}
	if (out->n)
		qsort_r(out->at, out->n, sizeof(*out->at), by_path, out->paths.s);
	return CT_OK;
}

/* Threads take class directories one by one. */
struct scanning {
	const char *root;
	char *const *directories;          /* [n] */
	struct ct_image_dir_images *found; /* [n] */
};

static enum ct_status scan_some(ct_work_queue *q, void *arg)
{
	const struct scanning *x = arg;
	size_t i;

	while (ct_work_next(q, &i))
		CT_TRY(ct_image_dir_scan(x->root, x->directories[i], true, &x->found[i]));
	return CT_OK;
}

enum ct_status ct_image_dir_scan_all(const char *root, char *const *directories, size_t n, int n_threads,
				     struct ct_image_dir_images *found)
{
	struct scanning x = {.root = root, .directories = directories, .found = found};

	return ct_work_run(n, n_threads < MAX_THREADS ? n_threads : MAX_THREADS, "ct-scan", scan_some, &x);
}

static enum ct_status read_folders(DIR *dir, const char *root, char ***names, size_t *n)
{
	const struct dirent *e;
	size_t cap = 0;

	for (;;) {
		errno = 0;
		e = readdir(dir);
		if (!e)
			return errno ? fail_errno(root) : CT_OK;
		if (e->d_name[0] == '.' || !is_folder(dir, e))
			continue;
		CT_TRY_GROW(*names, *n, cap);
		CT_TRY_ALLOC((*names)[*n] = ct_strdup(e->d_name));
		++*n;
	}
}

enum ct_status ct_image_dir_classes(const char *root, char ***names, size_t *n)
{
	enum ct_status st;
	DIR *dir = opendir(root);

	*names = NULL;
	*n = 0;
	if (!dir)
		return fail_errno(root);
	st = read_folders(dir, root, names, n);
	closedir(dir);
	if (st < 0) {
		ct_dir_list_free(*names, *n);
		return st;
	}
	ct_strings_sort(*names, *n);
	return CT_OK;
}
