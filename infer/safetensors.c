/* Reads safetensors files; safetensors_write.c writes them. The header is checked completely when a file is opened
 * (safetensors_header.c), so later reads only trust what was checked: the data of a tensor is within the size that the
 * file had then. If the file becomes shorter meanwhile, the read fails. Tensors of other types than F32 are converted
 * in chunks, so that the conversion needs no memory beyond one chunk. Reading uses no position of the descriptor, so
 * several threads may read at the same time. */
#include "infer/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "infer/safetensors_impl.h"

#define CHUNK_BYTES ((size_t)64 << 10)

struct ct_safetensors {
	char *path;
	int fd;               /* -1: in memory */
	const uint8_t *bytes; /* [n_bytes] borrowed; NULL: in a file */
	uint64_t n_bytes;
	uint64_t data_at; /* bytes from the start of the file */
	struct ct_st_header header;
};

size_t ct_tensor_n(const struct ct_tensor_desc *d)
{
	size_t n = 1;

	for (int i = 0; i < d->ndim; i++)
		n *= (size_t)d->dims[i];
	return n;
}

static enum ct_status open_file(ct_safetensors *s)
{
	struct stat sb;

	CT_TRY(ct_file_open(s->path, CT_FILE_READ, &s->fd));
	if (fstat(s->fd, &sb) != 0)
		return CT_FAIL(CT_IO, "cannot stat %s: %m", s->path);
	s->n_bytes = (uint64_t)sb.st_size;
	return CT_OK;
}

static enum ct_status read_at(const ct_safetensors *s, void *out, size_t n, uint64_t at)
{
	if (!s->bytes)
		return ct_fd_read_at(s->fd, out, n, at, s->path);
	CT_ASSERT(at <= s->n_bytes && n <= s->n_bytes - at);
	memcpy(out, s->bytes + at, n);
	return CT_OK;
}

static enum ct_status read_header(ct_safetensors *s)
{
	enum ct_status st;
	uint8_t first[8];
	size_t len;
	char *text;

	if (s->n_bytes < sizeof(first))
		return CT_FAIL(CT_DATA, "%s is not a safetensors file: it has only %llu bytes", s->path,
			       (unsigned long long)s->n_bytes);
	CT_TRY(read_at(s, first, sizeof(first), 0));
	CT_TRY(ct__st_header_len(first, s->n_bytes, s->path, &len));
	CT_TRY_ALLOC(text = ct_realloc(NULL, len + 1, 1));
	CT_TRY_GOTO(read_at(s, text, len, 8), st, out);
	s->data_at = 8 + len;
	CT_TRY_GOTO(ct__st_header_parse(text, len, s->n_bytes - s->data_at, s->path, &s->header), st, out);
out:
	ct_free(text);
	return st;
}

static enum ct_status open_safetensors(const char *path, const void *bytes, size_t n, ct_safetensors **out)
{
	enum ct_status st = CT_NOMEM;
	ct_safetensors *s;

	CT_TRY_ALLOC(s = CT_NEW(ct_safetensors));
	s->fd = -1;
	s->bytes = bytes;
	s->n_bytes = n;
	s->path = ct_strdup(path);
	if (!s->path)
		goto fail;
	if (!bytes)
		CT_TRY_GOTO(open_file(s), st, fail);
	CT_TRY_GOTO(read_header(s), st, fail);
	*out = s;
	return CT_OK;

fail:
	ct_safetensors_close(s);
	return st;
}

enum ct_status ct_safetensors_open(const char *path, ct_safetensors **out)
{
	return open_safetensors(path, NULL, 0, out);
}

enum ct_status ct_safetensors_open_memory(const void *bytes, size_t n, const char *where, ct_safetensors **out)
{
	return open_safetensors(where, bytes, n, out);
}

void ct_safetensors_close(ct_safetensors *s)
{
	if (!s)
		return;
	ct__st_header_release(&s->header);
	if (s->fd >= 0)
		close(s->fd);
	ct_free(s->path);
	ct_free(s);
}

int ct_safetensors_count(const ct_safetensors *s)
{
	return s->header.n;
}

static const struct ct_st_tensor *tensor_at(const ct_safetensors *s, int i)
{
	CT_ASSERT(i >= 0 && i < s->header.n);
	return &s->header.tensors[i];
}

void ct_safetensors_at(const ct_safetensors *s, int i, struct ct_tensor_desc *out, const char **dtype)
{
	*out = tensor_at(s, i)->desc;
	if (dtype)
		*dtype = tensor_at(s, i)->dtype->name;
}

int ct_safetensors_find(const ct_safetensors *s, const char *name)
{
	int low = 0, high = s->header.n;

	while (low < high) {
		int mid = low + (high - low) / 2, i = s->header.by_name[mid];
		int order = strcmp(name, s->header.tensors[i].desc.name);

		if (order == 0)
			return i;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return -1;
}

const char *ct_safetensors_metadata(const ct_safetensors *s, const char *key)
{
	const ct_json *metadata = ct_json_get(s->header.json, "__metadata__");

	return metadata ? ct_json_as_str(ct_json_get(metadata, key)) : NULL;
}

enum ct_status ct_safetensors_read(const ct_safetensors *s, int i, float *out, size_t n)
{
	const struct ct_st_tensor *t = tensor_at(s, i);
	uint64_t at = s->data_at + t->begin;
	uint8_t chunk[CHUNK_BYTES];

	CT_ASSERT(n == ct_tensor_n(&t->desc));
	if (!t->dtype->decode)
		return ct__st_fail(CT_UNSUPPORTED, s->path, t->desc.name,
				   "has the element type %s, which cannot be read", t->dtype->name);
	if (strcmp(t->dtype->name, "F32") == 0)
		return read_at(s, out, n * sizeof(float), at);
	while (n > 0) {
		size_t part = CHUNK_BYTES / t->dtype->bytes;

		part = part < n ? part : n;
		CT_TRY(read_at(s, chunk, part * t->dtype->bytes, at));
		t->dtype->decode(chunk, out, part);
		at += part * t->dtype->bytes;
		out += part;
		n -= part;
	}
	return CT_OK;
}
