/* Files: open and read with a limit, atomic durable replace, directories. Errors are CT_IO (CT_NOT_FOUND where the path
 * does not exist) and name the path and the system's reason. Interrupted calls (EINTR) and short writes are repeated.
 * Nothing here waits for another process: a FIFO, a device or a socket in the place of a file is refused. */
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

/* Opens a regular file; *fd is owned by the caller. Anything else at the path is an error that says what it is: CT_DATA
 * for reading, CT_IO for writing. Opening for writing follows no symbolic link in the last component, so that no
 * one can redirect what is written; all its errors are CT_IO. */
enum ct_status ct_file_open(const char *path, enum ct_file_mode mode, int *fd) CT_MUST_CHECK;
/* The complete file, NUL-terminated, returns owned (ct_free). A file over max_bytes is CT_DATA. */
enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len) CT_MUST_CHECK;
/* Writes a temporary file beside `path`, fsync, rename, fsync of the directory: readers see the old or the new file. A
 * symbolic link is replaced, not followed; what is not a file (a device, a FIFO, a directory) is refused. */
enum ct_status ct_file_replace(const char *path, const void *data, size_t len) CT_MUST_CHECK;
bool ct_file_exists(const char *path);
enum ct_status ct_file_size(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Checks that `path` is still the file that is open as fd. CT_IO if it was removed or replaced, so that what is written
 * to fd is lost. */
enum ct_status ct_file_still_at(int fd, const char *path) CT_MUST_CHECK;

enum ct_status ct_fd_write_all(int fd, const void *data, size_t len, const char *path) CT_MUST_CHECK;
/* Reads exactly len bytes at offset; a short file is CT_DATA. */
enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path) CT_MUST_CHECK;
/* fsync. */
enum ct_status ct_fd_sync(int fd, const char *path) CT_MUST_CHECK;
/* Closes a file after writing: a network file system may report an error only then. */
enum ct_status ct_fd_close(int fd, const char *path) CT_MUST_CHECK;

/* After CT_FAIL: adds what a user can do about this errno of a call that creates or writes files, shared memory included
 * (a full disk, ulimit -f, ulimit -n); nothing for others. */
void ct_hint_errno(int err);

/* mkdir -p. */
enum ct_status ct_dir_make(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_sync(const char *path) CT_MUST_CHECK;
/* Removes a directory and what is in it; does not follow links. A missing directory is not an error. */
enum ct_status ct_dir_remove(const char *path) CT_MUST_CHECK;
/* Names (without . and ..) sorted bytewise; returns owned: free each and the array, or ct_dir_list_free. */
enum ct_status ct_dir_list(const char *path, char ***names, size_t *n) CT_MUST_CHECK;
void ct_dir_list_free(char **names, size_t n);
/* Checks that the directory is writable: writes and removes a small file ".probe" in it. */
enum ct_status ct_dir_probe(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Makes the symbolic link `link` point to `target` atomically. */
enum ct_status ct_link_replace(const char *target, const char *link) CT_MUST_CHECK;

/* "a/b", or only b if it is absolute. Returns owned. */
char *ct_path_join(const char *a, const char *b);
/* The directory part ("." if there is none). Returns owned. */
char *ct_path_dir(const char *path);
/* What follows the last slash, borrowed. */
const char *ct_path_name(const char *path);

#endif
