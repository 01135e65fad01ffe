/* Files: whole-file read with a limit, atomic durable replace, folders. Errors are CT_IO (CT_NOT_FOUND where the
 * path does not exist) and name the path and the system's reason. EINTR and short writes are handled here. */
#ifndef CT_BASE_FILE_H
#define CT_BASE_FILE_H

#include <stdint.h>

#include "base/status.h"

/* Whole file, NUL-terminated, returns owned (ct_free). A file over max_bytes is CT_DATA. */
enum ct_status ct_file_read(const char *path, size_t max_bytes, char **data, size_t *len) CT_MUST_CHECK;
/* Writes a temporary file beside `path`, fsync, rename, fsync of the folder: readers see the old or the new file. */
enum ct_status ct_file_replace(const char *path, const void *data, size_t len) CT_MUST_CHECK;
bool ct_file_exists(const char *path);
enum ct_status ct_file_size(const char *path, uint64_t *bytes) CT_MUST_CHECK;

enum ct_status ct_fd_write_all(int fd, const void *data, size_t len, const char *path) CT_MUST_CHECK;
/* Reads exactly len bytes at offset; a short file is CT_DATA. */
enum ct_status ct_fd_read_at(int fd, void *data, size_t len, uint64_t offset, const char *path) CT_MUST_CHECK;

/* mkdir -p. */
enum ct_status ct_dir_make(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_sync(const char *path) CT_MUST_CHECK;
/* Removes a folder and what is in it; does not follow links. A missing folder is fine. */
enum ct_status ct_dir_remove(const char *path) CT_MUST_CHECK;
/* Names (without . and ..) sorted bytewise; returns owned: free each and the array, or ct_dir_list_free. */
enum ct_status ct_dir_list(const char *path, char ***names, size_t *n) CT_MUST_CHECK;
void ct_dir_list_free(char **names, size_t n);
/* Writes and removes a small file ".probe" in the folder: is it writable now? */
enum ct_status ct_dir_probe(const char *path) CT_MUST_CHECK;
enum ct_status ct_dir_free_bytes(const char *path, uint64_t *bytes) CT_MUST_CHECK;
/* Makes `link` point at `target` atomically. */
enum ct_status ct_link_replace(const char *target, const char *link) CT_MUST_CHECK;

/* "a/b" returns owned; an absolute b stands alone. */
char *ct_path_join(const char *a, const char *b);
/* Folder part ("." when there is none), returns owned. */
char *ct_path_dir(const char *path);
/* What stands behind the last slash, borrowed. */
const char *ct_path_name(const char *path);

#endif
