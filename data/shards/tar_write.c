/* Headers have no owner and no time, and names are split or stored in a PAX record by fixed rules, so the same members
 * always give the same bytes. The length of a PAX record includes its own digits and is found by trying. Bytes are
 * collected in a buffer; large members go to the file directly. The position counts buffered bytes too, so an index can
 * be built while writing. A file is complete only after ct_tar_writer_finish; the caller must discard it otherwise. */
#include "data/shards/tar_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define BLOCK 512
#define RECORD 10240
#define BUFFER ((size_t)1 << 20)
#define NAME_MAX_BYTES 4095
#define MEMBER_MAX_BYTES ((uint64_t)077777777777)

/* POSIX.1-1988 (ustar). */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6],
		version[2], user[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is one block");

struct ct_tar_writer {
	char *path;
	int fd;
	uint8_t *buffer;
	size_t held;
	uint64_t offset; /* position of the next byte, including buffered ones */
};

enum ct_status ct_tar_writer_open(const char *path, ct_tar_writer **out)
{
	enum ct_status st = CT_NOMEM;
	ct_tar_writer *w = CT_NEW(ct_tar_writer);

	if (!w)
		return CT_NOMEM;
	w->fd = -1;
	w->path = ct_strdup(path);
	w->buffer = ct_calloc(BUFFER, 1);
	if (w->path && w->buffer) {
		w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
		st = w->fd >= 0 ? CT_OK : CT_FAIL(CT_IO, "cannot create %s: %s", path, strerror(errno));
	}
	if (st < 0) {
		ct_tar_writer_close(w);
		return st;
	}
	*out = w;
	return CT_OK;
}

void ct_tar_writer_close(ct_tar_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	ct_free(w->buffer);
	ct_free(w->path);
	ct_free(w);
}

static enum ct_status flush(ct_tar_writer *w)
{
	size_t n = w->held;

	w->held = 0;
	return ct_fd_write_all(w->fd, w->buffer, n, w->path);
}

static enum ct_status put(ct_tar_writer *w, const void *data, size_t n)
{
	w->offset += n;
	if (n > BUFFER - w->held)
		CT_TRY(flush(w));
	if (n > BUFFER)
		return ct_fd_write_all(w->fd, data, n, w->path);
	if (n > 0)
		memcpy(w->buffer + w->held, data, n);
	w->held += n;
	return CT_OK;
}

static enum ct_status pad(ct_tar_writer *w, size_t unit)
{
	static const char zeros[RECORD];
	size_t over = (size_t)(w->offset % unit);

	return over ? put(w, zeros, unit - over) : CT_OK;
}

/* Octal digits with leading zeros that fill all but the last byte. */
static void octal(char *field, size_t size, uint64_t value)
{
	field[size - 1] = '\0';
	for (size_t i = size - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
}

/* Splits a long name at a '/' into prefix and name. Returns the length of the prefix; 0 if the name needs no prefix, -1
 * if it does not fit. */
static int split_name(const char *name, size_t len)
{
	const size_t name_max = sizeof(((struct header *)0)->name), prefix_max = sizeof(((struct header *)0)->prefix);

	if (len <= name_max)
		return 0;
	for (size_t i = len - 1 < prefix_max ? len - 1 : prefix_max; i > 0; i--) {
		if (name[i] == '/' && len - i - 1 <= name_max && len - i - 1 > 0)
			return (int)i;
	}
	return -1;
}

static enum ct_status put_header(ct_tar_writer *w, const char *name, size_t len, size_t prefix, char type,
				 uint64_t size)
{
	struct header h = {.type = type, .magic = "ustar", .version = {'0', '0'}};
	unsigned sum = 0;

	memcpy(h.prefix, name, prefix);
	name += prefix ? prefix + 1 : 0;
	len -= prefix ? prefix + 1 : 0;
	memcpy(h.name, name, len < sizeof(h.name) ? len : sizeof(h.name));
	octal(h.mode, sizeof(h.mode), 0644);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), size);
	octal(h.mtime, sizeof(h.mtime), 0);
	memset(h.checksum, ' ', sizeof(h.checksum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((const uint8_t *)&h)[i];
	octal(h.checksum, sizeof(h.checksum) - 1, sum);
	return put(w, &h, sizeof(h));
}

/* Writes a PAX record, "LEN path=NAME" and a newline, where LEN is the length of the record, including LEN itself. */
static enum ct_status put_pax(ct_tar_writer *w, const char *name, size_t len)
{
	size_t rest = len + strlen(" path=\n"), digits = 1;
	char count[24];

	while ((size_t)snprintf(count, sizeof(count), "%zu", rest + digits) != digits)
		digits++;
	CT_TRY(put_header(w, "PaxHeader", strlen("PaxHeader"), 0, 'x', rest + digits));
	CT_TRY(put(w, count, digits));
	CT_TRY(put(w, " path=", strlen(" path=")));
	CT_TRY(put(w, name, len));
	CT_TRY(put(w, "\n", 1));
	return pad(w, BLOCK);
}

enum ct_status ct_tar_writer_add(ct_tar_writer *w, const char *name, const void *data, size_t n, uint64_t *offset)
{
	size_t len = strlen(name);
	int prefix;

	if (len == 0 || len > NAME_MAX_BYTES)
		return CT_FAIL(CT_DATA, "%s: cannot write a member name of %zu bytes (must be 1..%d)", w->path, len,
			       NAME_MAX_BYTES);
	if (n > MEMBER_MAX_BYTES)
		return CT_FAIL(CT_DATA, "%s: cannot write a member of %zu bytes (must be below 8 GiB)", w->path, n);
	prefix = split_name(name, len);
	if (prefix < 0)
		CT_TRY(put_pax(w, name, len));
	/* After a PAX record, only readers without PAX support use the name in the header. It is truncated. */
	CT_TRY(put_header(w, name, len, prefix > 0 ? (size_t)prefix : 0, '0', n));
	if (offset)
		*offset = w->offset;
	CT_TRY(put(w, data, n));
	return pad(w, BLOCK);
}

enum ct_status ct_tar_writer_finish(ct_tar_writer *w, uint64_t *bytes)
{
	static const char end[2 * BLOCK];

	CT_TRY(put(w, end, sizeof(end)));
	CT_TRY(pad(w, RECORD));
	CT_TRY(flush(w));
	CT_TRY(ct_fd_sync(w->fd, w->path));
	*bytes = w->offset;
	return CT_OK;
}
