#include "data/formats/dataset_files.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset_impl.h"

#define MAX_FILE_BYTES ((size_t)256 << 20)

struct files_set {
	ct_dataset base;
	char *const *paths;
};

static void close_files(ct_dataset *d)
{
	ct_free(d);
}

static enum ct_status fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label)
{
	const struct files_set *f = (const struct files_set *)d;
	char *bytes = NULL;
	size_t n = 0;
	enum ct_status st = ct_file_read(f->paths[i], MAX_FILE_BYTES, &bytes, &n);

	if (st == CT_NOT_FOUND || st == CT_IO) /* an error of this file only */
		st = CT_FAIL(CT_DATA, "%s", ct_error_message());
	CT_TRY(st);
	st = ct_bytes_reserve(buf, n);
	if (st == CT_OK) {
		memcpy(buf->data, bytes, n);
		buf->n = n;
	}
	ct_free(bytes);
	if (label)
		*label = 0;
	return st;
}

static void describe(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	const char *path = ((const struct files_set *)d)->paths[i];

	ct_name_escape(path, strlen(path), text, len);
}

static const struct ct_dataset_ops files_ops = {
	.close = close_files, .fetch = fetch, .describe = describe, .key = describe};

enum ct_status ct_dataset_open_files(const char *like, char *const *paths, uint32_t n, ct_dataset **out)
{
	const struct ct_dataset_kind *known = ct__dataset_kind_find(like);
	struct files_set *f;

	if (!known)
		return CT_FAIL(CT_CONFIG, "unknown data set \"%s\"", like);
	struct ct_dataset_kind kind = *known;
	CT_TRY_ALLOC(f = CT_NEW(struct files_set));
	kind.ops = &files_ops;
	f->paths = paths;
	ct__dataset_init(&f->base, &kind, n, kind.c, kind.h, kind.w);
	f->base.info.kind = CT_SAMPLE_ENCODED;
	f->base.info.n_classes = kind.n_classes > 0 ? kind.n_classes : 1;
	*out = &f->base;
	return CT_OK;
}
