/* Writes a tar archive of regular files held in memory, the same bytes every time: ustar headers with mode 0644, owner 0
 * and time 0, a PAX record (POSIX.1-2001) before a name that does not fit, padded to whole 10 KiB records as tar does.
 *
 * Members must be below 8 GiB, names not empty, at most 4,095 bytes, without NUL. A writer belongs to one thread. */
#ifndef CT_DATA_SHARDS_TAR_WRITE_H
#define CT_DATA_SHARDS_TAR_WRITE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_tar_writer ct_tar_writer;

/* Creates or empties the file. CT_IO. */
enum ct_status ct_tar_writer_open(const char *path, ct_tar_writer **out) CT_MUST_CHECK;
/* Appends a member; *offset (may be NULL) is where its data starts in the file. After a failure the file is to be
 * thrown away. */
enum ct_status ct_tar_writer_add(ct_tar_writer *w, const char *name, const void *data, size_t n,
				 uint64_t *offset) CT_MUST_CHECK;
/* The end of the archive, on the disk (fsync) before this returns. The writer is good for nothing but close then. */
enum ct_status ct_tar_writer_finish(ct_tar_writer *w, uint64_t *bytes) CT_MUST_CHECK;
void ct_tar_writer_close(ct_tar_writer *w); /* the file stays as it is */

#endif
