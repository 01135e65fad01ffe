/* Reads complete files that are uncompressed or in gzip format (RFC 1952, with any number of members and zero padding).
 * The format is detected from the first two bytes, not from the file name. First call ct_inflate_peek to read the
 * header of the content, which contains its size; then call ct_inflate_body to inflate exactly that many bytes. A
 * decompression bomb therefore cannot allocate more than the declared size. This file also has functions for writing
 * gzip files.
 *
 * inflate.c is the only file that includes zlib.h and libdeflate.h. zlib is used for streaming (peek, member headers),
 * libdeflate for complete members and checksums (MNIST's 47 MB take 37 ms instead of 92 ms with zlib, and every rank
 * waits for this when it starts).
 *
 * Errors: CT_NOT_FOUND or CT_IO if the file cannot be read, CT_DATA if its content is invalid, each with the path and
 * the reason in the message. An object may be used by one thread at a time. */
#ifndef CT_DATA_FILES_INFLATE_H
#define CT_DATA_FILES_INFLATE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_inflate ct_inflate;

/* Opens a regular file. Fails with CT_DATA for a directory or a pipe. */
enum ct_status ct_inflate_open(const char *path, ct_inflate **out) CT_MUST_CHECK;
/* Opens n bytes in memory instead; they are borrowed until ct_inflate_close. `name` is used in messages. */
enum ct_status ct_inflate_open_memory(const void *p, size_t n, const char *name, ct_inflate **out) CT_MUST_CHECK;
void ct_inflate_close(ct_inflate *f);

const char *ct_inflate_name(const ct_inflate *f);
/* Returns an upper bound of the content's size: the size of the file or, for gzip, 1032 times that (the best ratio of
 * deflate). */
uint64_t ct_inflate_max_content(const ct_inflate *f);
/* Reads the first bytes of the content into dst [n]. *got is less than n if the content is shorter. May be called
 * repeatedly. */
enum ct_status ct_inflate_peek(ct_inflate *f, void *dst, size_t n, size_t *got) CT_MUST_CHECK;
/* Reads the complete content, which must have exactly n bytes, into dst [n], and computes its CRC-32. Verifies
 * checksums and lengths of all members. Logs a warning if bytes after the last member are not zero. */
enum ct_status ct_inflate_body(ct_inflate *f, void *dst, size_t n, uint32_t *crc) CT_MUST_CHECK;

/* Writes data as one gzip member with ct_file_replace. The compression level is 6, and the gzip header has no file name
 * and time 0, so that the output is reproducible. `comment` (may be NULL; Latin-1, as RFC 1952 demands) is stored in
 * the gzip header. */
enum ct_status ct_deflate_write(const char *path, const void *data, size_t n, const char *comment) CT_MUST_CHECK;
/* Returns whether the file at path begins with the gzip header that ct_deflate_write writes with this comment. Returns
 * false for directories and unreadable files. */
bool ct_deflate_has_comment(const char *path, const char *comment);

/* Extends the CRC-32 (as in gzip and zlib) `crc` by data [n] and returns the result. The initial value is 0. */
uint32_t ct_crc32(uint32_t crc, const void *data, size_t n);

#endif
