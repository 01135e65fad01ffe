/* Files and directories: opening, reading with a size limit, and atomic, durable replacement. Errors are CT_IO, or
 * CT_NOT_FOUND if the path does not exist. The message names the path and the system's reason. Interrupted calls
 * (EINTR) and short writes are repeated. No function waits for another process: a FIFO, device or socket where a file
 * is expected is refused. */
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

/* Opens a regular file. The caller owns *fd. If the path is not a regular file, the message says what it is; the status
 * is CT_DATA for reading and CT_IO for writing. When a file is opened for writing, the last component of the path must
 * not be a symbolic link, so that no one can redirect the output, and all errors are CT_IO. */
enum ct_status ct_file_open(const char *path, enum ct_file_mode mode, int *fd) CT_MUST_CHECK;
/* Reads a complete file and adds a NUL. *data is owned by the caller (ct_free). A file larger than max_bytes is
 * CT_DATA. */
enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len) CT_MUST_CHECK;
/* Replaces a file atomically and durably: writes a temporary file in the same directory, syncs it, renames it to
 * `path`, and syncs the directory. Readers see either the old or the new file. A symbolic link is replaced, not
 * followed. A device, FIFO or directory is refused. */
enum ct_status ct_file_replace(const char *path, const void *data, size_t len) CT_MUST_CHECK;
bool ct_file_exists(const char *path);
enum ct_status ct_file_size(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Checks that `path` is still the file that is open as fd. Fails with CT_IO if it was removed or replaced, because
 * data written to fd would then be lost. */
enum ct_status ct_file_still_at(int fd, const char *path) CT_MUST_CHECK;

enum ct_status ct_fd_write_all(int fd, const void *data, size_t len, const char *path) CT_MUST_CHECK;
/* Reads exactly len bytes at offset; a short file is CT_DATA. */
enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path) CT_MUST_CHECK;
/* fsync. */
enum ct_status ct_fd_sync(int fd, const char *path) CT_MUST_CHECK;
/* Closes a file after writing and checks for errors: a network file system may not report a failed write before. */
enum ct_status ct_fd_close(int fd, const char *path) CT_MUST_CHECK;

/* Call it after CT_FAIL when creating or writing a file or shared memory failed with `err`. Adds a hint for a full
 * disk, ulimit -f and ulimit -n; does nothing for other errors. */
void ct_hint_errno(int err);

/* mkdir -p. */
enum ct_status ct_dir_make(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_sync(const char *path) CT_MUST_CHECK;
/* Removes a directory and everything in it; does not follow links. A missing directory is not an error. */
enum ct_status ct_dir_remove(const char *path) CT_MUST_CHECK;
/* Lists the names in a directory, without . and .., in bytewise order. The caller owns the names and the array: free
 * them with ct_dir_list_free, or each name and then the array with ct_free. */
enum ct_status ct_dir_list(const char *path, char ***names, size_t *n) CT_MUST_CHECK;
void ct_dir_list_free(char **names, size_t n);
/* Checks that the directory is writable by creating and removing a small file ".probe" in it. */
enum ct_status ct_dir_probe(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Makes the symbolic link `link` point to `target` atomically. */
enum ct_status ct_link_replace(const char *target, const char *link) CT_MUST_CHECK;

/* Returns "a/b", or a copy of b if b is absolute. Owned by the caller. */
char *ct_path_join(const char *a, const char *b);
/* Returns the directory part of a path, or "." if it has none. Owned by the caller. */
char *ct_path_dir(const char *path);
/* Returns the part of the path after the last slash. Borrowed. */
const char *ct_path_name(const char *path);

#endif
