/* Reads the headers of a tar file with bounds checks. The supported formats are v7, ustar with prefixes, GNU long names
 * and base-256 sizes, and PAX paths and sizes. Checksums may be signed or unsigned sums. Members of other types are
 * skipped together with their data. The archive ends at a zero block, or at the end of the file if that is a block
 * boundary.
 *
 * No file is ever created or opened under a member's name, and names are escaped in messages. Reading a header takes
 * one pread of at most 2 KiB; the member's data is not read. Sources: POSIX.1-2017 pax, the GNU tar manual.
 *
 * Errors: CT_NOT_FOUND or CT_IO for files that cannot be read. CT_DATA for invalid content, with the message "PATH:
 * TAG: member "NAME" at byte N: reason"; the tags are truncated, tar-header, tar-size, tar-pax, tar-type, format-zip,
 * format-gzip. A reader may be used by one thread at a time. */
#ifndef CT_DATA_SHARDS_TAR_H
#define CT_DATA_SHARDS_TAR_H

#include <stdint.h>

#include "base/status.h"

#define CT_TAR_BLOCK 512
#define CT_TAR_MAX_NAME 4096

enum ct_tar_type { CT_TAR_FILE, CT_TAR_DIRECTORY, CT_TAR_LINK, CT_TAR_OTHER };

struct ct_tar_member {
	/* NUL-terminated; NULL at the end of the archive. It is empty only for OTHER and in unusual files, and valid
	 * until the next call. */
	const char *name;
	size_t name_len;
	enum ct_tar_type type;
	uint64_t header; /* position of its header (or of the header of its long name) */
	uint64_t offset; /* position of its data */
	uint64_t size;   /* size of its data in bytes; the data is guaranteed to lie entirely within the file */
};

typedef struct ct_tar ct_tar;

/* Opens the archive at `path`, which must be a regular file. */
enum ct_status ct_tar_open(const char *path, ct_tar **out) CT_MUST_CHECK;
/* Opens an archive in memory instead. The bytes are borrowed until ct_tar_close; `path` is used in messages. */
enum ct_status ct_tar_open_memory(const void *p, size_t n, const char *path, ct_tar **out) CT_MUST_CHECK;
void ct_tar_close(ct_tar *t);
const char *ct_tar_path(const ct_tar *t);
uint64_t ct_tar_bytes(const ct_tar *t);
/* Returns the modification time of the file as it was when the file was opened. */
uint64_t ct_tar_mtime_ns(const ct_tar *t);

/* Reads the next member; m->name is NULL at the end. */
enum ct_status ct_tar_next(ct_tar *t, struct ct_tar_member *m) CT_MUST_CHECK;
/* Continues reading at byte `at`, which should be the start of a header, or at the end of the file if that comes
 * first. */
void ct_tar_seek(ct_tar *t, uint64_t at);
/* Reads the single header block at byte `at`, without GNU and PAX extensions. Does not check that the data is inside
 * the file. Returns false if there is no header. */
bool ct_tar_header_at(ct_tar *t, uint64_t at, struct ct_tar_member *m);
/* Reads n bytes at byte `at` into dst. */
enum ct_status ct_tar_read(ct_tar *t, void *dst, size_t n, uint64_t at) CT_MUST_CHECK;
/* Returns whether data other than zeros follows the end mark. Like tar, the reader ignores such data. */
bool ct_tar_goes_on(const ct_tar *t);
/* Returns whether the file ends inside the padding of its last member. That member is complete, but later ones may be
 * missing. */
bool ct_tar_padding_cut(const ct_tar *t);

#endif
