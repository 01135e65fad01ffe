/* Indexes of DALI's wds2idx, declared in shard_index.h. The file has a line "v1.2 COUNT" and then one line per sample,
 * which has "EXTENSION OFFSET SIZE NAME" for each member ("EXTENSION OFFSET SIZE" in v1.1). Source: wds2idx.py and the
 * reader of NVIDIA DALI. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/shards/shard_build_impl.h"

#define MAX_COMPONENTS 256
#define MAX_NUMBER_DIGITS 19

/* The bytes of a listed member: its header block, its data, and the padding of the last block. */
struct listed {
	uint64_t begin, end;
	uint64_t line;
};

struct reader {
	const char *p, *end;
	const char *path;
	uint64_t line; /* the first line is 1 */
	bool names;
	struct ct_shard_build build;
	struct listed *listed;
	size_t n_listed, cap_listed;
};

struct word {
	const char *p;
	size_t n;
};

static CT_PRINTF(3, 4) enum ct_status bad(const struct reader *r, const char *tag, const char *fmt, ...)
{
	struct ct_str text = {0};
	enum ct_status st;
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	st = CT_FAIL_TAG(CT_DATA, r->path, tag, "line %llu: %s", (unsigned long long)r->line, ct_str_text(&text));
	ct_str_release(&text);
	ct_error_hint("if the shard is intact, delete the .idx file: ctrain builds its own index");
	return st;
}

/* Gets the next word of the line. Returns false at the end of the line. */
static bool next_word(struct word *line, struct word *out)
{
	while (line->n && line->p[0] == ' ') {
		line->p++;
		line->n--;
	}
	out->p = line->p;
	out->n = 0;
	while (line->n && line->p[0] != ' ') {
		line->p++;
		line->n--;
		out->n++;
	}
	return out->n > 0;
}

static enum ct_status next_line(struct reader *r, struct word *out)
{
	const char *nl;

	*out = (struct word){r->p, 0};
	r->line++;
	if (r->p == r->end)
		return bad(r, "idx-count", "the file ends here, but it declares more samples");
	nl = memchr(r->p, '\n', (size_t)(r->end - r->p));
	if (!nl)
		return bad(r, "idx-parse", "it is truncated: it has no newline at its end");
	*out = (struct word){r->p, (size_t)(nl - r->p)};
	if (out->n && out->p[out->n - 1] == '\r')
		out->n--;
	r->p = nl + 1;
	return CT_OK;
}

static bool parse_number(struct word w, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < w.n; i++) {
		if (w.p[i] < '0' || w.p[i] > '9')
			return false;
		v = 10 * v + (uint64_t)(w.p[i] - '0');
	}
	*out = v;
	return w.n > 0 && w.n < MAX_NUMBER_DIGITS;
}

static enum ct_status note_listed(struct reader *r, uint64_t offset, uint64_t size)
{
	CT_TRY_GROW(r->listed, r->n_listed, r->cap_listed);
	r->listed[r->n_listed++] = (struct listed){
		.begin = offset - CT_TAR_BLOCK,
		.end = offset + (size + CT_TAR_BLOCK - 1) / CT_TAR_BLOCK * CT_TAR_BLOCK,
		.line = r->line,
	};
	return CT_OK;
}

/* Checks that there is a header in front of the data with this size and, unless the name is truncated, with this
 * name. */
static enum ct_status check_header(struct reader *r, uint64_t offset, uint64_t size, struct word name,
				   struct ct_tar_member *m)
{
	uint64_t bytes = ct_tar_bytes(r->build.tar);

	if (offset > bytes || size > bytes - offset)
		return bad(r, "idx-range", "%llu bytes at byte %llu, but the shard has %llu bytes",
			   (unsigned long long)size, (unsigned long long)offset, (unsigned long long)bytes);
	if (offset < CT_TAR_BLOCK || !ct_tar_header_at(r->build.tar, offset - CT_TAR_BLOCK, m))
		return bad(r, "idx-stale", "no member's data starts at byte %llu: the shard has been replaced since",
			   (unsigned long long)offset);
	/* The header has size 0 if a PAX header has the size, and only a part of a long name. */
	if ((m->size != size && m->size != 0) ||
	    (name.p && m->name_len < 100 && (m->name_len != name.n || memcmp(m->name, name.p, name.n) != 0)))
		return bad(r, "idx-stale", "another member is at byte %llu: the shard has been replaced since",
			   (unsigned long long)offset);
	m->offset = offset;
	m->size = size;
	return note_listed(r, offset, size);
}

static enum ct_status read_component(struct reader *r, struct word ext, struct word *line)
{
	struct word offset_text = {0}, size_text = {0}, name = {0};
	const char *name_ext;
	struct ct_tar_member m;
	uint64_t offset, size;
	size_t n_key, n_ext;

	if (!next_word(line, &offset_text) || !next_word(line, &size_text) || (r->names && !next_word(line, &name)))
		return bad(r, "idx-parse", "it ends in the middle of a member");
	if (offset_text.p[0] == '-')
		return bad(r, "idx-range", "a negative offset");
	if (!parse_number(offset_text, &offset) || !parse_number(size_text, &size))
		return bad(r, "idx-parse", "offset and size are not numbers");
	CT_TRY(check_header(r, offset, size, name, &m));
	if (!r->names)
		name = (struct word){m.name, m.name_len};
	if (!ct__shard_split(name.p, name.n, &n_key, &name_ext, &n_ext)) {
		/* Version 1.1 has no names, and the header has only a part of this one. */
		if (r->names)
			return bad(r, "idx-stale", "a name without an extension");
		n_key = name.n;
	} else if (n_ext != ext.n || memcmp(name_ext, ext.p, n_ext) != 0) {
		return bad(r, "idx-stale", "the member at byte %llu has another extension", (unsigned long long)offset);
	}
	return ct__shard_build_add(&r->build, name.p, n_key, ext.p, ext.n, &m);
}

static enum ct_status read_sample(struct reader *r, struct word line)
{
	struct word ext;
	int n = 0;

	for (; next_word(&line, &ext); n++) {
		if (n == MAX_COMPONENTS)
			return bad(r, "idx-parse", "more than %d members in one sample", MAX_COMPONENTS);
		CT_TRY(read_component(r, ext, &line));
	}
	if (n == 0)
		return bad(r, "idx-parse", "it is empty");
	return ct__shard_build_flush(&r->build);
}

static enum ct_status read_head(struct reader *r, uint64_t *count)
{
	struct word line = {r->p, 0}, version, text;
	const char *nl;

	r->line = 1;
	if (r->p == r->end)
		return bad(r, "empty", "the file has no bytes");
	if (r->p[0] != 'v' || !(nl = memchr(r->p, '\n', (size_t)(r->end - r->p) < 64 ? (size_t)(r->end - r->p) : 64)))
		return bad(r, "idx-version", "this is not an index of wds2idx (\"v1.2 COUNT\")");
	line.n = (size_t)(nl - r->p);
	r->p = nl + 1;
	if (line.n && line.p[line.n - 1] == '\r')
		line.n--;
	if (!next_word(&line, &version) || version.n != 4 ||
	    (memcmp(version.p, "v1.1", 4) != 0 && memcmp(version.p, "v1.2", 4) != 0))
		return bad(r, "idx-version", "only v1.1 and v1.2 are supported");
	r->names = version.p[3] == '2';
	if (!next_word(&line, &text) || !parse_number(text, count) || next_word(&line, &version))
		return bad(r, "idx-parse", "the number of samples is missing");
	return CT_OK;
}

/* Checks that the gap from `from` to the listed member at `to`, or to the end of the shard (UINT64_MAX), does not
 * contain an image. */
static enum ct_status pass_unlisted(struct reader *r, uint64_t from, uint64_t to)
{
	struct ct_tar_member m;
	const char *ext;
	char shown[160];
	size_t n_key, n_ext;

	ct_tar_seek(r->build.tar, from);
	for (;;) {
		CT_TRY(ct_tar_next(r->build.tar, &m));
		/* Headers for a long name may precede the header at `to`. */
		if (!m.name || m.offset == to + CT_TAR_BLOCK)
			return CT_OK;
		if (m.offset > to || m.size > to - m.offset)
			return bad(r, "idx-stale", "the member at byte %llu is inside another one",
				   (unsigned long long)to + CT_TAR_BLOCK);
		if (m.type != CT_TAR_FILE || !ct__shard_split(m.name, m.name_len, &n_key, &ext, &n_ext) ||
		    !ct_image_extension(ext, n_ext))
			continue;
		ct_name_escape(m.name, m.name_len, shown, sizeof(shown));
		return bad(r, "idx-stale", "no line contains the image \"%s\" at byte %llu of the shard", shown,
			   (unsigned long long)m.offset);
	}
}

static int by_place(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Samples that the index does not list would be lost silently, and samples that it lists twice would count twice.
 * Therefore members are checked in the order of the shard, and only the gaps between them are read. */
static enum ct_status check_chain(struct reader *r)
{
	uint64_t at = 0;

	if (r->n_listed)
		qsort(r->listed, r->n_listed, sizeof(*r->listed), by_place);
	for (size_t i = 0; i < r->n_listed; i++) {
		const struct listed *l = &r->listed[i];

		r->line = l->line;
		if (l->begin < at)
			return bad(r, "idx-stale", "the member at byte %llu is listed twice, or overlaps another one",
				   (unsigned long long)l->begin + CT_TAR_BLOCK);
		if (l->begin > at)
			CT_TRY(pass_unlisted(r, at, l->begin));
		at = l->end;
	}
	return pass_unlisted(r, at, UINT64_MAX);
}

static enum ct_status read_all(struct reader *r)
{
	struct word line;
	uint64_t count = 0;

	CT_TRY(read_head(r, &count));
	for (uint64_t i = 0; i < count; i++) {
		CT_TRY(next_line(r, &line));
		CT_TRY(read_sample(r, line));
	}
	r->line++;
	if (r->p != r->end)
		return bad(r, "idx-count", "the file continues after the %llu samples that it declares",
			   (unsigned long long)count);
	CT_TRY(check_chain(r));
	return ct__shard_build_finish(&r->build);
}

enum ct_status ct_shard_index_from_dali(ct_tar *t, const char *text, size_t n, const char *path,
					struct ct_shard_index *out)
{
	struct reader r = {.p = text, .end = text + n, .path = path};
	enum ct_status st;

	st = ct__shard_build_init(&r.build, t, out);
	if (st == CT_OK)
		st = read_all(&r);
	ct__shard_build_release(&r.build);
	ct_free(r.listed);
	if (st < 0)
		ct_shard_index_release(out);
	return st;
}
