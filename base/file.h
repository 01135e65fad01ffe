/* Files and directories: opening, reading with a size limit, and atomic, durable replacement. Functions fail with
 * CT_IO, or with CT_NOT_FOUND if the path does not exist. The message contains the path and the system's description of
 * the error. Interrupted system calls (EINTR) are repeated, and short writes are continued. Only
 * ct_fd_lock waits for another process: where a file is expected, a FIFO, a device or a socket is rejected. */
#ifndef CT_BASE_FILE_H
#define CT_BASE_FILE_H

#include <stdint.h>

#include "base/status.h"

enum ct_file_mode {
	CT_FILE_READ,   /* an existing file; symbolic links are followed */
	CT_FILE_APPEND, /* for writing at the end; created if missing */
	CT_FILE_UPDATE, /* for reading and writing; created if missing */
	CT_FILE_NEW,    /* for writing; an existing file is an error */
};

/* Opens a regular file. The caller owns *fd. If the path does not refer to a regular file, the message states what it
 * refers to; the status is CT_DATA for reading and CT_IO for writing. When a file is opened for writing, all errors are
 * CT_IO, and the last component of the path must not be a symbolic link, because a link could redirect the output. */
enum ct_status ct_file_open(const char *path, enum ct_file_mode mode, int *fd) CT_MUST_CHECK;
/* Reads a complete file and appends a NUL. *data is owned by the caller (ct_free). Fails with CT_DATA if the file is
 * larger than max_bytes. */
enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len) CT_MUST_CHECK;
/* Replaces a file atomically and durably: writes a temporary file in the same directory, syncs it, renames it to
 * `path`, and syncs the directory. Readers see either the old or the new file. A symbolic link is replaced, not
 * followed. A device, FIFO or directory is rejected. */
enum ct_status ct_file_replace(const char *path, const void *data, size_t len) CT_MUST_CHECK;
/* The same with a new file that only this user can read and write. */
enum ct_status ct_file_replace_private(const char *path, const void *data, size_t len) CT_MUST_CHECK;
/* Replaces a file by a copy of itself in the same way. What other processes write to the old file, which they may still
 * have open, is lost. The file may be of any size. */
enum ct_status ct_file_replace_by_copy(const char *path) CT_MUST_CHECK;
/* Writes a file in the same way, but fails with CT_IO and a hint if `path` exists, even as a dangling link. */
enum ct_status ct_file_create(const char *path, const void *data, size_t len) CT_MUST_CHECK;
/* The steps of ct_file_create, for files that are written in parts: check, write a file with the temporary name, sync
 * and close it, publish. ct_file_publish renames it to `path` and syncs the directory; if it fails, it removes temp. */
enum ct_status ct_file_check_new(const char *path) CT_MUST_CHECK;
enum ct_status ct_file_publish(const char *temp, const char *path) CT_MUST_CHECK;
/* Returns the name of a temporary file in the directory of `path` that no other process uses: PATH.tmp-PID-TIME. The
 * caller owns it. */
char *ct_file_temp_name(const char *path);
/* Returns the suffix of a temporary name (.tmp-PID-TIME), which is a part of `name`, or NULL for other names. */
const char *ct_file_temp_suffix(const char *name);
/* A killed process leaves its temporary file. All functions that replace or create a file remove those of the same file
 * that are older than this, in seconds. */
#define CT_FILE_LEFTOVER_S 86400
bool ct_file_exists(const char *path);
enum ct_status ct_file_size(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Checks that `path` still refers to the file that is open as fd. Fails with CT_IO if the file was removed or replaced,
 * because data written to fd would then be lost. */
enum ct_status ct_file_still_at(int fd, const char *path) CT_MUST_CHECK;

enum ct_status ct_fd_write_all(int fd, const void *data, size_t len, const char *path) CT_MUST_CHECK;
/* Reads exactly len bytes at offset. Fails with CT_DATA if the file ends before the last of these bytes. */
enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path) CT_MUST_CHECK;
/* Takes an exclusive lock (flock(2), or fcntl(2) with F_OFD_SETLK if the file system supports only that), which ends
 * when the file is closed. Tries until the deadline, which may have passed; *taken is false if another process still
 * has the lock then. Fails with CT_IO, because of CT_REASON_NO_LOCKS, if the file system has no locks. For fcntl, the
 * file must be open for writing. */
enum ct_status ct_fd_lock(int fd, int64_t deadline_ns, bool *taken) CT_MUST_CHECK;
/* Takes an exclusive lock on one byte of the file (fcntl(2) with F_OFD_SETLK), which ends when the file is closed, and
 * does not wait: *taken is false if another process, or another descriptor of this process, has it. The byte is that at
 * offset key / 4, which may be after the end. The file must be open for writing. Fails as ct_fd_lock. */
enum ct_status ct_fd_lock_byte(int fd, uint64_t key, bool *taken) CT_MUST_CHECK;
/* Returns true if another process, or another descriptor of this process, has the lock. Neither waits nor takes the
 * lock for longer than this call. If the file system has no locks, returns false. */
bool ct_fd_is_locked(int fd);
/* Calls fsync(2). */
enum ct_status ct_fd_sync(int fd, const char *path) CT_MUST_CHECK;
/* Closes a file after writing and checks for errors, because a network file system may report a failed write only at
 * this point. */
enum ct_status ct_fd_close(int fd, const char *path) CT_MUST_CHECK;

/* Adds a hint to the error chain if `err` means that the disk is full or that a limit (ulimit -f, ulimit -n) has been
 * reached; otherwise does nothing. Call it after CT_FAIL when creating or writing a file or shared memory has failed
 * with `err`. */
void ct_hint_errno(int err);

/* Creates a directory and its missing parent directories, like mkdir -p. */
enum ct_status ct_dir_make(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_sync(const char *path) CT_MUST_CHECK;
/* Removes a directory and everything in it; does not follow symbolic links. A missing directory is not an error. */
enum ct_status ct_dir_remove(const char *path) CT_MUST_CHECK;
/* Lists the names of the entries of a directory, except . and .., in bytewise order. The caller owns the names and the
 * array, and frees them with ct_dir_list_free, or each name and then the array with ct_free. */
enum ct_status ct_dir_list(const char *path, char ***names, size_t *n) CT_MUST_CHECK;
void ct_dir_list_free(char **names, size_t n);
/* Checks that the directory is writable by creating and removing a small file ".probe" in it. */
enum ct_status ct_dir_probe(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Atomically makes the symbolic link `link` point to `target`. */
enum ct_status ct_link_replace(const char *target, const char *link) CT_MUST_CHECK;

/* Returns the path "a/b", or a copy of b if b is absolute. The caller owns the result. */
char *ct_path_join(const char *a, const char *b);
/* Returns the directory part of a path, or "." if the path has none. The caller owns the result. */
char *ct_path_dir(const char *path);
/* Returns the part of the path after the last slash. The result is borrowed from `path`. */
const char *ct_path_name(const char *path);

#endif
