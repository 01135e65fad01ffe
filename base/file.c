/* Files are opened without blocking, so that a FIFO or a device cannot stop the program, and are then checked by their
 * descriptor, not by their path, which might name another file by then. errno is stored before another call can change
 * it. The size of a file is only a hint: ct_file_read reads until the end, since files in /proc have size 0 and others
 * grow meanwhile. Locks are taken by polling, because flock has no deadline. Some file systems have only the locks of
 * fcntl; those of an open file (OFD) behave like flock. dir.c contains the functions for directories, and
 * file_replace.c those that replace files. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_impl.h"
#include "base/mem.h"

#define LOCK_RETRY_MS 20

void ct_hint_errno(int err)
{
	struct rlimit limit;

	if (err == ENOSPC || err == EDQUOT)
		ct_error_hint("free some space or choose another directory");
	else if (err == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		ct_error_hint("this shell limits files to %llu KiB: raise the limit with `ulimit -f unlimited`",
			      (unsigned long long)limit.rlim_cur / 1024);
	else if (err == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
		ct_error_hint("this shell limits a process to %llu open files: raise the limit with `ulimit -n 1024`",
			      (unsigned long long)limit.rlim_cur);
}

enum ct_status ct__file_fail(enum ct_status st, const char *doing, const char *path)
{
	int err = errno;

	CT_FAIL(st, "cannot %s %s: %s", doing, path, strerror(err));
	ct_hint_errno(err);
	return st;
}

enum ct_status ct__file_fail_errno(const char *doing, const char *path)
{
	return ct__file_fail(errno == ENOENT ? CT_NOT_FOUND : CT_IO, doing, path);
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "directory";
	case S_IFIFO:
		return "FIFO (named pipe)";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "character device";
	case S_IFBLK:
		return "block device";
	case S_IFLNK:
		return "symbolic link";
	default:
		return "regular file";
	}
}

int ct__file_open_retry(const char *path, int flags, mode_t mode)
{
	int fd;

	/* Non-blocking, because opening a FIFO would wait for its other end. It makes no difference for regular
	 * files. */
	do
		fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

enum ct_status ct__file_refuse_kind(enum ct_status st, mode_t mode, const char *path)
{
	return CT_FAIL(st, "%s is not a regular file but a %s", path, kind_of(mode));
}

enum ct_status ct__file_check_regular(int fd, enum ct_status otherwise, const char *path)
{
	struct stat sb;

	if (fstat(fd, &sb) != 0)
		return ct__file_fail_errno("stat", path);
	return S_ISREG(sb.st_mode) ? CT_OK : ct__file_refuse_kind(otherwise, sb.st_mode, path);
}

/* After open() failed. */
static enum ct_status fail_open(const char *path, enum ct_file_mode mode)
{
	bool reading = mode == CT_FILE_READ;
	int err = errno;
	struct stat sb;

	/* open() fails with ENXIO for a socket and for a FIFO without a reader, and with ELOOP for a symbolic link. */
	if ((err == ENXIO || err == ELOOP || err == EISDIR) && (reading ? stat : lstat)(path, &sb) == 0 &&
	    !S_ISREG(sb.st_mode))
		return ct__file_refuse_kind(reading ? CT_DATA : CT_IO, sb.st_mode, path);
	errno = err;
	return ct__file_fail(reading && (err == ENOENT || err == ENOTDIR) ? CT_NOT_FOUND : CT_IO,
			     mode == CT_FILE_NEW ? "create" : "open", path);
}

enum ct_status ct_file_open(const char *path, enum ct_file_mode mode, int *out)
{
	static const int flags[] = {
		[CT_FILE_READ] = O_RDONLY,
		[CT_FILE_APPEND] = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW,
		[CT_FILE_UPDATE] = O_RDWR | O_CREAT | O_NOFOLLOW,
		[CT_FILE_NEW] = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
	};
	enum ct_status st;
	int fd;

	CT_ASSERT((unsigned)mode < CT_ARRAY_LEN(flags));
	fd = ct__file_open_retry(path, flags[mode], 0666);
	if (fd < 0)
		return fail_open(path, mode);
	st = ct__file_check_regular(fd, mode == CT_FILE_READ ? CT_DATA : CT_IO, path);
	if (st < 0)
		close(fd);
	else
		*out = fd;
	return st;
}

static enum ct_status too_large(const char *path, size_t max_bytes)
{
	const size_t mib = (size_t)1 << 20;
	bool even = max_bytes > 0 && max_bytes % mib == 0;

	return CT_FAIL(CT_DATA, "%s is larger than %zu %s", path, even ? max_bytes / mib : max_bytes,
		       even ? "MiB" : "bytes");
}

enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len)
{
	size_t n = 0, cap;
	enum ct_status st;
	struct stat sb;
	char *buf, *more;
	int fd;

	CT_TRY(ct_file_open(path, CT_FILE_READ, &fd));
	cap = fstat(fd, &sb) == 0 && sb.st_size > 0 && (uint64_t)sb.st_size <= max_bytes ? (size_t)sb.st_size + 2
											 : 4096;
	buf = ct_realloc(NULL, cap, 1);
	if (!buf) {
		st = CT_NOMEM;
		goto fail_close;
	}
	/* The size is only a first guess: files in /proc have size 0, and a file may grow while it is read. */
	for (;;) {
		ssize_t got = read(fd, buf + n, cap - n - 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			st = ct__file_fail_errno("read", path);
			goto fail_free;
		}
		if (got == 0)
			break;
		n += (size_t)got;
		if (n > max_bytes) {
			st = too_large(path, max_bytes);
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
			return ct__file_fail_errno("write", path);
		p += n;
		len -= (size_t)n;
	}
	return CT_OK;
}

enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path)
{
	char *p = data;

	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return CT_FAIL(CT_DATA, "%s: offset %llu exceeds the maximum size of a file", path,
			       (unsigned long long)offset);
	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ct__file_fail_errno("read", path);
		if (n == 0)
			return CT_FAIL(CT_DATA, "%s ends at byte %llu, %zu bytes too early", path,
				       (unsigned long long)offset, len);
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return CT_OK;
}

/* Takes (F_WRLCK) an OFD lock on len bytes (0: all), or returns whether one could be taken (F_RDLCK). */
static int try_range(int fd, short type, off_t offset, off_t len)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = offset, .l_len = len};
	const int rc = fcntl(fd, type == F_WRLCK ? F_OFD_SETLK : F_OFD_GETLK, &lock);

	if (rc == 0 && (type == F_WRLCK || lock.l_type == F_UNLCK))
		return 0;
	if (rc == 0 || errno == EACCES) /* POSIX allows EACCES and EAGAIN if another process has the lock */
		errno = EWOULDBLOCK;
	else if (errno == EINVAL || errno == EBADF) /* an old kernel, or a file that is open for reading only */
		errno = ENOLCK;
	return -1;
}

static bool lacks_locks(int err)
{
	return err == ENOLCK || err == ENOSYS || err == EOPNOTSUPP;
}

/* Takes a lock of the open file (F_WRLCK), or returns whether one could be taken (F_RDLCK). */
static int try_lock(int fd, short type)
{
	const int rc = flock(fd, (type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB);

	return rc == 0 || !lacks_locks(errno) ? rc : try_range(fd, type, 0, 0);
}

/* rc: what try_lock has returned. */
static enum ct_status lock_result(int rc, bool *taken)
{
	*taken = rc == 0;
	if (rc == 0 || errno == EWOULDBLOCK)
		return CT_OK;
	if (!lacks_locks(errno))
		return CT_FAIL(CT_IO, "cannot lock a file: %s", strerror(errno));
	CT_FAIL(CT_IO, "the file system has no locks: %s", strerror(errno));
	ct_error_because(CT_REASON_NO_LOCKS);
	return ct_error_hint("mount it with locks (NFS without nolock, Lustre with flock), or use another file system");
}

enum ct_status ct_fd_lock(int fd, int64_t deadline_ns, bool *taken)
{
	int rc;

	while ((rc = try_lock(fd, F_WRLCK)) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
	       ct_now_ns() < deadline_ns)
		(void)poll(NULL, 0, LOCK_RETRY_MS);
	return lock_result(rc, taken);
}

enum ct_status ct_fd_lock_byte(int fd, uint64_t key, bool *taken)
{
	return lock_result(try_range(fd, F_WRLCK, (off_t)(key / 4), 1), taken);
}

bool ct_fd_is_locked(int fd)
{
	/* Several processes may have a shared lock, so they do not see each other. */
	const int rc = try_lock(fd, F_RDLCK);

	if (rc == 0)
		(void)flock(fd, LOCK_UN);
	return rc != 0 && errno == EWOULDBLOCK;
}

enum ct_status ct_fd_sync(int fd, const char *path)
{
	int rc;

	do
		rc = fsync(fd);
	while (rc != 0 && errno == EINTR);
	return rc == 0 ? CT_OK : ct__file_fail(CT_IO, "sync", path);
}

enum ct_status ct_fd_close(int fd, const char *path)
{
	/* close() closes the descriptor even if it fails with EINTR; a second call could close a file of another
	 * thread. */
	return close(fd) == 0 || errno == EINTR ? CT_OK : ct__file_fail(CT_IO, "close", path);
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
		return ct__file_fail_errno("stat", path);
	*bytes = (uint64_t)sb.st_size;
	return CT_OK;
}

enum ct_status ct_file_still_at(int fd, const char *path)
{
	struct stat opened, now;

	if (fstat(fd, &opened) != 0)
		return ct__file_fail(CT_IO, "stat", path);
	if (lstat(path, &now) == 0 && opened.st_dev == now.st_dev && opened.st_ino == now.st_ino)
		return CT_OK;
	if (lstat(path, &now) == 0)
		CT_FAIL(CT_IO, "%s was replaced by another file while it was in use", path);
	else if (errno == ENOENT || errno == ENOTDIR)
		CT_FAIL(CT_IO, "%s was removed or renamed while it was in use", path);
	else
		return ct__file_fail(CT_IO, "stat", path);
	ct_error_hint("anything written to it now would be lost: do not change the directory while ctrain is running");
	return CT_IO;
}

enum ct_status ct_dir_sync(const char *path)
{
	enum ct_status st = CT_OK;
	int fd = ct__file_open_retry(path, O_RDONLY | O_DIRECTORY, 0), rc;

	if (fd < 0)
		return ct__file_fail_errno("open directory", path);
	do
		rc = fsync(fd);
	while (rc != 0 && errno == EINTR);
	/* Some file systems cannot sync a directory and return EINVAL. Nothing can be done about it. */
	if (rc != 0 && errno != EINVAL)
		st = ct__file_fail_errno("sync directory", path);
	close(fd);
	return st;
}

enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes)
{
	struct statvfs sb;

	if (statvfs(path, &sb) != 0)
		return ct__file_fail_errno("stat", path);
	*bytes = (uint64_t)sb.f_bavail * sb.f_frsize;
	return CT_OK;
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
