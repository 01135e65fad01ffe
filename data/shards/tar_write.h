/* Writes a tar archive of regular files from memory. The same input always gives the same bytes: ustar headers have
 * mode 0644, owner 0 and time 0; a name that does not fit is stored in a PAX record (POSIX.1-2001) before its header;
 * and the file is padded to complete 10 KiB records, as tar does.
 *
 * Members must be smaller than 8 GiB. Names must have 1 to 4,095 bytes and contain no NUL. A writer may be used by one
 * thread only. */
#ifndef CT_DATA_SHARDS_TAR_WRITE_H
#define CT_DATA_SHARDS_TAR_WRITE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_tar_writer ct_tar_writer;

/* Creates the file, or truncates an existing one. Fails with CT_IO. */
enum ct_status ct_tar_writer_open(const char *path, ct_tar_writer **out) CT_MUST_CHECK;
/* Appends a member and stores the position of its data in *offset (offset may be NULL). After a failure, discard the
 * file. */
enum ct_status ct_tar_writer_add(ct_tar_writer *w, const char *name, const void *data, size_t n,
				 uint64_t *offset) CT_MUST_CHECK;
/* Writes the end of the archive and calls fsync. After this, only ct_tar_writer_close may be called. */
enum ct_status ct_tar_writer_finish(ct_tar_writer *w, uint64_t *bytes) CT_MUST_CHECK;
void ct_tar_writer_close(ct_tar_writer *w); /* does not change the file */

#endif
