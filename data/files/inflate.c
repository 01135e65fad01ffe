/* The memory for the content is bounded by what the caller expects, never by what the file claims, and a file that is
 * far too large for its content is refused before it is read. Each member's header is parsed by zlib, which knows all
 * optional fields; libdeflate then inflates the data in one call, and checksum and length are compared here. The
 * checksums of members are combined into that of the content. A compressed file is read into memory once, and remains
 * there for a second call. Opening checks only the first two bytes, so errors in the rest are found by
 * ct_inflate_body. */
#include "data/files/inflate.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

#define GZIP_WINDOW_BITS (15 + 16)
#define MAX_RATIO 1032 /* deflate encodes 258 bytes in 2 bits */
#define MAX_MEMBER_HEADER ((size_t)1 << 20)
#define TRAILER_BYTES 8
/* RFC 1952: the size of the fixed part of a member's header, and the byte and the bit that mark a comment after it. */
#define GZIP_HEADER_BYTES 10
#define GZIP_FLAGS 3
#define GZIP_HAS_COMMENT 0x10

struct ct_inflate {
	char *name;
	int fd; /* -1: memory */
	const uint8_t *mem;
	uint8_t *owned; /* the contents of the file, once read */
	uint64_t size;
	bool gzip;
};

static enum ct_status read_at(const ct_inflate *f, void *dst, size_t n, uint64_t offset)
{
	if (!f->mem)
		return ct_fd_read_at(f->fd, dst, n, offset, f->name);
	memcpy(dst, f->mem + offset, n);
	return CT_OK;
}

static enum ct_status start(const char *name, ct_inflate **out)
{
	ct_inflate *f;

	CT_TRY_ALLOC(f = CT_NEW(ct_inflate));
	f->fd = -1;
	f->name = ct_strdup(name);
	if (!f->name) {
		ct_free(f);
		return CT_NOMEM;
	}
	*out = f;
	return CT_OK;
}

static enum ct_status look_at_magic(ct_inflate *f)
{
	uint8_t magic[2] = {0};

	if (f->size >= sizeof(magic))
		CT_TRY(read_at(f, magic, sizeof(magic), 0));
	f->gzip = magic[0] == 0x1f && magic[1] == 0x8b;
	return CT_OK;
}

static enum ct_status open_file(ct_inflate *f)
{
	struct stat sb;

	CT_TRY(ct_file_open(f->name, CT_FILE_READ, &f->fd));
	if (fstat(f->fd, &sb) != 0)
		return CT_FAIL(CT_IO, "cannot stat %s: %s", f->name, strerror(errno));
	f->size = (uint64_t)sb.st_size;
	return look_at_magic(f);
}

enum ct_status ct_inflate_open(const char *path, ct_inflate **out)
{
	enum ct_status st;
	ct_inflate *f;

	CT_TRY(start(path, &f));
	CT_TRY_GOTO(open_file(f), st, fail_close);
	*out = f;
	return CT_OK;

fail_close:
	ct_inflate_close(f);
	return st;
}

enum ct_status ct_inflate_open_memory(const void *p, size_t n, const char *name, ct_inflate **out)
{
	static const uint8_t nothing;
	enum ct_status st;
	ct_inflate *f;

	CT_TRY(start(name, &f));
	f->mem = n ? p : &nothing;
	f->size = n;
	CT_TRY_GOTO(look_at_magic(f), st, fail_close);
	*out = f;
	return CT_OK;

fail_close:
	ct_inflate_close(f);
	return st;
}

void ct_inflate_close(ct_inflate *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	ct_free(f->owned);
	ct_free(f->name);
	ct_free(f);
}

const char *ct_inflate_name(const ct_inflate *f)
{
	return f->name;
}

uint64_t ct_inflate_max_content(const ct_inflate *f)
{
	uint64_t n;

	if (!f->gzip)
		return f->size;
	return __builtin_mul_overflow(f->size, MAX_RATIO, &n) ? UINT64_MAX : n;
}

static enum ct_status fail_zlib(const ct_inflate *f, const z_stream *z, int rc)
{
	if (rc == Z_MEM_ERROR)
		return CT_FAIL(CT_NOMEM, "out of memory: cannot inflate %s", f->name);
	return CT_FAIL(CT_DATA, "%s: gzip data is damaged (%s)", f->name, z->msg ? z->msg : "invalid stream");
}

/* Inflates in small pieces until z->avail_out is 0 or the content ends. */
static enum ct_status stream(const ct_inflate *f, z_stream *z)
{
	uint8_t chunk[4096];
	uint64_t offset = 0;
	int rc = Z_OK;

	while (z->avail_out > 0) {
		if (z->avail_in == 0) {
			uint64_t left = f->size - offset;
			size_t n = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);

			if (n == 0)
				return CT_OK;
			CT_TRY(read_at(f, chunk, n, offset));
			offset += n;
			z->next_in = chunk;
			z->avail_in = (uInt)n;
		}
		/* A member is followed by another one or by padding. */
		if (rc == Z_STREAM_END) {
			if (z->next_in[0] != 0x1f)
				return CT_OK;
			rc = inflateReset(z);
		}
		rc = inflate(z, Z_SYNC_FLUSH);
		if (rc != Z_OK && rc != Z_STREAM_END)
			return fail_zlib(f, z, rc);
	}
	return CT_OK;
}

enum ct_status ct_inflate_peek(ct_inflate *f, void *dst, size_t n, size_t *got)
{
	z_stream z = {.next_out = dst, .avail_out = (uInt)n};
	enum ct_status st;
	int rc;

	CT_ASSERT(n > 0 && n <= 65536);
	if (!f->gzip) {
		*got = f->size < n ? (size_t)f->size : n;
		return read_at(f, dst, *got, 0);
	}
	rc = inflateInit2(&z, GZIP_WINDOW_BITS);
	if (rc != Z_OK)
		return fail_zlib(f, &z, rc);
	st = stream(f, &z);
	*got = n - z.avail_out;
	inflateEnd(&z);
	return st;
}

/* Returns the size of the member header at `in`. zlib parses it (optional fields, header checksum) and stops before
 * the data. */
static enum ct_status member_header(const ct_inflate *f, const uint8_t *in, size_t n, size_t *header_bytes)
{
	uint8_t out[1];
	z_stream z = {.next_in = (uint8_t *)(uintptr_t)in,
		      .avail_in = (uInt)(n < MAX_MEMBER_HEADER ? n : MAX_MEMBER_HEADER),
		      .next_out = out,
		      .avail_out = sizeof(out)};
	enum ct_status st = CT_OK;
	int rc = inflateInit2(&z, GZIP_WINDOW_BITS);

	if (rc == Z_OK)
		rc = inflate(&z, Z_BLOCK);
	if (rc != Z_OK && rc != Z_BUF_ERROR)
		st = fail_zlib(f, &z, rc);
	else if (!(z.data_type & 128))
		st = CT_FAIL(CT_DATA, "%s: truncated inside a gzip header", f->name);
	*header_bytes = (size_t)z.total_in;
	inflateEnd(&z);
	return st;
}

static uint32_t load_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Inflates the member at in [n] into out [room]. */
static enum ct_status inflate_member(const ct_inflate *f, struct libdeflate_decompressor *d, const uint8_t *in,
				     size_t n, uint8_t *out, size_t room, size_t *used, size_t *made, uint32_t *crc)
{
	size_t header, packed;

	CT_TRY(member_header(f, in, n, &header));
	switch (libdeflate_deflate_decompress_ex(d, in + header, n - header, out, room, &packed, made)) {
	case LIBDEFLATE_SUCCESS:
		break;
	case LIBDEFLATE_INSUFFICIENT_SPACE:
		return CT_FAIL(CT_DATA, "%s contains more data than its header declares", f->name);
	default:
		return CT_FAIL(CT_DATA, "%s: gzip data is damaged or truncated", f->name);
	}
	*used = header + packed;
	if (n - *used < TRAILER_BYTES)
		return CT_FAIL(CT_DATA, "%s: truncated before the gzip checksum", f->name);
	*crc = libdeflate_crc32(0, out, *made);
	if (*crc != load_le32(in + *used))
		return CT_FAIL(CT_DATA, "%s: gzip checksum is %08x, but the data has %08x", f->name,
			       load_le32(in + *used), *crc);
	if ((uint32_t)*made != load_le32(in + *used + 4))
		return CT_FAIL(CT_DATA, "%s: gzip length field says %u bytes, but the data has %zu", f->name,
			       load_le32(in + *used + 4), *made);
	*used += TRAILER_BYTES;
	return CT_OK;
}

static void look_at_tail(const ct_inflate *f, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != 0) {
			CT_WARN("%s: ignoring %zu bytes after the end of the gzip data", f->name, n);
			return;
		}
	}
}

static enum ct_status short_content(const ct_inflate *f, size_t want, uint64_t have)
{
	return CT_FAIL(CT_DATA, "%s is too short: its header declares %zu bytes, but it contains %llu", f->name, want,
		       (unsigned long long)have);
}

static enum ct_status inflate_members(const ct_inflate *f, struct libdeflate_decompressor *d, const uint8_t *in,
				      uint8_t *dst, size_t n, uint32_t *crc)
{
	size_t left = (size_t)f->size, done = 0;

	*crc = 0;
	while (left >= 2 && in[0] == 0x1f && in[1] == 0x8b) {
		uint32_t member_crc = 0;
		size_t used = 0, made = 0;

		CT_TRY(inflate_member(f, d, in, left, dst + done, n - done, &used, &made, &member_crc));
		*crc = done ? (uint32_t)crc32_combine(*crc, member_crc, (z_off_t)made) : member_crc;
		in += used;
		left -= used;
		done += made;
	}
	if (done < n)
		return short_content(f, n, done);
	look_at_tail(f, in, left);
	return CT_OK;
}

/* Reads all bytes of the file once. */
static enum ct_status packed_bytes(ct_inflate *f, size_t n, const uint8_t **in)
{
	*in = f->mem ? f->mem : f->owned;
	if (*in)
		return CT_OK;
	/* Incompressible data grows by 5 bytes in 16 KiB; the rest is for headers and padding. */
	if (f->size > (uint64_t)n + n / 1024 + (1 << 20))
		return CT_FAIL(CT_DATA, "%s has %llu bytes, far more than its %zu bytes of content can need", f->name,
			       (unsigned long long)f->size, n);
	CT_TRY_ALLOC(f->owned = ct_realloc(NULL, (size_t)f->size, 1));
	*in = f->owned;
	return read_at(f, f->owned, (size_t)f->size, 0);
}

enum ct_status ct_inflate_body(ct_inflate *f, void *dst, size_t n, uint32_t *crc)
{
	struct libdeflate_decompressor *d;
	const uint8_t *in;
	enum ct_status st;

	if (!f->gzip) {
		if (f->size < n)
			return short_content(f, n, f->size);
		if (f->size > n)
			return CT_FAIL(CT_DATA,
				       "%s contains more data than its header declares: %llu bytes instead of %zu",
				       f->name, (unsigned long long)f->size, n);
		CT_TRY(read_at(f, dst, n, 0));
		*crc = libdeflate_crc32(0, dst, n);
		return CT_OK;
	}
	CT_TRY(packed_bytes(f, n, &in));
	d = libdeflate_alloc_decompressor();
	if (!d)
		return CT_FAIL(CT_NOMEM, "out of memory: cannot inflate %s", f->name);
	st = inflate_members(f, d, in, dst, n, crc);
	libdeflate_free_decompressor(d);
	return st;
}

/* Inserts the comment after the fixed part of the gzip header in p. p must have room for it after its n bytes. */
static size_t insert_comment(uint8_t *p, size_t n, const char *comment)
{
	size_t len = strlen(comment) + 1;

	memmove(p + GZIP_HEADER_BYTES + len, p + GZIP_HEADER_BYTES, n - GZIP_HEADER_BYTES);
	memcpy(p + GZIP_HEADER_BYTES, comment, len);
	p[GZIP_FLAGS] = GZIP_HAS_COMMENT;
	return n + len;
}

enum ct_status ct_deflate_write(const char *path, const void *data, size_t n, const char *comment)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
	enum ct_status st = CT_NOMEM;
	size_t room, made;
	uint8_t *out;

	if (!c)
		return CT_FAIL(CT_NOMEM, "out of memory: cannot compress %s", path);
	room = libdeflate_gzip_compress_bound(c, n);
	out = ct_realloc(NULL, room + (comment ? strlen(comment) + 1 : 0), 1);
	if (!out)
		goto done_compressor;
	made = libdeflate_gzip_compress(c, data, n, out, room);
	if (made && comment)
		made = insert_comment(out, made, comment);
	st = made ? ct_file_replace(path, out, made) : CT_FAIL(CT_BUG, "%s: compressed data exceed their bound", path);
	ct_free(out);
done_compressor:
	libdeflate_free_compressor(c);
	return st;
}

bool ct_deflate_has_comment(const char *path, const char *comment)
{
	size_t len = strlen(comment) + 1;
	uint8_t header[GZIP_HEADER_BYTES + 256];
	ct_inflate *f;
	bool same;

	CT_ASSERT(len <= 256);
	if (ct_inflate_open(path, &f) < 0) {
		ct_error_clear();
		return false;
	}
	same = f->gzip && f->size >= GZIP_HEADER_BYTES + len &&
	       read_at(f, header, GZIP_HEADER_BYTES + len, 0) == CT_OK && header[GZIP_FLAGS] == GZIP_HAS_COMMENT &&
	       memcmp(header + GZIP_HEADER_BYTES, comment, len) == 0;
	ct_error_clear();
	ct_inflate_close(f);
	return same;
}

uint32_t ct_crc32(uint32_t crc, const void *data, size_t n)
{
	return libdeflate_crc32(crc, data, n);
}
