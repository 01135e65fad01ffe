/* Directories of base/file.h. A directory tree is removed through descriptors that are opened relative to each other
 * and without following links: if someone replaces a directory with a link in the meantime, nothing outside of the tree
 * is removed. Entries that another process removes first are not errors. Each level keeps a descriptor open, so the
 * depth is limited. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define MAX_DEPTH 64

static enum ct_status fail_errno(const char *doing, const char *path, const char *name)
{
	int err = errno;

	return CT_FAIL(err == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot %s %s%s%s: %s", doing, path, name ? "/" : "",
		       name ? name : "", strerror(err));
}

/* It is not an error if the directory already exists. */
static enum ct_status make_one(const char *path)
{
	struct stat sb;
	int err;

	if (mkdir(path, 0777) == 0)
		return CT_OK;
	/* With a read-only parent, mkdir fails with EROFS or EACCES even if the directory exists. */
	err = errno;
	if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
		return CT_OK;
	errno = err;
	return fail_errno("make directory", path, NULL);
}

enum ct_status ct_dir_make(const char *path)
{
	enum ct_status st = CT_OK;
	char *copy;

	CT_TRY_ALLOC(copy = ct_strdup(path));
	for (char *p = copy + (copy[0] == '/'); st == CT_OK && (p = strchr(p, '/')); p++) {
		*p = '\0';
		st = make_one(copy);
		*p = '/';
	}
	if (st == CT_OK)
		st = make_one(copy);
	ct_free(copy);
	return st;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes everything in the directory that is open as `fd`, and closes fd. */
static enum ct_status remove_entries(int fd, const char *path, int depth)
{
	enum ct_status st = CT_OK;
	struct dirent *e;
	DIR *d = fdopendir(fd);

	if (!d) {
		st = fail_errno("open directory", path, NULL);
		close(fd);
		return st;
	}
	while (st == CT_OK && (errno = 0, e = readdir(d))) {
		int sub;

		if (is_dots(e->d_name) || unlinkat(dirfd(d), e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM) {
			st = fail_errno("remove", path, e->d_name);
			break;
		}
		sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0) {
			st = fail_errno("open directory", path, e->d_name);
		} else if (depth >= MAX_DEPTH) {
			close(sub);
			st = CT_FAIL(CT_IO, "cannot remove %s: directories are nested more than %d deep", path,
				     MAX_DEPTH);
		} else {
			st = remove_entries(sub, path, depth + 1);
		}
		if (st == CT_OK && unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT)
			st = fail_errno("remove", path, e->d_name);
	}
	if (st == CT_OK && errno != 0 && errno != ENOENT)
		st = fail_errno("read directory", path, NULL);
	closedir(d);
	return st;
}

enum ct_status ct_dir_remove(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return CT_OK;
	if (fd < 0)
		return fail_errno("open directory", path, NULL);
	CT_TRY(remove_entries(fd, path, 0));
	if (rmdir(path) != 0 && errno != ENOENT)
		return fail_errno("remove", path, NULL);
	return CT_OK;
}

static enum ct_status append_name(char ***names, size_t *n, size_t *cap, const char *name)
{
	CT_TRY_GROW(*names, *n, *cap);
	CT_TRY_ALLOC((*names)[*n] = ct_strdup(name));
	(*n)++;
	return CT_OK;
}

enum ct_status ct_dir_list(const char *path, char ***names, size_t *n)
{
	size_t count = 0, cap = 0;
	enum ct_status st = CT_OK;
	char **list = NULL;
	struct dirent *e;
	DIR *d = opendir(path);

	if (!d)
		return fail_errno("open directory", path, NULL);
	while (st == CT_OK && (errno = 0, e = readdir(d))) {
		if (!is_dots(e->d_name))
			st = append_name(&list, &count, &cap, e->d_name);
	}
	if (st == CT_OK && errno != 0)
		st = fail_errno("read directory", path, NULL);
	closedir(d);
	if (st < 0) {
		ct_dir_list_free(list, count);
		return st;
	}
	ct_strings_sort(list, count);
	*names = list;
	*n = count;
	return CT_OK;
}

void ct_dir_list_free(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ct_free(names[i]);
	ct_free(names);
}
