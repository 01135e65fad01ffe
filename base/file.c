#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* errno as a status and a sentence. */
static enum ct_status fail_errno(const char *doing, const char *path)
{
	int err = errno;
	enum ct_status st =
		CT_FAIL(err == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot %s %s: %s", doing, path, strerror(err));

	if (err == ENOSPC || err == EDQUOT)
		ct_error_hint("free some space or choose another folder");
	return st;
}

static int open_retry(const char *path, int flags)
{
	int fd;

	do
		fd = open(path, flags | O_CLOEXEC, 0666);
	while (fd < 0 && errno == EINTR);
	return fd;
}

enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len)
{
	size_t n = 0, cap;
	enum ct_status st;
	struct stat sb;
	char *buf, *more;
	int fd;

	fd = open_retry(path, O_RDONLY);
	if (fd < 0)
		return fail_errno("open", path);
	cap = fstat(fd, &sb) == 0 && sb.st_size > 0 && (uint64_t)sb.st_size <= max_bytes ? (size_t)sb.st_size + 2
											 : 4096;
	buf = ct_realloc(NULL, cap, 1);
	if (!buf) {
		st = CT_NOMEM;
		goto fail_close;
	}
	/* The size is only a guess: pipes and /proc say 0, and a file may grow meanwhile. */
	for (;;) {
		ssize_t got = read(fd, buf + n, cap - n - 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			st = fail_errno("read", path);
			goto fail_free;
		}
		if (got == 0)
			break;
		n += (size_t)got;
		if (n > max_bytes) {
			st = CT_FAIL(CT_DATA, "%s is larger than %zu bytes", path, max_bytes);
			goto fail_free;
		}
		if (n + 1 < cap)
			continue;
		more = ct_realloc(buf, cap, 2);
		if (!more) {
			st = ct_error_wrap("reading %s", path);
			goto fail_free;
		}
		buf = more;
		cap *= 2;
	}
	close(fd);
	buf[n] = '\0';
	*data = buf;
	*len = n;
	return CT_OK;

fail_free:
	ct_free(buf);
fail_close:
	close(fd);
	return st;
}

enum ct_status ct_fd_write_all(int fd, const void *data, size_t len, const char *path)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_errno("write", path);
		p += n;
		len -= (size_t)n;
	}
	return CT_OK;
}

enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path)
{
	char *p = data;

	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return CT_FAIL(CT_DATA, "%s: offset %llu is past any file", path, (unsigned long long)offset);
	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_errno("read", path);
		if (n == 0)
			return CT_FAIL(CT_DATA, "%s ends at byte %llu, %zu bytes too early", path,
				       (unsigned long long)offset, len);
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return CT_OK;
}

/* A name beside `path` that nobody else uses: process, time. Returns owned. */
static char *temp_name(const char *path)
{
	return ct_strfmt("%s.tmp-%ld-%llx", path, (long)getpid(), (unsigned long long)ct_now_ns());
}

/* flags: how a file of that name that is there already is taken. */
static enum ct_status write_synced(const char *temp, int flags, const void *data, size_t len, const char *path)
{
	enum ct_status st;
	int fd = open_retry(temp, O_WRONLY | O_CREAT | flags);

	if (fd < 0)
		return fail_errno("create", temp);
	st = ct_fd_write_all(fd, data, len, path);
	if (st == CT_OK && fsync(fd) != 0)
		st = fail_errno("sync", path);
	/* A network file system may keep its error for close. */
	if (close(fd) != 0 && st == CT_OK && errno != EINTR)
		st = fail_errno("close", path);
	if (st < 0)
		unlink(temp);
	return st;
}

/* Renames temp over path and syncs the folder; temp is gone in any case. */
static enum ct_status move_into_place(const char *temp, const char *path)
{
	enum ct_status st = CT_OK;
	char *dir = ct_path_dir(path);

	if (!dir) {
		st = CT_NOMEM;
	} else if (rename(temp, path) != 0) {
		st = fail_errno("replace", path);
	}
	if (st < 0)
		unlink(temp);
	else
		st = ct_dir_sync(dir);
	ct_free(dir);
	return st;
}

enum ct_status ct_file_replace(const char *path, const void *data, size_t len)
{
	enum ct_status st;
	char *temp;

	CT_TRY_ALLOC(temp = temp_name(path));
	st = write_synced(temp, O_EXCL, data, len, path);
	if (st == CT_OK)
		st = move_into_place(temp, path);
	ct_free(temp);
	return st;
}

bool ct_file_exists(const char *path)
{
	struct stat sb;

	return stat(path, &sb) == 0;
}

enum ct_status ct_file_size(const char *path, uint64_t *bytes)
{
	struct stat sb;

	if (stat(path, &sb) != 0)
		return fail_errno("stat", path);
	*bytes = (uint64_t)sb.st_size;
	return CT_OK;
}

enum ct_status ct_dir_sync(const char *path)
{
	enum ct_status st = CT_OK;
	int fd = open_retry(path, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return fail_errno("open folder", path);
	/* Some file systems cannot sync a folder and say EINVAL: nothing to be had there. */
	if (fsync(fd) != 0 && errno != EINVAL)
		st = fail_errno("sync folder", path);
	close(fd);
	return st;
}

enum ct_status ct_dir_probe(const char *path)
{
	enum ct_status st = CT_NOMEM;
	/* Always the same name: what a process leaves that is killed here goes with the next probe. */
	char *file = ct_path_join(path, ".probe");

	if (file)
		st = write_synced(file, O_TRUNC | O_NOFOLLOW, "probe\n", 6, file);
	if (st == CT_OK && unlink(file) != 0 && errno != ENOENT) /* another probe was faster */
		st = fail_errno("remove", file);
	ct_free(file);
	return st < 0 ? ct_error_wrap("folder %s is not writable", path) : CT_OK;
}

enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes)
{
	struct statvfs sb;

	if (statvfs(path, &sb) != 0)
		return fail_errno("stat", path);
	*bytes = (uint64_t)sb.f_bavail * sb.f_frsize;
	return CT_OK;
}

enum ct_status ct_link_replace(const char *target, const char *link)
{
	enum ct_status st;
	char *temp;

	CT_TRY_ALLOC(temp = temp_name(link));
	if (symlink(target, temp) != 0)
		st = fail_errno("create", temp);
	else
		st = move_into_place(temp, link);
	ct_free(temp);
	return st;
}

char *ct_path_join(const char *a, const char *b)
{
	size_t n = strlen(a);

	if (b[0] == '/' || n == 0)
		return ct_strdup(b);
	return ct_strfmt("%s%s%s", a, a[n - 1] == '/' ? "" : "/", b);
}

char *ct_path_dir(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n ? ct_strndup(path, n) : ct_strdup(".");
}

const char *ct_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}
