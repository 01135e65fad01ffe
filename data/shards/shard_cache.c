/* Cached indexes, declared in shard_index.h. A cache file has struct head, samples, skipped samples and strings, in the
 * byte order of the machine. (A file in another byte order looks like one of another version.) */
#include "data/shards/shard_index.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/files/inflate.h"
#include "data/shards/shard_build_impl.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

#define MAGIC "ctshard"
#define STALE_S 60 /* a temporary file is written in less time */
#define VERSION 3u /* 2: .idx files that lack samples are rejected; 3: records repeated keys and truncated padding */
#define INDEX_DIRECTORY ".ctrain-index"
#define MAX_FILE ((size_t)4 << 30)

enum { ENDS_GOES_ON = 1, ENDS_CUT = 2 }; /* bits of head.ends */

struct head {
	char magic[8];
	uint32_t version;
	uint32_t crc; /* of the complete file, computed with 0 in this field */
	uint64_t bytes, mtime_ns;
	uint32_t n, n_skipped, text_len, n_unsafe, ends, n_repeated;
};

_Static_assert(sizeof(struct head) == 56, "part of the format");
_Static_assert(sizeof(struct ct_shard_sample) == 24, "part of the format");
_Static_assert(sizeof(struct ct_shard_skipped) == 24, "part of the format");

enum ct_status ct_shard_index_pack(const struct ct_shard_index *x, uint8_t **data, size_t *n)
{
	size_t n_samples = x->n * sizeof(*x->samples), n_skipped = x->n_skipped * sizeof(*x->skipped);
	struct head h = {.magic = MAGIC,
			 .version = VERSION,
			 .bytes = x->bytes,
			 .mtime_ns = x->mtime_ns,
			 .n = x->n,
			 .n_skipped = x->n_skipped,
			 .text_len = x->text_len,
			 .n_unsafe = x->n_unsafe,
			 .ends = (x->goes_on ? ENDS_GOES_ON : 0) | (x->padding_cut ? ENDS_CUT : 0),
			 .n_repeated = x->n_repeated};
	uint8_t *p;

	*n = sizeof(h) + n_samples + n_skipped + x->text_len;
	CT_TRY_ALLOC(*data = p = ct_calloc(*n, 1));
	memcpy(p, &h, sizeof(h));
	p += sizeof(h);
	if (n_samples)
		memcpy(p, x->samples, n_samples);
	p += n_samples;
	if (n_skipped)
		memcpy(p, x->skipped, n_skipped);
	p += n_skipped;
	memcpy(p, x->text, x->text_len);
	ct_shard_index_seal(*data, *n);
	return CT_OK;
}

static uint32_t checksum(const uint8_t *data, size_t n)
{
	static const uint8_t zero[4];
	size_t at = offsetof(struct head, crc);
	uint32_t crc = ct_crc32(0, data, at);

	crc = ct_crc32(crc, zero, sizeof(zero));
	return ct_crc32(crc, data + at + sizeof(zero), n - at - sizeof(zero));
}

void ct_shard_index_seal(uint8_t *data, size_t n)
{
	uint32_t crc;

	if (n < sizeof(struct head))
		return;
	crc = checksum(data, n);
	memcpy(data + offsetof(struct head, crc), &crc, sizeof(crc));
}

static bool in_text(const struct ct_shard_index *x, uint32_t at, uint32_t len)
{
	return at < x->text_len && len < x->text_len - at && x->text[at + len] == '\0';
}

/* Checks that offsets are inside the shard, and strings inside the string area. */
static bool entries_right(const struct ct_shard_index *x)
{
	if (x->text_len == 0 || x->text[x->text_len - 1] != '\0')
		return false;
	for (uint32_t i = 0; i < x->n; i++) {
		const struct ct_shard_sample *s = &x->samples[i];

		if (s->size == 0 || s->size > CT_MAX_IMAGE_BYTES || s->size > x->bytes ||
		    s->offset > x->bytes - s->size || s->label < 0 || s->label > CT_MAX_LABEL ||
		    !in_text(x, s->key, s->key_len))
			return false;
	}
	for (uint32_t i = 0; i < x->n_skipped; i++) {
		const struct ct_shard_skipped *s = &x->skipped[i];

		if (!in_text(x, s->key, s->key_len) || s->reason >= x->text_len)
			return false;
	}
	return x->n > 0 || x->n_skipped > 0;
}

static enum ct_status copy_out(const uint8_t *p, size_t n, size_t size, void **out)
{
	if (n == 0)
		return CT_OK;
	CT_TRY_ALLOC(*out = ct_realloc(NULL, n, size));
	memcpy(*out, p, n * size);
	return CT_OK;
}

static enum ct_status copy_blocks(const struct head *h, const uint8_t *p, struct ct_shard_index *x)
{
	void *samples = NULL, *skipped = NULL, *text = NULL;
	enum ct_status st;

	st = copy_out(p, h->n, sizeof(*x->samples), &samples);
	p += h->n * sizeof(*x->samples);
	if (st == CT_OK)
		st = copy_out(p, h->n_skipped, sizeof(*x->skipped), &skipped);
	p += h->n_skipped * sizeof(*x->skipped);
	if (st == CT_OK)
		st = copy_out(p, h->text_len, 1, &text);
	x->samples = samples;
	x->skipped = skipped;
	x->text = text;
	return st;
}

enum ct_status ct_shard_index_unpack(const uint8_t *data, size_t n, const char *name, uint64_t bytes, uint64_t mtime_ns,
				     struct ct_shard_index *out)
{
	struct ct_shard_index x = {0};
	struct head h;
	enum ct_status st;

	if (n < sizeof(h))
		return CT_FAIL(CT_DATA, "it is truncated");
	memcpy(&h, data, sizeof(h));
	if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 || h.version != VERSION)
		return CT_FAIL(CT_DATA, "its version is not supported");
	if (h.n * sizeof(*x.samples) + h.n_skipped * sizeof(*x.skipped) + h.text_len != n - sizeof(h))
		return CT_FAIL(CT_DATA, "it is truncated");
	if (checksum(data, n) != h.crc)
		return CT_FAIL(CT_DATA, "its checksum is wrong");
	if (h.bytes != bytes || h.mtime_ns != mtime_ns)
		return CT_FAIL(CT_DATA, "the shard has changed");
	x.bytes = bytes;
	x.mtime_ns = mtime_ns;
	x.n = h.n;
	x.n_skipped = h.n_skipped;
	x.text_len = h.text_len;
	x.n_unsafe = h.n_unsafe;
	x.goes_on = (h.ends & ENDS_GOES_ON) != 0;
	x.padding_cut = (h.ends & ENDS_CUT) != 0;
	x.n_repeated = h.n_repeated;
	st = copy_blocks(&h, data + sizeof(h), &x);
	if (st == CT_OK && !entries_right(&x))
		st = CT_FAIL(CT_DATA, "its entries are invalid");
	if (st == CT_OK && strcmp(x.text, name) != 0)
		st = CT_FAIL(CT_DATA, "it belongs to another shard");
	if (st < 0) {
		ct_shard_index_release(&x);
		return st;
	}
	ct__shard_index_sum(&x);
	*out = x;
	return CT_OK;
}

char *ct_shard_index_path(const char *shard, const char *dir)
{
	char real[PATH_MAX], *directory, *path = NULL;

	if (!dir) {
		directory = ct_path_dir(shard);
		if (directory)
			path = ct_strfmt("%s/" INDEX_DIRECTORY "/%s.index", directory, ct_path_name(shard));
		ct_free(directory);
		return path;
	}
	/* Shards with the same name in different directories share dir. */
	directory = ct_path_dir(shard);
	if (directory) {
		const char *whole = realpath(directory, real) ? real : directory;

		path = ct_strfmt("%s/%s.%08x.index", dir, ct_path_name(shard), ct_crc32(0, whole, strlen(whole)));
	}
	ct_free(directory);
	return path;
}

/* A cache file needs no fsync: a half-written one fails its checksum. So the temporary file may have the same name in
 * all processes. Whoever finds one that another process is writing leaves the index to that process, and whoever finds
 * one that a killed process has left removes it. */
static enum ct_status write_file(const char *path, const uint8_t *data, size_t n)
{
	enum ct_status st = CT_OK;
	struct stat sb;
	char *temp;
	int fd;

	CT_TRY_ALLOC(temp = ct_strfmt("%s.tmp", path));
	if (lstat(temp, &sb) == 0) {
		if (difftime(time(NULL), sb.st_mtime) <= STALE_S)
			goto done;
		(void)unlink(temp);
	}
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0) {
		if (errno != EEXIST) /* another process has just created it */
			st = CT_FAIL(CT_IO, "cannot create %s: %s", temp, strerror(errno));
		goto done;
	}
	st = ct_fd_write_all(fd, data, n, temp);
	if (st < 0)
		close(fd);
	else
		st = ct_fd_close(fd, temp);
	if (st == CT_OK && rename(temp, path) != 0)
		st = CT_FAIL(CT_IO, "cannot replace %s: %s", path, strerror(errno));
	if (st < 0)
		unlink(temp);
done:
	ct_free(temp);
	return st;
}

static enum ct_status save_at(const char *path, const uint8_t *data, size_t n)
{
	char *directory = ct_path_dir(path);
	enum ct_status st = directory ? ct_dir_make(directory) : CT_NOMEM;

	ct_free(directory);
	CT_TRY(st);
	return write_file(path, data, n);
}

static bool load_at(const char *path, const char *name, uint64_t bytes, uint64_t mtime_ns, struct ct_shard_index *out)
{
	enum ct_status st;
	size_t n;
	char *data;

	if (ct_file_read(path, MAX_FILE, &data, &n) < 0) {
		if (ct_error_status() != CT_NOT_FOUND)
			CT_DEBUG("cannot use the index of %s: %s", name, ct_error_message());
		ct_error_clear();
		return false;
	}
	st = ct_shard_index_unpack((const uint8_t *)data, n, name, bytes, mtime_ns, out);
	ct_free(data);
	if (st < 0) {
		CT_DEBUG("rebuilding the index %s: %s", path, ct_error_message());
		ct_error_clear();
	}
	return st == CT_OK;
}

/* $XDG_CACHE_HOME/ctrain/index or ~/.cache/ctrain/index, owned; NULL if neither variable is set. */
static char *user_dir(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (cache && cache[0] == '/')
		return ct_path_join(cache, "ctrain/index");
	return home && home[0] == '/' ? ct_path_join(home, ".cache/ctrain/index") : NULL;
}

/* Returns the i-th path (0 or 1) where the index of the shard may be, owned by the caller; NULL after the last. */
static char *place(const char *shard, const char *index_dir, int i)
{
	char *dir, *path = NULL;

	if (index_dir && index_dir[0])
		return i == 0 ? ct_shard_index_path(shard, index_dir) : NULL;
	if (i == 0)
		return ct_shard_index_path(shard, NULL);
	dir = user_dir();
	if (dir)
		path = ct_shard_index_path(shard, dir);
	ct_free(dir);
	return path;
}

static bool load(const ct_tar *t, const char *index_dir, struct ct_shard_index *out)
{
	bool found = false;

	for (int i = 0; i < 2 && !found; i++) {
		char *path = place(ct_tar_path(t), index_dir, i);

		found = path && load_at(path, ct_path_name(ct_tar_path(t)), ct_tar_bytes(t), ct_tar_mtime_ns(t), out);
		ct_free(path);
	}
	return found;
}

/* Do not write to a directory without any write permission, even as root. */
static bool may_write_beside(const char *shard)
{
	char *directory = ct_path_dir(shard);
	struct stat sb;
	bool may = directory && stat(directory, &sb) == 0 && (sb.st_mode & 0222) != 0;

	ct_free(directory);
	return may;
}

/* If neither path is writable, the next start takes as long as this one. */
static void save(const struct ct_shard_index *x, const char *shard, const char *index_dir)
{
	bool saved = false;
	uint8_t *data;
	size_t n;

	if (ct_shard_index_pack(x, &data, &n) < 0) {
		ct_error_clear();
		return;
	}
	for (int i = 0; i < 2 && !saved; i++) {
		bool beside = i == 0 && !(index_dir && index_dir[0]);
		char *path = beside && !may_write_beside(shard) ? NULL : place(shard, index_dir, i);

		saved = path && save_at(path, data, n) == CT_OK;
		ct_free(path);
	}
	if (!saved)
		CT_DEBUG("cannot cache the index of %s: %s", shard, ct_error_message());
	ct_error_clear();
	ct_free(data);
}

/* Reads SHARD.idx for SHARD.tar. Sets *found to false if it does not exist. */
static enum ct_status open_dali(ct_tar *t, struct ct_shard_index *out, bool *found)
{
	const char *shard = ct_tar_path(t), *dot = strrchr(ct_path_name(shard), '.');
	size_t stem = dot && dot > ct_path_name(shard) ? (size_t)(dot - shard) : strlen(shard), n;
	enum ct_status st;
	char *path, *text;
	struct stat sb;

	CT_TRY_ALLOC(path = ct_strfmt("%.*s.idx", (int)stem, shard));
	/* Reading a pipe with that name would wait forever. */
	*found = strcmp(path, shard) != 0 && stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
	st = CT_OK;
	if (*found)
		st = ct_file_read(path, (size_t)1 << 30, &text, &n);
	if (*found && st == CT_OK) {
		st = ct_shard_index_from_dali(t, text, n, path, out);
		ct_free(text);
	}
	ct_free(path);
	return st;
}

static void say_oddities(const char *path, const struct ct_shard_index *x)
{
	if (x->n_unsafe)
		CT_WARN("%s: unsafe-name: %u names contain control bytes, \"..\" or a leading \"/\"; ctrain creates no files "
			"with these names, but other programs might",
			path, x->n_unsafe);
	if (x->n_repeated)
		CT_WARN("%s: duplicate-key: %u samples share their key with another sample of this shard; all of them are used",
			path, x->n_repeated);
	if (x->padding_cut)
		CT_WARN("%s: truncated: the file ends inside the padding of its last member; samples may be missing "
			"(an incomplete download?)",
			path);
	if (x->goes_on)
		CT_WARN("%s: data after the end mark is ignored (two tar files joined with cat?)", path);
}

static enum ct_status make(ct_tar *t, struct ct_shard_index *out, enum ct_shard_source *source)
{
	bool found;

	CT_TRY(open_dali(t, out, &found));
	*source = found ? CT_SHARD_DALI : CT_SHARD_SCANNED;
	return found ? CT_OK : ct_shard_index_scan(t, out);
}

enum ct_status ct_shard_index_open(const char *path, const char *index_dir, struct ct_shard_index *out,
				   enum ct_shard_source *source)
{
	enum ct_status st = CT_OK;
	ct_tar *t;

	CT_TRY(ct_tar_open(path, &t));
	*source = CT_SHARD_CACHED;
	if (!load(t, index_dir, out)) {
		st = make(t, out, source);
		if (st == CT_OK) {
			save(out, path, index_dir);
		}
	}
	ct_tar_close(t);
	if (st == CT_OK)
		say_oddities(path, out);
	return st;
}
