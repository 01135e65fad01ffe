/* Whole files that may be gzip (RFC 1952: any number of members, zero padding) or plain, told apart by the first two
 * bytes, never by name. The size of the content is known before it is inflated, from a header that `peek` shows; `body`
 * then makes exactly that many bytes, so a bomb costs no more than the honest file would. Also writes gzip.
 *
 * inflate.c is the only file that includes zlib.h and libdeflate.h: zlib streams (peek, member headers), libdeflate
 * does whole members and checksums (MNIST's 47 MB: 37 ms against zlib's 92 ms, and every rank waits for it at start).
 *
 * Errors: CT_NOT_FOUND or CT_IO naming path and reason; CT_DATA naming path and what is wrong with the content.
 * Threads: an object belongs to one thread at a time. */
#ifndef CT_DATA_FILES_INFLATE_H
#define CT_DATA_FILES_INFLATE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_inflate ct_inflate;

/* Only regular files: a folder or a pipe is CT_DATA, at once. */
enum ct_status ct_inflate_open(const char *path, ct_inflate **out) CT_MUST_CHECK;
/* The same over bytes in memory, which are borrowed until close. `name` stands in messages. */
enum ct_status ct_inflate_open_memory(const void *p, size_t n, const char *name, ct_inflate **out) CT_MUST_CHECK;
void ct_inflate_close(ct_inflate *f);

const char *ct_inflate_name(const ct_inflate *f);
/* Most bytes that the content can have: the file's size, or 1032 times that (deflate's best ratio) for gzip. */
uint64_t ct_inflate_max_content(const ct_inflate *f);
/* The first bytes of the content: dst [n]; *got < n when it ends sooner. Any number of times. */
enum ct_status ct_inflate_peek(ct_inflate *f, void *dst, size_t n, size_t *got) CT_MUST_CHECK;
/* The whole content, which must be n bytes, no more and no less: dst [n]; its CRC-32. Checksums and lengths of all
 * members are verified. Bytes after the last member that are not zero are warned about. */
enum ct_status ct_inflate_body(ct_inflate *f, void *dst, size_t n, uint32_t *crc) CT_MUST_CHECK;

/* Writes data as one gzip member (level 6, no name, time 0: the same bytes every time) with ct_file_replace. `comment`
 * (may be NULL; Latin-1, as RFC 1952 demands) is stored in the gzip header. */
enum ct_status ct_deflate_write(const char *path, const void *data, size_t n, const char *comment) CT_MUST_CHECK;
/* Whether the file at path begins with a gzip header as ct_deflate_write writes it with this comment. Anything else is
 * false, a directory or an unreadable file included. */
bool ct_deflate_has_comment(const char *path, const char *comment);

/* CRC-32 (of gzip and zlib), going on from crc; 0 to start. */
uint32_t ct_crc32(uint32_t crc, const void *data, size_t n);

#endif
