/* What the files that implement base/file.h share. */
#ifndef CT_BASE_FILE_IMPL_H
#define CT_BASE_FILE_IMPL_H

#include <sys/types.h>

#include "base/file.h"

/* Fails with st and the message "cannot DOING PATH: " and the description of errno. */
enum ct_status ct__file_fail(enum ct_status st, const char *doing, const char *path);
/* The same with CT_NOT_FOUND if the path does not exist, else CT_IO. */
enum ct_status ct__file_fail_errno(const char *doing, const char *path);
/* Opens a file as open(2) does, but does not wait for the other end of a FIFO. */
int ct__file_open_retry(const char *path, int flags, mode_t mode);
/* Fails with st, because the path refers to something of this kind instead of a regular file. */
enum ct_status ct__file_refuse_kind(enum ct_status st, mode_t mode, const char *path);
/* Fails with `otherwise` if fd is not open on a regular file. */
enum ct_status ct__file_check_regular(int fd, enum ct_status otherwise, const char *path) CT_MUST_CHECK;

#endif
