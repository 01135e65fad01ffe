/* Sizes follow from the shapes, so the complete header is known before the first value, and the file is written in one
 * pass; its SHA-256 is computed meanwhile. Whatever a reader would refuse (limits, duplicate names) is refused here as
 * a bug, so that no checkpoint is written that cannot be loaded. The header is padded with spaces, which JSON ignores,
 * until the data begins at a multiple of 64 bytes. One scratch buffer of the size of the largest tensor serves all
 * tensors without data of their own. A file that could not be completed is removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash/sha256.h"
#include "infer/safetensors_impl.h"

/* The data starts at a multiple of this, so that readers can map the file. */
#define ALIGN 64

struct writer {
	const char *path;
	int fd;
	struct ct_sha256 hash;
	uint64_t bytes;
};

static enum ct_status put(struct writer *w, const void *p, size_t n)
{
	CT_TRY(ct_fd_write_all(w->fd, p, n, w->path));
	ct_sha256_update(&w->hash, p, n);
	w->bytes += n;
	return CT_OK;
}

/* Returns the size of tensor t in bytes. Checks the description, so that the file can be read again. */
static enum ct_status tensor_bytes(const struct ct_tensor_desc *t, uint64_t *bytes)
{
	uint64_t n = sizeof(float);

	if (t->ndim < 0 || t->ndim > CT_TENSOR_MAX_DIMS || t->name[0] == '\0' || strlen(t->name) > CT_ST_MAX_NAME)
		return CT_FAIL(CT_BUG, "tensor \"%.100s\" of %d dimensions cannot be written", t->name, t->ndim);
	for (int i = 0; i < t->ndim; i++) {
		if (t->dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)t->dims[i], &n) || n > INT64_MAX)
			return CT_FAIL(CT_BUG, "tensor \"%.100s\" is too large to be written", t->name);
	}
	*bytes = n;
	return CT_OK;
}

static ct_json *describe(const struct ct_tensor_desc *t, uint64_t begin, uint64_t end)
{
	ct_json *j = ct_json_object(), *shape = ct_json_array(), *offsets = ct_json_array();

	for (int i = 0; i < t->ndim; i++)
		ct_json_push_i64(shape, t->dims[i]);
	ct_json_push_i64(offsets, (int64_t)begin);
	ct_json_push_i64(offsets, (int64_t)end);
	ct_json_set_str(j, "dtype", "F32");
	ct_json_set(j, "shape", shape);
	ct_json_set(j, "data_offsets", offsets);
	return j;
}

/* Builds the header with its padding, without the length before it. */
static enum ct_status make_header(const struct ct_tensor_desc *t, int n, const char *const *metadata,
				  struct ct_str *out)
{
	ct_json *j = ct_json_object(), *pairs = metadata ? ct_json_object() : NULL;
	enum ct_status st = CT_OK;
	uint64_t at = 0, bytes = 0;

	if (metadata) {
		for (; metadata[0]; metadata += 2)
			ct_json_set_str(pairs, metadata[0], metadata[1]);
		ct_json_set(j, "__metadata__", pairs);
	}
	for (int i = 0; i < n; i++) {
		CT_TRY_GOTO(tensor_bytes(&t[i], &bytes), st, out);
		if (bytes > INT64_MAX - at || ct_json_get(j, t[i].name)) {
			st = CT_FAIL(CT_BUG, "tensor \"%.100s\" is too large or has a duplicate name", t[i].name);
			goto out;
		}
		ct_json_set(j, t[i].name, describe(&t[i], at, at + bytes));
		at += bytes;
	}
	CT_TRY_GOTO(ct_json_dump(j, false, out), st, out);
	while ((out->len + 8) % ALIGN != 0 && !out->failed)
		ct_str_add(out, " ");
	CT_TRY_GOTO(ct_str_status(out), st, out);
	if (n > CT_ST_MAX_TENSORS || out->len > CT_ST_MAX_HEADER)
		st = CT_FAIL(CT_BUG, "%d tensors with a header of %zu bytes cannot be written", n, out->len);
out:
	ct_json_destroy(j);
	return st;
}

static enum ct_status put_tensors(struct writer *w, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill,
				  void *user)
{
	enum ct_status st = CT_OK;
	float *scratch = NULL;
	size_t most = 0;

	for (int i = 0; i < n; i++) {
		if (!t[i].data && ct_tensor_n(&t[i]) > most)
			most = ct_tensor_n(&t[i]);
	}
	CT_TRY_ALLOC(scratch = ct_realloc(NULL, most ? most : 1, sizeof(float)));
	for (int i = 0; i < n && st == CT_OK; i++) {
		if (!t[i].data && ct_tensor_n(&t[i]) > 0)
			CT_TRY_GOTO(fill(user, i, scratch), st, out);
		CT_TRY_GOTO(put(w, t[i].data ? t[i].data : scratch, ct_tensor_n(&t[i]) * sizeof(float)), st, out);
	}
out:
	ct_free(scratch);
	return st;
}

static enum ct_status write_synced(struct writer *w, const struct ct_str *header, const struct ct_tensor_desc *t, int n,
				   ct_tensor_fill_fn fill, void *user)
{
	uint64_t len = header->len;

	CT_TRY(put(w, &len, sizeof(len)));
	CT_TRY(put(w, header->s, header->len));
	CT_TRY(put_tensors(w, t, n, fill, user));
	return ct_fd_sync(w->fd, w->path);
}

enum ct_status ct_safetensors_write(const char *path, const struct ct_tensor_desc *t, int n, ct_tensor_fill_fn fill,
				    void *user, const char *const *metadata, char sha[65], uint64_t *bytes)
{
	struct writer w = {.path = path};
	struct ct_str header = {0};
	enum ct_status st;

	CT_TRY_GOTO(make_header(t, n, metadata, &header), st, out_header);
	CT_TRY_GOTO(ct_file_open(path, CT_FILE_NEW, &w.fd), st, out_header);
	ct_sha256_init(&w.hash);
	st = write_synced(&w, &header, t, n, fill, user);
	if (st < 0)
		close(w.fd);
	else
		st = ct_fd_close(w.fd, path);
	if (st < 0) {
		unlink(path);
		goto out_header;
	}
	ct_sha256_final_hex(&w.hash, sha);
	*bytes = w.bytes;
out_header:
	ct_str_release(&header);
	return st;
}
