/* A member may be preceded by extension headers with its long name or size. They are collected until an ordinary header
 * follows, whose own fields they replace; an archive that ends in between is truncated. Each header block is checked by
 * its checksum before a field is used, and data must lie inside of the file before the position moves past it, so each
 * header is after the last one and reading ends. Numbers are 64 bits wide and compared so that no sum can overflow.
 * Extensions have limits on their size. Features that would change the meaning of data (sparse or multi-volume members,
 * global names and sizes) are refused and never ignored. A read of 2 KiB ahead covers header, small member and next
 * header. */
#include "data/shards/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/shards/tar_header_impl.h"

#define BLOCK ((uint64_t)CT_TAR_BLOCK)
/* Large enough to read the header of a small member, its data and the next header at once. */
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
	struct ct_str name; /* of the member returned last */
	struct ct_str records;
	bool ended, goes_on, padding_cut;
};

/* A header block, and the fields that extension headers set for the next member. */
struct header {
	uint8_t block[CT_TAR_BLOCK];
	uint64_t at, size;
};
struct extension {
	uint64_t first; /* header */
	uint64_t size;
	bool any, has_name, has_size;
};

static CT_PRINTF(5, 6) enum ct_status
	bad(const ct_tar *t, const char *tag, uint64_t at, const char *name, const char *fmt, ...)
{
	char escaped[160], text[256];
	va_list ap;

	ct_name_escape(name, strlen(name), escaped, sizeof(escaped));
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return CT_FAIL_TAG(CT_DATA, t->path, tag, "member \"%s\" at byte %llu: %s", escaped, (unsigned long long)at,
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

	CT_TRY(ct_file_open(t->path, CT_FILE_READ, &t->fd));
	if (fstat(t->fd, &sb) != 0)
		return CT_FAIL(CT_IO, "cannot stat %s: %s", t->path, strerror(errno));
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

bool ct_tar_padding_cut(const ct_tar *t)
{
	return t->padding_cut;
}

void ct_tar_seek(ct_tar *t, uint64_t at)
{
	t->at = at < t->bytes ? at : t->bytes; /* the last member may lack its padding */
	t->ended = false;
}

enum ct_status ct_tar_read(ct_tar *t, void *dst, size_t n, uint64_t at)
{
	if (at > t->bytes || n > t->bytes - at)
		return CT_FAIL_TAG(CT_DATA, t->path, "truncated",
				   "it ends at byte %llu, %zu bytes are expected at byte %llu",
				   (unsigned long long)t->bytes, n, (unsigned long long)at);
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

static enum ct_status parse_size(const ct_tar *t, const struct header *h, const char *name, uint64_t *out)
{
	switch (ct__tar_size_field(h->block, out)) {
	case CT_TAR_NUMBER:
		return CT_OK;
	case CT_TAR_NEGATIVE:
		return bad(t, "tar-size", h->at, name, "its size is negative");
	case CT_TAR_TOO_LARGE:
		return bad(t, "tar-size", h->at, name, "its size is larger than any file");
	case CT_TAR_NO_NUMBER:
		break;
	}
	return bad(t, "tar-header", h->at, name, "its size field is not a number");
}

static enum ct_status no_header(const ct_tar *t, const struct header *h)
{
	const uint8_t *b = h->block;
	enum ct_status st;

	if (h->at == 0 && memcmp(b, "PK\3\4", 4) == 0)
		st = CT_FAIL_TAG(CT_DATA, t->path, "format-zip", "this is a zip archive, not a tar file");
	else if (h->at == 0 && b[0] == 0x1f && b[1] == 0x8b)
		st = CT_FAIL_TAG(CT_DATA, t->path, "format-gzip",
				 "this is a compressed file, which does not allow random access");
	else if (h->at == 0 && b[0] == '<')
		st = CT_FAIL_TAG(CT_DATA, t->path, "tar-header",
				 "this is not a tar file but looks like a web page (a failed download?)");
	else
		return CT_FAIL_TAG(CT_DATA, t->path, "tar-header",
				   "there is no tar header at byte %llu (wrong checksum)", (unsigned long long)h->at);
	ct_error_hint(b[0] == 0x1f ? "uncompress it first: gunzip" : "download the tar file again");
	return st;
}

/* Copies the name from the header block to t->name. Ignores extension headers. */
static void take_header_name(ct_tar *t, const uint8_t *b)
{
	bool posix = memcmp(b + 257, "ustar", 6) == 0;

	ct_str_clear(&t->name);
	/* GNU headers have other fields in place of the POSIX prefix. */
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
		t->goes_on = !ct__tar_all_zero(b, n);
	}
}

/* Reads the block at t->at. Sets *end at the end of the archive. */
static enum ct_status read_header(ct_tar *t, struct header *h, bool *end)
{
	size_t left = t->bytes - t->at < BLOCK ? (size_t)(t->bytes - t->at) : CT_TAR_BLOCK;

	h->at = t->at;
	*end = true;
	if (left == 0)
		return CT_OK;
	CT_TRY(ct_tar_read(t, h->block, left, t->at));
	if (ct__tar_all_zero(h->block, left)) {
		look_past_end(t, t->at + left);
		return CT_OK;
	}
	*end = false;
	if (left < BLOCK && t->at > 0)
		return CT_FAIL_TAG(CT_DATA, t->path, "truncated", "it ends inside the header at byte %llu",
				   (unsigned long long)t->at);
	if (left < BLOCK)
		memset(h->block + left, 0, BLOCK - left);
	if (left < BLOCK || !ct__tar_checksum_right(h->block))
		return no_header(t, h);
	take_header_name(t, h->block);
	CT_TRY(ct_str_status(&t->name));
	return parse_size(t, h, ct_str_text(&t->name), &h->size);
}

/* Checks that n bytes of data after the header are inside the file, and moves t->at past them. */
static enum ct_status pass_data(ct_tar *t, const struct header *h, const char *name, uint64_t n)
{
	uint64_t offset = h->at + BLOCK;

	if (n > INT64_MAX - offset)
		return bad(t, "tar-size", h->at, name, "its size of %llu bytes is larger than any file",
			   (unsigned long long)n);
	if (offset > t->bytes || n > t->bytes - offset)
		return bad(t, "truncated", h->at, name, "its header declares %llu bytes, but the file ends after %llu",
			   (unsigned long long)n, (unsigned long long)(offset > t->bytes ? 0 : t->bytes - offset));
	t->at = offset + n + (BLOCK - n % BLOCK) % BLOCK;
	/* The last member may lack its padding: all of it if members were concatenated, a part of it if the file was
	 * truncated. */
	if (t->at > t->bytes) {
		t->padding_cut = true;
		t->at = t->bytes;
	}
	return CT_OK;
}

/* Reads the data of an extension header into t->records. */
static enum ct_status read_records(ct_tar *t, const struct header *h, uint64_t limit, const char *what)
{
	uint8_t piece[AHEAD];

	if (h->size > limit)
		return bad(t, "tar-size", h->at, ct_str_text(&t->name), "%s has %llu bytes, but the limit is %llu",
			   what, (unsigned long long)h->size, (unsigned long long)limit);
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

static enum ct_status take_pax_path(ct_tar *t, const struct header *h, const struct ct_pax_record *r,
				    struct extension *x, struct ct_str *name)
{
	if (r->n_value > CT_TAR_MAX_NAME)
		return bad(t, "tar-size", h->at, ct_str_text(&t->name), "its name has %zu bytes, but the limit is %d",
			   r->n_value, CT_TAR_MAX_NAME);
	if (memchr(r->value, '\0', r->n_value))
		return bad(t, "tar-pax", h->at, ct_str_text(&t->name), "its name contains a NUL byte");
	ct_str_clear(name);
	ct_str_add_bytes(name, r->value, r->n_value);
	x->has_name = r->n_value > 0; /* POSIX: an empty value cancels the record */
	return ct_str_status(name);
}

static enum ct_status take_pax_size(ct_tar *t, const struct header *h, const struct ct_pax_record *r,
				    struct extension *x)
{
	switch (ct__pax_number(r->value, r->n_value, &x->size)) {
	case CT_TAR_NUMBER:
		x->has_size = r->n_value > 0;
		return CT_OK;
	case CT_TAR_TOO_LARGE:
		return bad(t, "tar-size", h->at, ct_str_text(&t->name), "its PAX size is larger than any file");
	default:
		return bad(t, "tar-pax", h->at, ct_str_text(&t->name), "its PAX size is not a number");
	}
}

static bool key_is(const struct ct_pax_record *r, const char *key)
{
	return r->n_key == strlen(key) && memcmp(r->key, key, r->n_key) == 0;
}

static enum ct_status take_pax(ct_tar *t, const struct header *h, struct extension *x, struct ct_str *name)
{
	static const char sparse[] = "GNU.sparse.";
	const char *at_name = ct_str_text(&t->name), *p, *end;
	struct ct_pax_record r;

	CT_TRY(read_records(t, h, MAX_PAX, "a PAX header"));
	p = ct_str_text(&t->records);
	for (end = p + t->records.len; p < end;) {
		bool path, size;

		if (!ct__pax_next(&p, end, &r))
			return bad(t, "tar-pax", h->at, at_name,
				   "a PAX record does not have the form \"LENGTH key=value\"");
		if (r.n_key >= strlen(sparse) && memcmp(r.key, sparse, strlen(sparse)) == 0)
			return bad(t, "tar-type", h->at, at_name, "sparse members are not supported");
		path = key_is(&r, "path");
		size = key_is(&r, "size");
		if ((path || size) && h->block[156] == 'g')
			return bad(t, "tar-pax", h->at, at_name,
				   "a global PAX header that sets the %s of all members is not supported",
				   path ? "path" : "size");
		if (path)
			CT_TRY(take_pax_path(t, h, &r, x, name));
		if (size)
			CT_TRY(take_pax_size(t, h, &r, x));
	}
	return CT_OK;
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
	m->type = ct__tar_type_of(h->block[156], ct_str_text(&t->name), t->name.len, &data);
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
			return CT_FAIL_TAG(CT_DATA, t->path, "truncated",
					   "the header at byte %llu has no member after it",
					   (unsigned long long)x.first);
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
	if (at % BLOCK || ct_tar_read(t, h.block, BLOCK, at) < 0 || !ct__tar_checksum_right(h.block) ||
	    ct__tar_all_zero(h.block, BLOCK) || parse_size(t, &h, "", &h.size) < 0) {
		ct_error_clear();
		return false;
	}
	take_header_name(t, h.block);
	m->type = ct__tar_type_of(h.block[156], ct_str_text(&t->name), t->name.len, &data);
	m->name = ct_str_text(&t->name);
	m->name_len = t->name.len;
	m->header = at;
	m->offset = at + BLOCK;
	m->size = h.size;
	return true;
}
