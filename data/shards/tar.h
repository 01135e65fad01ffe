/* Reads the headers of a tar file, bounds-checked: v7, ustar with its prefix, GNU long names and base-256 sizes, PAX
 * path and size; checksums as signed or unsigned sums. Other types of members are passed over with their data. The end
 * is one zero block, or the end of the file where a block could begin.
 *
 * Nothing is ever made or opened under a member's name; names in messages are escaped. A member is looked at with one
 * pread of 2 KiB at most, and data are not read at all. Sources: POSIX.1-2017 pax, the manual of GNU tar.
 *
 * Errors: CT_NOT_FOUND or CT_IO for files that cannot be read, CT_DATA for what is in them:
 * "PATH: TAG: member "NAME" at byte N: text", with these tags: truncated, tar-header, tar-size, tar-pax, tar-type,
 * format-zip, format-gzip. One thread at a time. */
#ifndef CT_DATA_SHARDS_TAR_H
#define CT_DATA_SHARDS_TAR_H

#include <stdint.h>

#include "base/status.h"

#define CT_TAR_BLOCK 512
#define CT_TAR_MAX_NAME 4096

enum ct_tar_type { CT_TAR_FILE, CT_TAR_FOLDER, CT_TAR_LINK, CT_TAR_OTHER };

struct ct_tar_member {
	const char
		*name; /* NUL-terminated, never empty but for OTHER and odd files; NULL: the end. Until the next call */
	size_t name_len;
	enum ct_tar_type type;
	uint64_t header; /* byte where its header begins (that of its long name, if it has one) */
	uint64_t offset; /* byte where its data begin */
	uint64_t size;   /* of its data, which lie inside of the file */
};

typedef struct ct_tar ct_tar;

/* Regular files only. */
enum ct_status ct_tar_open(const char *path, ct_tar **out) CT_MUST_CHECK;
/* The same over bytes in memory, borrowed until close; path stands in messages. */
enum ct_status ct_tar_open_memory(const void *p, size_t n, const char *path, ct_tar **out) CT_MUST_CHECK;
void ct_tar_close(ct_tar *t);
const char *ct_tar_path(const ct_tar *t);
uint64_t ct_tar_bytes(const ct_tar *t);
/* Modification time when it was opened. */
uint64_t ct_tar_mtime_ns(const ct_tar *t);

/* The next member, or m->name NULL at the end. */
enum ct_status ct_tar_next(ct_tar *t, struct ct_tar_member *m) CT_MUST_CHECK;
/* Goes on from this byte, where a header should be, or from the end of the file if that comes first. */
void ct_tar_seek(ct_tar *t, uint64_t at);
/* The one header block at this byte, as it stands (a long name is cut, a size in a PAX header not seen), wherever its
 * data may end; false when there is none. */
bool ct_tar_header_at(ct_tar *t, uint64_t at, struct ct_tar_member *m);
/* n bytes at this byte. */
enum ct_status ct_tar_read(ct_tar *t, void *dst, size_t n, uint64_t at) CT_MUST_CHECK;
/* Whether something other than zeros was seen behind the end mark (it is ignored, as tar does). */
bool ct_tar_goes_on(const ct_tar *t);

#endif
