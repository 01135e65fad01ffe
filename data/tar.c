#include "data/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define BLOCK ((uint64_t)CT_TAR_BLOCK)
/* The header of a small member, its data and the next header in one read. */
#define AHEAD 2048
#define MAX_PAX ((uint64_t)1 << 20)
#define LOOK_PAST_END ((uint64_t)20 * CT_TAR_BLOCK)

struct ct_tar {
	char *path;
	int fd; /* -1: memory */
	const uint8_t *mem;
	uint64_t bytes, mtime_ns;
	uint64_t at; /* of the next header */
	uint64_t ahead_at;
	size_t n_ahead;
	uint8_t ahead[AHEAD];
	struct ct_str name; /* of the member last delivered */
	struct ct_str records;
	bool ended, goes_on;
};

/* A header block, and what extension headers say about the next member. */
struct header {
	uint8_t block[CT_TAR_BLOCK];
	uint64_t at, size;
};
struct extension {
	uint64_t first; /* header */
	uint64_t size;
	bool any, has_name, has_size;
};

void ct_name_escape(const char *name, size_t n, char *out, size_t len)
{
	size_t used = 0, mark = 0;
	char one[5];

	for (size_t i = 0; len > 0 && i < n;) {
		size_t step = ct_escape_next(name + i, n - i, one), k = strlen(one);

		if (used + k + 1 > len) {
			snprintf(out + mark, len - mark, "...");
			return;
		}
		memcpy(out + used, one, k);
		used += k;
		i += step;
		if (used + 4 <= len)
			mark = used;
	}
	if (len > 0)
		out[used] = '\0';
}

static CT_PRINTF(5, 6) enum ct_status
	bad(const ct_tar *t, const char *tag, uint64_t at, const char *name, const char *fmt, ...)
{
	char escaped[160], text[256];
	va_list ap;

	ct_name_escape(name, strlen(name), escaped, sizeof(escaped));
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return CT_FAIL(CT_DATA, "%s: %s: member \"%s\" at byte %llu: %s", t->path, tag, escaped, (unsigned long long)at,
		       text);
}

static enum ct_status create(const char *path, ct_tar **out)
{
	ct_tar *t;

	CT_TRY_ALLOC(t = CT_NEW(ct_tar));
	t->fd = -1;
	t->path = ct_strdup(path);
	if (!t->path) {
		ct_free(t);
		return CT_NOMEM;
	}
	*out = t;
	return CT_OK;
}

static enum ct_status open_fd(ct_tar *t)
{
	struct stat sb;

	/* Non-blocking: opening a pipe without a writer would wait for ever. */
	do
		t->fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (t->fd < 0 && errno == EINTR);
	if (t->fd < 0 || fstat(t->fd, &sb) != 0)
		return CT_FAIL(errno == ENOENT || errno == ENOTDIR ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s",
			       t->path, strerror(errno));
	if (!S_ISREG(sb.st_mode))
		return CT_FAIL(CT_DATA, "%s is not a file but a %s", t->path,
			       S_ISDIR(sb.st_mode) ? "folder" : "device or pipe");
	t->bytes = (uint64_t)sb.st_size;
	t->mtime_ns = (uint64_t)sb.st_mtim.tv_sec * 1000000000u + (uint64_t)sb.st_mtim.tv_nsec;
	return CT_OK;
}

enum ct_status ct_tar_open(const char *path, ct_tar **out)
{
	enum ct_status st;
	ct_tar *t;

	CT_TRY(create(path, &t));
	st = open_fd(t);
	if (st < 0)
		ct_tar_close(t);
	else
		*out = t;
	return st;
}

enum ct_status ct_tar_open_memory(const void *p, size_t n, const char *path, ct_tar **out)
{
	CT_TRY(create(path, out));
	(*out)->mem = p;
	(*out)->bytes = n;
	return CT_OK;
}

void ct_tar_close(ct_tar *t)
{
	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	ct_str_release(&t->name);
	ct_str_release(&t->records);
	ct_free(t->path);
	ct_free(t);
}

const char *ct_tar_path(const ct_tar *t)
{
	return t->path;
}

uint64_t ct_tar_bytes(const ct_tar *t)
{
	return t->bytes;
}

uint64_t ct_tar_mtime_ns(const ct_tar *t)
{
	return t->mtime_ns;
}

bool ct_tar_goes_on(const ct_tar *t)
{
	return t->goes_on;
}

void ct_tar_seek(ct_tar *t, uint64_t at)
{
	t->at = at;
	t->ended = false;
}

enum ct_status ct_tar_read(ct_tar *t, void *dst, size_t n, uint64_t at)
{
	if (at > t->bytes || n > t->bytes - at)
		return CT_FAIL(CT_DATA, "%s: truncated: it ends at byte %llu, %zu bytes are wanted at byte %llu",
			       t->path, (unsigned long long)t->bytes, n, (unsigned long long)at);
	if (n == 0)
		return CT_OK;
	if (t->mem) {
		memcpy(dst, t->mem + at, n);
		return CT_OK;
	}
	if (n > AHEAD)
		return ct_fd_read_at(t->fd, dst, n, at, t->path);
	if (at < t->ahead_at || at + n > t->ahead_at + t->n_ahead) {
		size_t want = t->bytes - at < AHEAD ? (size_t)(t->bytes - at) : AHEAD;

		t->n_ahead = 0;
		CT_TRY(ct_fd_read_at(t->fd, t->ahead, want, at, t->path));
		t->ahead_at = at;
		t->n_ahead = want;
	}
	memcpy(dst, t->ahead + (at - t->ahead_at), n);
	return CT_OK;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i])
			return false;
	}
	return true;
}

/* Octal digits between blanks, up to the field's end or a NUL; nothing at all is 0. */
static bool parse_octal(const uint8_t *f, size_t n, uint64_t *out)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < n && f[i] == ' ')
		i++;
	for (; i < n && f[i] >= '0' && f[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(f[i] - '0');
	*out = v;
	return i == n || f[i] == ' ' || f[i] == '\0';
}

/* Octal, or GNU's base-256: first byte 0x80, then a big-endian number. */
static enum ct_status parse_size(const ct_tar *t, const struct header *h, const char *name, uint64_t *out)
{
	const uint8_t *f = h->block + 124;
	uint64_t v = 0;

	if (!(f[0] & 0x80)) {
		if (parse_octal(f, 12, out))
			return CT_OK;
		return bad(t, "tar-header", h->at, name, "its size field is not a number");
	}
	for (int i = 4; i < 12; i++)
		v = v << 8 | f[i];
	if (f[0] != 0x80 || !all_zero(f + 1, 3) || v > INT64_MAX)
		return bad(t, "tar-size", h->at, name, "its size is %s", f[0] & 0x40 ? "negative" : "past any file");
	*out = v;
	return CT_OK;
}

static bool checksum_right(const uint8_t *b)
{
	uint64_t want;
	int64_t sum = 8 * ' ', sum_signed = 8 * ' ';

	for (int i = 0; i < CT_TAR_BLOCK; i++) {
		if (i >= 148 && i < 156)
			continue;
		sum += b[i];
		sum_signed += (int8_t)b[i];
	}
	/* Old tars of Sun summed signed bytes. */
	return parse_octal(b + 148, 8, &want) && ((int64_t)want == sum || (int64_t)want == sum_signed);
}

static enum ct_status no_header(const ct_tar *t, const struct header *h)
{
	const uint8_t *b = h->block;
	enum ct_status st;

	if (h->at == 0 && memcmp(b, "PK\3\4", 4) == 0)
		st = CT_FAIL(CT_DATA, "%s: format-zip: this is a zip archive, not a tar file", t->path);
	else if (h->at == 0 && b[0] == 0x1f && b[1] == 0x8b)
		st = CT_FAIL(CT_DATA,
			     "%s: format-gzip: this is a compressed file, whose samples cannot be read in any order",
			     t->path);
	else if (h->at == 0 && b[0] == '<')
		st = CT_FAIL(CT_DATA,
			     "%s: tar-header: this is no tar file but looks like a web page (a failed download?)",
			     t->path);
	else
		return CT_FAIL(CT_DATA, "%s: tar-header: what stands at byte %llu is no tar header (wrong checksum)",
			       t->path, (unsigned long long)h->at);
	ct_error_hint(b[0] == 0x1f ? "uncompress it first: gunzip" : "get the tar file again");
	return st;
}

/* The name of the header block alone into t->name. */
static void take_header_name(ct_tar *t, const uint8_t *b)
{
	bool posix = memcmp(b + 257, "ustar", 6) == 0;

	ct_str_clear(&t->name);
	/* GNU keeps other things where POSIX has the prefix. */
	if (posix && b[345]) {
		ct_str_add_bytes(&t->name, b + 345, strnlen((const char *)b + 345, 155));
		ct_str_add(&t->name, "/");
	}
	ct_str_add_bytes(&t->name, b, strnlen((const char *)b, 100));
}

static void look_past_end(ct_tar *t, uint64_t at)
{
	uint8_t b[CT_TAR_BLOCK];
	uint64_t end = t->bytes - at < LOOK_PAST_END ? t->bytes : at + LOOK_PAST_END;

	for (; at < end && !t->goes_on; at += BLOCK) {
		size_t n = end - at < BLOCK ? (size_t)(end - at) : CT_TAR_BLOCK;

		if (ct_tar_read(t, b, n, at) < 0) {
			ct_error_clear();
			return;
		}
		t->goes_on = !all_zero(b, n);
	}
}

/* The block at t->at; *end where the archive is over. */
static enum ct_status read_header(ct_tar *t, struct header *h, bool *end)
{
	size_t left = t->bytes - t->at < BLOCK ? (size_t)(t->bytes - t->at) : CT_TAR_BLOCK;

	h->at = t->at;
	*end = true;
	if (left == 0)
		return CT_OK;
	CT_TRY(ct_tar_read(t, h->block, left, t->at));
	if (all_zero(h->block, left)) {
		look_past_end(t, t->at + left);
		return CT_OK;
	}
	*end = false;
	if (left < BLOCK && t->at > 0)
		return CT_FAIL(CT_DATA, "%s: truncated: it ends inside the header at byte %llu", t->path,
			       (unsigned long long)t->at);
	if (left < BLOCK)
		memset(h->block + left, 0, BLOCK - left);
	if (left < BLOCK || !checksum_right(h->block))
		return no_header(t, h);
	take_header_name(t, h->block);
	CT_TRY(ct_str_status(&t->name));
	return parse_size(t, h, ct_str_text(&t->name), &h->size);
}

/* n bytes of data after the header lie inside the file; t->at goes behind them. */
static enum ct_status pass_data(ct_tar *t, const struct header *h, const char *name, uint64_t n)
{
	uint64_t offset = h->at + BLOCK;

	if (n > INT64_MAX - offset)
		return bad(t, "tar-size", h->at, name, "its size of %llu bytes is past any file",
			   (unsigned long long)n);
	if (offset > t->bytes || n > t->bytes - offset)
		return bad(t, "truncated", h->at, name, "its header says %llu bytes, but the file ends after %llu",
			   (unsigned long long)n, (unsigned long long)(offset > t->bytes ? 0 : t->bytes - offset));
	t->at = offset + n + (BLOCK - n % BLOCK) % BLOCK;
	/* The padding of the last member may be missing. */
	if (t->at > t->bytes)
		t->at = t->bytes;
	return CT_OK;
}

/* The data of an extension header into t->records. */
static enum ct_status read_records(ct_tar *t, const struct header *h, uint64_t limit, const char *what)
{
	uint8_t piece[AHEAD];

	if (h->size > limit)
		return bad(t, "tar-size", h->at, ct_str_text(&t->name), "%s of %llu bytes, the limit is %llu", what,
			   (unsigned long long)h->size, (unsigned long long)limit);
	CT_TRY(pass_data(t, h, ct_str_text(&t->name), h->size));
	ct_str_clear(&t->records);
	for (uint64_t i = 0; i < h->size;) {
		size_t n = h->size - i < AHEAD ? (size_t)(h->size - i) : AHEAD;

		CT_TRY(ct_tar_read(t, piece, n, h->at + BLOCK + i));
		ct_str_add_bytes(&t->records, piece, n);
		i += n;
	}
	return ct_str_status(&t->records);
}

static enum ct_status take_long_name(ct_tar *t, const struct header *h, struct extension *x, struct ct_str *name)
{
	CT_TRY(read_records(t, h, CT_TAR_MAX_NAME, "a long name"));
	ct_str_clear(name);
	ct_str_add_bytes(name, ct_str_text(&t->records), strnlen(ct_str_text(&t->records), t->records.len));
	x->has_name = true;
	return ct_str_status(name);
}

/* One "key=value" of n bytes. */
static enum ct_status take_record(ct_tar *t, const struct header *h, const char *p, size_t n, struct extension *x,
				  struct ct_str *name)
{
	const char *is = memchr(p, '=', n), *value = is ? is + 1 : NULL;
	const char *at_name = ct_str_text(&t->name);
	size_t n_key, n_value;
	uint64_t v = 0;

	if (!is)
		return bad(t, "tar-pax", h->at, at_name, "a PAX record without \"=\"");
	n_key = (size_t)(is - p);
	n_value = n - n_key - 1;
	if (n_key >= 11 && memcmp(p, "GNU.sparse.", 11) == 0)
		return bad(t, "tar-type", h->at, at_name, "sparse members are not supported");
	if (n_key != 4 || (memcmp(p, "path", 4) != 0 && memcmp(p, "size", 4) != 0))
		return CT_OK;
	if (h->block[156] == 'g')
		return bad(t, "tar-pax", h->at, at_name, "a global PAX header sets the %.4s of all members", p);
	if (p[0] == 'p') {
		if (n_value > CT_TAR_MAX_NAME)
			return bad(t, "tar-size", h->at, at_name, "a name of %zu bytes, the limit is %d", n_value,
				   CT_TAR_MAX_NAME);
		if (memchr(value, '\0', n_value))
			return bad(t, "tar-pax", h->at, at_name, "a NUL in a name");
		ct_str_clear(name);
		ct_str_add_bytes(name, value, n_value);
		x->has_name = n_value > 0; /* POSIX: an empty value takes the record back */
		return ct_str_status(name);
	}
	for (size_t i = 0; i < n_value; i++) {
		if (value[i] < '0' || value[i] > '9')
			return bad(t, "tar-pax", h->at, at_name, "a PAX size that is not a number");
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(value[i] - '0'), &v))
			return bad(t, "tar-size", h->at, at_name, "a PAX size past any file");
	}
	x->size = v;
	x->has_size = n_value > 0;
	return CT_OK;
}

/* Records "LENGTH key=value\n", LENGTH counting all of it. */
static enum ct_status take_pax(ct_tar *t, const struct header *h, struct extension *x, struct ct_str *name)
{
	const char *p, *end;

	CT_TRY(read_records(t, h, MAX_PAX, "a PAX header"));
	p = ct_str_text(&t->records);
	for (end = p + t->records.len; p < end;) {
		size_t left = (size_t)(end - p), n = 0, i;

		for (i = 0; i < left && i < 8 && p[i] >= '0' && p[i] <= '9'; i++)
			n = 10 * n + (size_t)(p[i] - '0');
		if (i == 0 || i >= left || p[i] != ' ' || n > left || n < i + 2 || p[n - 1] != '\n')
			return bad(t, "tar-pax", h->at, ct_str_text(&t->name),
				   "a PAX record whose length and newline do not agree");
		CT_TRY(take_record(t, h, p + i + 1, n - i - 2, x, name));
		p += n;
	}
	return CT_OK;
}

/* Whether a member of this type has data in the archive, and what it is. Links, folders and devices may state a size
 * (of the file elsewhere) without having data. */
static enum ct_tar_type type_of(uint8_t flag, const struct ct_str *name, bool *data)
{
	*data = !(flag >= '1' && flag <= '6');
	switch (flag) {
	case '\0':
	case '0':
	case '7':
		/* Before POSIX a folder was a file with a slash at the end. */
		return name->len > 0 && name->s[name->len - 1] == '/' ? CT_TAR_FOLDER : CT_TAR_FILE;
	case '1':
	case '2':
		return CT_TAR_LINK;
	case '5':
		return CT_TAR_FOLDER;
	default:
		return CT_TAR_OTHER;
	}
}

static enum ct_status take_member(ct_tar *t, const struct header *h, const struct extension *x,
				  const struct ct_str *name, struct ct_tar_member *m)
{
	bool data;

	if (h->block[156] == 'S' || h->block[156] == 'M')
		return bad(t, "tar-type", h->at, ct_str_text(x->has_name ? name : &t->name),
			   "%s members are not supported", h->block[156] == 'S' ? "sparse" : "multi-volume");
	if (x->has_name) {
		ct_str_clear(&t->name);
		ct_str_add_bytes(&t->name, ct_str_text(name), name->len);
		CT_TRY(ct_str_status(&t->name));
	}
	m->type = type_of(h->block[156], &t->name, &data);
	m->name = ct_str_text(&t->name);
	m->name_len = t->name.len;
	m->header = x->any ? x->first : h->at;
	m->offset = h->at + BLOCK;
	m->size = !data ? 0 : x->has_size ? x->size : h->size;
	return pass_data(t, h, m->name, m->size);
}

static enum ct_status next_member(ct_tar *t, struct ct_tar_member *m, struct ct_str *name)
{
	struct extension x = {0};
	struct header h;
	bool end;

	for (;;) {
		CT_TRY(read_header(t, &h, &end));
		if (end && x.any)
			return CT_FAIL(CT_DATA, "%s: truncated: the header at byte %llu has no member after it",
				       t->path, (unsigned long long)x.first);
		if (end) {
			t->ended = true;
			return CT_OK;
		}
		switch (h.block[156]) {
		case 'L':
			CT_TRY(take_long_name(t, &h, &x, name));
			break;
		case 'x':
		case 'X':
			CT_TRY(take_pax(t, &h, &x, name));
			break;
		case 'g':
			CT_TRY(take_pax(t, &h, &x, name));
			continue;
		case 'K':
			CT_TRY(pass_data(t, &h, ct_str_text(&t->name), h.size));
			break;
		default:
			return take_member(t, &h, &x, name, m);
		}
		if (!x.any)
			x.first = h.at;
		x.any = true;
	}
}

enum ct_status ct_tar_next(ct_tar *t, struct ct_tar_member *m)
{
	struct ct_str name = {0};
	enum ct_status st;

	*m = (struct ct_tar_member){0};
	if (t->ended)
		return CT_OK;
	st = next_member(t, m, &name);
	ct_str_release(&name);
	if (st < 0)
		*m = (struct ct_tar_member){0};
	return st;
}

bool ct_tar_header_at(ct_tar *t, uint64_t at, struct ct_tar_member *m)
{
	struct header h = {.at = at};
	bool data;

	*m = (struct ct_tar_member){0};
	if (at % BLOCK || ct_tar_read(t, h.block, BLOCK, at) < 0 || !checksum_right(h.block) ||
	    all_zero(h.block, BLOCK) || parse_size(t, &h, "", &h.size) < 0) {
		ct_error_clear();
		return false;
	}
	take_header_name(t, h.block);
	m->type = type_of(h.block[156], &t->name, &data);
	m->name = ct_str_text(&t->name);
	m->name_len = t->name.len;
	m->header = at;
	m->offset = at + BLOCK;
	m->size = h.size;
	return true;
}
