/* Writes one shard: reads its images, reduces them if requested, writes the tar file and its other files. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/file.h"
#include "data/pack/pack_impl.h"
#include "data/shards/shard_index.h"
#include "data/shards/tar_write.h"
#include "data/transform/resize.h"

#define MAX_FILE ((uint64_t)CT_MAX_IMAGE_BYTES) /* limit of the data formats */
#define DEFAULT_QUALITY 90

struct pack_worker {
	const struct ct_pack_opts *opts;
	ct_image_decoder *decoder; /* NULL: images are copied */
	ct_resizer *resizer;
	uint8_t *file, *rgb, *jpeg;
	size_t file_cap, rgb_cap;
	struct ct_str idx, left_out;
	uint64_t n_written;
};

enum ct_status ct__pack_worker_create(const struct ct_pack_opts *opts, pack_worker **out)
{
	const struct ct_image_opts image = {0};
	enum ct_status st = CT_OK;
	pack_worker *w;

	CT_TRY_ALLOC(w = CT_NEW(pack_worker));
	w->opts = opts;
	if (opts->short_side > 0)
		st = ct_image_decoder_create(&image, &w->decoder);
	if (opts->short_side > 0 && st == CT_OK)
		st = ct_resizer_create(&w->resizer);
	if (st < 0) {
		ct__pack_worker_destroy(w);
		return st;
	}
	*out = w;
	return CT_OK;
}

void ct__pack_worker_destroy(pack_worker *w)
{
	if (!w)
		return;
	ct_resizer_destroy(w->resizer);
	ct_image_decoder_destroy(w->decoder);
	ct_str_release(&w->left_out);
	ct_str_release(&w->idx);
	ct_free(w->jpeg);
	ct_free(w->rgb);
	ct_free(w->file);
	ct_free(w);
}

static enum ct_status grow(uint8_t **p, size_t *cap, size_t n)
{
	uint8_t *more;

	if (n <= *cap)
		return CT_OK;
	CT_TRY_ALLOC(more = ct_realloc(*p, n, 1));
	*p = more;
	*cap = n;
	return CT_OK;
}

/* Checks that the file has not changed since it was listed. */
static enum ct_status read_file(pack_worker *w, const struct pack_item *item)
{
	char *path = ct_path_join(w->opts->src, item->path);
	enum ct_status st = path ? grow(&w->file, &w->file_cap, (size_t)item->size + 1) : CT_NOMEM;
	struct stat sb;
	int fd = -1;

	if (st == CT_OK) {
		/* Non-blocking, because opening a pipe without a writer would wait forever. */
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			st = CT_FAIL(errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s", path,
				     strerror(errno));
	}
	if (st == CT_OK && (fstat(fd, &sb) != 0 || (uint64_t)sb.st_size != item->size)) {
		CT_FAIL(CT_DATA, "%s changed while it was being packed", path);
		st = ct_error_hint("pack again when no other program writes to it");
	}
	if (st == CT_OK && item->size > 0)
		st = ct_fd_read_at(fd, w->file, (size_t)item->size, 0, path);
	if (fd >= 0)
		close(fd);
	ct_free(path);
	return st;
}

static const char *extension_of(const uint8_t *p, size_t n)
{
	static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

	if (n >= 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff)
		return "jpg";
	return n >= sizeof(png) && memcmp(p, png, sizeof(png)) == 0 ? "png" : NULL;
}

/* Records a file that cannot be used; packing continues. */
static void leave_out(pack_worker *w, const struct pack_item *item, const char *reason)
{
	ct_str_add_escaped(&w->left_out, item->path, strlen(item->path), 4096);
	ct_str_add(&w->left_out, "\t");
	ct_str_add_escaped(&w->left_out, reason, strlen(reason), 1000);
	ct_str_add(&w->left_out, "\n");
}

static int scaled(int side, int from, int to)
{
	int n = (int)lround((double)side * to / from);

	return n > 0 ? n : 1;
}

/* Decodes, resizes and encodes an image. *data does not change if the image is already small. */
static enum ct_status shrink(pack_worker *w, const uint8_t **data, size_t *n, const char **extension)
{
	struct ct_image_header h;
	struct ct_pixels pixels;
	struct ct_resize r;
	int side;

	CT_TRY(ct_image_open(w->decoder, *data, *n, &h));
	side = h.w < h.h ? h.w : h.h;
	if (side <= w->opts->short_side)
		return CT_OK;
	r = (struct ct_resize){.w = h.w,
			       .h = h.h,
			       .limits = {.w = h.w, .h = h.h},
			       .out_w = scaled(h.w, side, w->opts->short_side),
			       .out_h = scaled(h.h, side, w->opts->short_side)};
	CT_TRY(ct_image_decode(w->decoder, (struct ct_box){.w = h.w, .h = h.h}, 0, 0, &pixels));
	CT_TRY(grow(&w->rgb, &w->rgb_cap, (size_t)r.out_w * (size_t)r.out_h * 3));
	CT_TRY(ct_resize_run(w->resizer, &r, &pixels, w->rgb));
	ct_free(w->jpeg);
	w->jpeg = NULL;
	CT_TRY(ct_image_encode_jpeg(w->rgb, r.out_w, r.out_h, w->opts->quality ? w->opts->quality : DEFAULT_QUALITY,
				    &w->jpeg, n));
	*data = w->jpeg;
	*extension = "jpg";
	return CT_OK;
}

/* Adds restart markers. *data does not change if they would be of no use. */
static enum ct_status make_seekable(pack_worker *w, const uint8_t **data, size_t *n)
{
	uint8_t *made;
	size_t n_made;

	CT_TRY(ct_image_make_seekable(*data, *n, &made, &n_made));
	if (!made)
		return CT_OK;
	ct_free(w->jpeg);
	w->jpeg = made;
	*data = made;
	*n = n_made;
	return CT_OK;
}

static enum ct_status add_sample(pack_worker *w, ct_tar_writer *tar, const struct pack_item *item, const uint8_t *data,
				 size_t n, const char *extension)
{
	char label[16], *name;
	uint64_t at, label_at;
	enum ct_status st;

	CT_TRY_ALLOC(name = ct_strfmt("%s.%s", item->key, extension));
	st = ct_tar_writer_add(tar, name, data, n, &at);
	snprintf(label, sizeof(label), "%d", item->label);
	if (st == CT_OK) {
		ct_str_addf(&w->idx, "%s %llu %zu %s ", extension, (unsigned long long)at, n, name);
		ct_free(name);
		CT_TRY_ALLOC(name = ct_strfmt("%s.cls", item->key));
		st = ct_tar_writer_add(tar, name, label, strlen(label), &label_at);
	}
	if (st == CT_OK)
		ct_str_addf(&w->idx, "cls %llu %zu %s\n", (unsigned long long)label_at, strlen(label), name);
	ct_free(name);
	w->n_written++;
	return st;
}

static enum ct_status pack_item(pack_worker *w, ct_tar_writer *tar, const struct pack_item *item)
{
	const uint8_t *data;
	const char *extension;
	size_t n = (size_t)item->size;
	enum ct_status st = CT_OK;

	if (item->size > MAX_FILE) {
		leave_out(w, item, "size: larger than 256 MiB");
		return CT_OK;
	}
	CT_TRY(read_file(w, item));
	data = w->file;
	extension = extension_of(data, n);
	if (!extension) {
		leave_out(w, item, n == 0 ? "empty: no bytes" : "format: neither JPEG nor PNG");
		return CT_OK;
	}
	if (w->decoder)
		st = shrink(w, &data, &n, &extension);
	if (st == CT_OK && w->opts->seekable && strcmp(extension, "jpg") == 0)
		st = make_seekable(w, &data, &n);
	if (st == CT_DATA) {
		leave_out(w, item, ct_error_message());
		ct_error_clear();
		return CT_OK;
	}
	CT_TRY(st);
	return add_sample(w, tar, item, data, n, extension);
}

/* Returns the path of a shard, such as dir/train-000003.tar, with another suffix. */
static char *companion(const char *path, const char *ending)
{
	return ct_strfmt("%.*s%s", (int)(strlen(path) - strlen(".tar")), path, ending);
}

/* The shard gets its name last, so without it, neither an old nor an incomplete file is ever read. The file can
 * therefore be written directly. ct_file_replace would read the complete directory for each shard. */
static enum ct_status write_companion(const char *path, const struct ct_str *text)
{
	enum ct_status st;
	int fd;

	(void)unlink(path);
	CT_TRY(ct_file_open(path, CT_FILE_NEW, &fd));
	st = ct_fd_write_all(fd, text->s, text->len, path);
	if (st == CT_OK)
		st = ct_fd_sync(fd, path);
	if (st == CT_OK)
		st = ct_fd_close(fd, path);
	else
		close(fd);
	if (st < 0)
		(void)unlink(path);
	return st;
}

static enum ct_status write_companions(pack_worker *w, const char *path)
{
	char *idx = companion(path, ".idx"), *left = companion(path, ".left-out.tsv");
	enum ct_status st = idx && left ? CT_OK : CT_NOMEM;
	struct ct_str text = {0};

	ct_str_addf(&text, "v1.2 %llu\n", (unsigned long long)w->n_written);
	ct_str_add(&text, ct_str_text(&w->idx));
	if (st == CT_OK)
		st = ct_str_status(&w->idx);
	if (st == CT_OK)
		st = ct_str_status(&text);
	if (st == CT_OK)
		st = ct_str_status(&w->left_out);
	if (st == CT_OK)
		st = write_companion(idx, &text);
	if (st == CT_OK && w->left_out.len > 0)
		st = write_companion(left, &w->left_out);
	else if (st == CT_OK)
		(void)unlink(left); /* left by an earlier shard of this name */
	ct_str_release(&text);
	ct_free(left);
	ct_free(idx);
	return st;
}

static enum ct_status finish(pack_worker *w, ct_tar_writer *tar, const char *part, const char *path)
{
	char *dir;
	enum ct_status st;
	uint64_t bytes;

	CT_TRY(ct_tar_writer_finish(tar, &bytes));
	CT_TRY(write_companions(w, path));
	CT_TRY_ALLOC(dir = ct_path_dir(path));
	st = ct_dir_sync(dir);
	ct_failpoint("pack.rename");
	if (st == CT_OK && rename(part, path) != 0)
		st = CT_FAIL(CT_IO, "cannot rename %s to %s: %s", part, path, strerror(errno));
	if (st == CT_OK)
		st = ct_dir_sync(dir);
	ct_free(dir);
	return st;
}

enum ct_status ct__pack_worker_write(pack_worker *w, const struct pack_item *items, const struct pack_shard *shard,
				     const char *path, void (*done)(void *user), void *user)
{
	ct_tar_writer *tar = NULL;
	enum ct_status st;
	char *part;

	CT_TRY_ALLOC(part = ct_strfmt("%s.part", path));
	ct_str_clear(&w->idx);
	ct_str_clear(&w->left_out);
	w->n_written = 0;
	st = ct_tar_writer_open(part, &tar);
	for (size_t i = 0; i < shard->n && st == CT_OK; i++) {
		st = pack_item(w, tar, &items[shard->first + i]);
		ct_failpoint("pack.sample");
		done(user);
	}
	if (st == CT_OK)
		st = finish(w, tar, part, path);
	ct_tar_writer_close(tar);
	if (st < 0)
		(void)unlink(part);
	ct_free(part);
	return st;
}

enum ct_status ct__pack_shard_count(const char *path, uint64_t *n)
{
	char *idx = companion(path, ".idx"), *text = NULL, line[32];
	enum ct_status st = idx ? CT_OK : CT_NOMEM;
	int64_t count = 0;
	size_t len;

	if (st == CT_OK)
		st = ct_file_read(idx, (size_t)1 << 30, &text, &len);
	if (st == CT_OK) {
		snprintf(line, sizeof(line), "%.*s", (int)(strcspn(text, "\n") < 30 ? strcspn(text, "\n") : 30), text);
		if (strncmp(line, "v1.2 ", 5) != 0 || ct_parse_i64(line + 5, &count) < 0 || count < 0)
			st = CT_FAIL(CT_DATA, "%s is not the index of a packed shard", idx);
	}
	if (st == CT_OK)
		*n = (uint64_t)count;
	ct_free(text);
	ct_free(idx);
	return st;
}
