/* Files that are written under a temporary name and then renamed. The order of the steps makes a crash harmless: the
 * data is synced before the rename, so the new name never refers to an incomplete file, and the directory is synced
 * after it, so the new name survives. The temporary file is in the same directory, since rename works only within a
 * file system, and is removed after every error. Its name contains the process id and the time, so that several
 * processes may replace the same file; the last rename wins. A new file gets its name by a rename that fails if the
 * name is in use; where the file system has no such rename (NFS), the name is looked up directly before the rename.
 *
 * A killed process leaves its temporary file. The next process that replaces the same file removes it when it is a day
 * old. Only the age shows that the process has ended, because it may have run on another host. The age is measured by
 * the clock of the file system: the temporary file of the process that removes others is new. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_impl.h"
#include "base/mem.h"

#define MARK ".tmp-"

char *ct_file_temp_name(const char *path)
{
	return ct_strfmt("%s" MARK "%ld-%llx", path, (long)getpid(), (unsigned long long)ct_now_ns());
}

const char *ct_file_temp_suffix(const char *name)
{
	const char *suffix = strstr(name, MARK), *p = suffix ? suffix + strlen(MARK) : "";
	const size_t pid = strspn(p, "0123456789");

	if (pid == 0 || p[pid] != '-')
		return NULL;
	p += pid + 1;
	return p[0] && strspn(p, "0123456789abcdef") == strlen(p) ? suffix : NULL;
}

/* Removes old temporary files of `name` in the directory dir, where temp is a new file. */
static void remove_leftovers(const char *dir, const char *name, const char *temp)
{
	struct stat now, sb;
	DIR *d = lstat(temp, &now) == 0 ? opendir(dir) : NULL;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		const char *suffix = ct_file_temp_suffix(e->d_name);

		if (suffix && (size_t)(suffix - e->d_name) == strlen(name) &&
		    strncmp(e->d_name, name, strlen(name)) == 0 &&
		    fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0 &&
		    now.st_mtime - sb.st_mtime > CT_FILE_LEFTOVER_S)
			(void)unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d)
		closedir(d);
}

static enum ct_status fail_exists(const char *path)
{
	CT_FAIL(CT_IO, "cannot create %s: %s", path, strerror(EEXIST));
	return ct_error_hint("ctrain does not replace this file: choose another name, or remove the file");
}

/* Syncs the file `temp`, which is open as fd and was written with the status st, and closes fd. Removes the file after
 * an error. */
static enum ct_status finish_temp(enum ct_status st, int fd, const char *temp, const char *path)
{
	enum ct_status closed;

	if (st == CT_OK)
		st = ct_fd_sync(fd, path);
	if (st < 0)
		close(fd);
	else if ((closed = ct_fd_close(fd, path)) < 0)
		st = closed;
	if (st < 0)
		unlink(temp);
	return st;
}

/* Like rename(2), but fails with EEXIST if `path` exists. */
static int rename_new(const char *temp, const char *path)
{
	const int rc = renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE);
	struct stat sb;

	if (rc == 0 || (errno != EINVAL && errno != ENOSYS))
		return rc;
	if (lstat(path, &sb) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(temp, path);
}

/* Renames temp to path and syncs the directory. If `is_new`, path must not exist. temp does not exist afterwards, even
 * if this fails. */
static enum ct_status move_into_place(const char *temp, const char *path, bool is_new)
{
	enum ct_status st = CT_OK;
	char *dir = ct_path_dir(path);

	if (dir)
		remove_leftovers(dir, ct_path_name(path), temp);
	if (!dir)
		st = CT_NOMEM;
	else if (is_new && rename_new(temp, path) != 0)
		st = errno == EEXIST ? fail_exists(path) : ct__file_fail_errno("create", path);
	else if (!is_new && rename(temp, path) != 0)
		st = ct__file_fail_errno("replace", path);
	if (st < 0)
		unlink(temp);
	else
		st = ct_dir_sync(dir);
	ct_free(dir);
	return st;
}

static enum ct_status write_file(const char *path, const void *data, size_t len, mode_t mode, bool is_new)
{
	enum ct_status st;
	char *temp;
	int fd;

	CT_TRY_ALLOC(temp = ct_file_temp_name(path));
	fd = ct__file_open_retry(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
	if (fd < 0)
		st = ct__file_fail_errno("create", temp);
	else
		st = finish_temp(ct_fd_write_all(fd, data, len, path), fd, temp, path);
	if (st == CT_OK)
		st = move_into_place(temp, path, is_new);
	ct_free(temp);
	return st;
}

static enum ct_status replace(const char *path, const void *data, size_t len, mode_t mode)
{
	struct stat sb;

	/* `--out /dev/null` must not replace the device with a file. */
	if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode))
		return ct__file_refuse_kind(CT_IO, sb.st_mode, path);
	return write_file(path, data, len, mode, false);
}

enum ct_status ct_file_replace(const char *path, const void *data, size_t len)
{
	return replace(path, data, len, 0666);
}

enum ct_status ct_file_replace_private(const char *path, const void *data, size_t len)
{
	return replace(path, data, len, 0600);
}

enum ct_status ct_file_check_new(const char *path)
{
	struct stat sb;

	return lstat(path, &sb) == 0 ? fail_exists(path) : CT_OK;
}

enum ct_status ct_file_create(const char *path, const void *data, size_t len)
{
	CT_TRY(ct_file_check_new(path));
	return write_file(path, data, len, 0666, true);
}

enum ct_status ct_file_publish(const char *temp, const char *path)
{
	return move_into_place(temp, path, true);
}

static enum ct_status copy_all(int from, int to, const char *path)
{
	char chunk[16384];

	for (;;) {
		ssize_t n = read(from, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ct__file_fail_errno("read", path);
		if (n == 0)
			return CT_OK;
		CT_TRY(ct_fd_write_all(to, chunk, (size_t)n, path));
	}
}

enum ct_status ct_file_replace_by_copy(const char *path)
{
	enum ct_status st;
	int from, to;
	char *temp;

	CT_TRY(ct_file_open(path, CT_FILE_READ, &from));
	temp = ct_file_temp_name(path);
	if (!temp) {
		st = CT_NOMEM;
		goto out;
	}
	CT_TRY_GOTO(ct_file_open(temp, CT_FILE_NEW, &to), st, out);
	CT_TRY_GOTO(finish_temp(copy_all(from, to, path), to, temp, path), st, out);
	st = move_into_place(temp, path, false);
out:
	ct_free(temp);
	close(from);
	return st;
}

static enum ct_status probe(const char *file)
{
	int fd = ct__file_open_retry(file, O_WRONLY | O_CREAT | O_NOFOLLOW, 0666);
	enum ct_status st;

	if (fd < 0)
		return ct__file_fail_errno("create", file);
	st = ct__file_check_regular(fd, CT_IO, file);
	if (st < 0)
		close(fd);
	return st < 0 ? st : finish_temp(ct_fd_write_all(fd, "probe\n", 6, file), fd, file, file);
}

enum ct_status ct_dir_probe(const char *path)
{
	enum ct_status st = CT_NOMEM;
	/* The name is always the same, so that if a process is killed here, the next probe removes its file. */
	char *file = ct_path_join(path, ".probe");

	if (file)
		st = probe(file);
	if (st == CT_OK && unlink(file) != 0 && errno != ENOENT) /* ENOENT: another process's probe has removed it */
		st = ct__file_fail_errno("remove", file);
	ct_free(file);
	return st < 0 ? ct_error_wrap("directory %s is not writable", path) : CT_OK;
}

enum ct_status ct_link_replace(const char *target, const char *link)
{
	enum ct_status st;
	char *temp;

	CT_TRY_ALLOC(temp = ct_file_temp_name(link));
	if (symlink(target, temp) != 0)
		st = ct__file_fail_errno("create", temp);
	else
		st = move_into_place(temp, link, false);
	ct_free(temp);
	return st;
}
