/* Reads complete files that are plain or gzip (RFC 1952: any number of members, zero padding), detected by the first
 * two bytes and not by name. Call `peek` to read the header of the content, which tells its size; then `body` inflates
 * exactly that many bytes. A decompression bomb therefore cannot allocate more than the declared size. Also writes
 * gzip.
 *
 * inflate.c is the only file that includes zlib.h and libdeflate.h. zlib streams (peek, member headers); libdeflate
 * inflates complete members and checksums (MNIST's 47 MB take 37 ms instead of 92 ms with zlib, and every rank waits
 * for them at start).
 *
 * Errors: CT_NOT_FOUND or CT_IO with path and reason; CT_DATA with path and reason if the content is wrong. An
 * object belongs to one thread at a time. */
#ifndef CT_DATA_FILES_INFLATE_H
#define CT_DATA_FILES_INFLATE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_inflate ct_inflate;

/* Regular files only: a directory or a pipe is CT_DATA. */
enum ct_status ct_inflate_open(const char *path, ct_inflate **out) CT_MUST_CHECK;
/* The same for bytes in memory, which are borrowed until close. `name` is used in messages. */
enum ct_status ct_inflate_open_memory(const void *p, size_t n, const char *name, ct_inflate **out) CT_MUST_CHECK;
void ct_inflate_close(ct_inflate *f);

const char *ct_inflate_name(const ct_inflate *f);
/* Upper bound of the content's size: the size of the file, or 1032 times that (the best ratio of deflate) for gzip. */
uint64_t ct_inflate_max_content(const ct_inflate *f);
/* Reads the first bytes of the content into dst [n]; *got < n if it is shorter. May be called repeatedly. */
enum ct_status ct_inflate_peek(ct_inflate *f, void *dst, size_t n, size_t *got) CT_MUST_CHECK;
/* Reads the complete content, which must have exactly n bytes, into dst [n], and its CRC-32. Verifies checksums and
 * lengths of all members. Logs a warning about bytes after the last member that are not zero. */
enum ct_status ct_inflate_body(ct_inflate *f, void *dst, size_t n, uint32_t *crc) CT_MUST_CHECK;

/* Writes data as one gzip member (level 6, no name, time 0: the same bytes every time) with ct_file_replace. `comment`
 * (may be NULL; Latin-1, as RFC 1952 demands) is stored in the gzip header. */
enum ct_status ct_deflate_write(const char *path, const void *data, size_t n, const char *comment) CT_MUST_CHECK;
/* Whether the file at path begins with a gzip header as ct_deflate_write writes it with this comment. Anything else is
 * false, a directory or an unreadable file included. */
bool ct_deflate_has_comment(const char *path, const char *comment);

/* CRC-32 (as in gzip and zlib) of p, continued from crc. Start with 0. */
uint32_t ct_crc32(uint32_t crc, const void *data, size_t n);

#endif
