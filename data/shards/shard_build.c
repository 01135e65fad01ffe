/* Members are grouped by WebDataset's rule: successive members with the same key, which is the name up to the first dot
 * of its last component, are one sample. A sample needs exactly one image and one label. One that has something else is
 * recorded as skipped with its reason, so that the index says what was left out and why; members that are neither
 * images nor labels are ignored. Strings are stored one after the other with 32-bit offsets, so their total is limited.
 * Positions and sizes were checked against the file by the tar reader. The CRC of an index covers position, size and
 * label of all samples. */
#include "data/shards/shard_build_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "data/files/inflate.h"

#define MAX_LABEL_BYTES 64

bool ct__shard_split(const char *name, size_t n, size_t *n_key, const char **ext, size_t *n_ext)
{
	size_t base = n, dot;

	while (base > 0 && name[base - 1] != '/')
		base--;
	for (dot = base; dot < n && name[dot] != '.'; dot++)
		;
	if (dot == base || dot == n)
		return false;
	*n_key = dot;
	*ext = name + dot + 1;
	*n_ext = n - dot - 1;
	return true;
}

static bool unsafe(const char *p, size_t n)
{
	if (n > 0 && p[0] == '/')
		return true;
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)p[i] < ' ' || p[i] == 127)
			return true;
		if (p[i] == '.' && i + 1 < n && p[i + 1] == '.' && (i == 0 || p[i - 1] == '/') &&
		    (i + 2 == n || p[i + 2] == '/'))
			return true;
	}
	return false;
}

enum ct_status ct__shard_build_init(struct ct_shard_build *b, ct_tar *t, struct ct_shard_index *x)
{
	*b = (struct ct_shard_build){.tar = t, .x = x};
	*x = (struct ct_shard_index){.bytes = ct_tar_bytes(t), .mtime_ns = ct_tar_mtime_ns(t)};
	ct_str_add(&b->text, ct_path_name(ct_tar_path(t)));
	ct_str_add_bytes(&b->text, "", 1);
	return ct_str_status(&b->text);
}

static enum ct_status text_add(struct ct_shard_build *b, const char *p, size_t n, uint32_t *at)
{
	*at = (uint32_t)b->text.len;
	ct_str_add_bytes(&b->text, p, n);
	ct_str_add_bytes(&b->text, "", 1);
	CT_TRY(ct_str_status(&b->text));
	if (b->text.len > UINT32_MAX)
		return CT_FAIL(CT_UNSUPPORTED, "%s: the names of its members take more than 4 GiB",
			       ct_tar_path(b->tar));
	return CT_OK;
}

static enum ct_status check_count(uint32_t n)
{
	return n < INT32_MAX ? CT_OK : CT_FAIL(CT_UNSUPPORTED, "a shard with more than %d samples", INT32_MAX);
}

static CT_PRINTF(3, 4) enum ct_status skip(struct ct_shard_build *b, const char *tag, const char *fmt, ...)
{
	struct ct_shard_index *x = b->x;
	struct ct_shard_skipped s = {.offset = b->header, .key_len = (uint32_t)b->key.len};
	char reason[192];
	const int n = snprintf(reason, sizeof(reason), "%s: ", tag);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason + n, sizeof(reason) - (size_t)n, fmt, ap);
	va_end(ap);
	CT_TRY(text_add(b, ct_str_text(&b->key), b->key.len, &s.key));
	CT_TRY(text_add(b, reason, strlen(reason), &s.reason));
	CT_TRY(check_count(x->n_skipped));
	CT_TRY_GROW(x->skipped, x->n_skipped, b->cap_skipped);
	x->skipped[x->n_skipped++] = s;
	return CT_OK;
}

static enum ct_status keep(struct ct_shard_build *b, int32_t label)
{
	struct ct_shard_index *x = b->x;
	struct ct_shard_sample s = {.offset = b->image_at,
				    .size = (uint32_t)b->image_bytes,
				    .label = label,
				    .key_len = (uint32_t)b->key.len};

	CT_TRY(text_add(b, ct_str_text(&b->key), b->key.len, &s.key));
	CT_TRY(check_count(x->n));
	CT_TRY_GROW(x->samples, x->n, b->cap_samples);
	x->samples[x->n++] = s;
	return CT_OK;
}

static enum ct_status end_sample(struct ct_shard_build *b)
{
	char text[MAX_LABEL_BYTES], shown[64];
	int32_t label;

	if (b->n_images == 0 && b->n_labels == 0 && b->n_links == 0)
		return CT_OK; /* neither image nor label, for example a file of notes */
	if (b->n_links)
		return skip(b, "link", "its image or label is a link to another file");
	if (b->n_images > 1 || b->n_labels > 1)
		return skip(b, "duplicate", "%u images and %u labels", b->n_images, b->n_labels);
	if (b->n_images == 0)
		return skip(b, "no-image", "a label (.cls) without an image (.jpg, .jpeg or .png)");
	if (b->n_labels == 0)
		return skip(b, "no-label", "an image without a label (.cls)");
	if (b->image_bytes == 0)
		return skip(b, "empty", "the image has no bytes");
	if (b->image_bytes > CT_MAX_IMAGE_BYTES)
		return skip(b, "size", "the image has %llu bytes, but the limit is %u",
			    (unsigned long long)b->image_bytes, CT_MAX_IMAGE_BYTES);
	if (b->label_bytes == 0 || b->label_bytes > sizeof(text))
		return skip(b, "label", "%llu bytes instead of a number", (unsigned long long)b->label_bytes);
	CT_TRY(ct_tar_read(b->tar, text, (size_t)b->label_bytes, b->label_at));
	if (ct_label_parse(text, (size_t)b->label_bytes, &label))
		return keep(b, label);
	ct_name_escape(text, (size_t)b->label_bytes, shown, sizeof(shown));
	return skip(b, "label", "\"%s\" is not a number from 0 to %d", shown, CT_MAX_LABEL);
}

enum ct_status ct__shard_build_flush(struct ct_shard_build *b)
{
	enum ct_status st = b->open ? end_sample(b) : CT_OK;

	b->open = false;
	ct_str_clear(&b->key);
	b->n_images = b->n_labels = b->n_links = 0;
	return st;
}

enum ct_status ct__shard_build_add(struct ct_shard_build *b, const char *key, size_t n_key, const char *ext,
				   size_t n_ext, const struct ct_tar_member *m)
{
	bool image = ct_image_extension(ext, n_ext), label = n_ext == 3 && strncasecmp(ext, "cls", 3) == 0;

	if (b->open && (n_key != b->key.len || memcmp(key, ct_str_text(&b->key), n_key) != 0))
		CT_TRY(ct__shard_build_flush(b));
	if (!b->open) {
		b->open = true;
		b->header = m->header;
		ct_str_add_bytes(&b->key, key, n_key);
		CT_TRY(ct_str_status(&b->key));
		b->x->n_unsafe += unsafe(key, n_key);
	}
	if (!image && !label)
		return CT_OK;
	if (m->type == CT_TAR_LINK) {
		b->n_links++;
	} else if (image) {
		b->n_images++;
		b->image_at = m->offset;
		b->image_bytes = m->size;
	} else {
		b->n_labels++;
		b->label_at = m->offset;
		b->label_bytes = m->size;
	}
	return CT_OK;
}

void ct__shard_index_sum(struct ct_shard_index *x)
{
	x->max_size = 0;
	x->max_label = -1;
	x->crc = 0;
	for (uint32_t i = 0; i < x->n; i++) {
		const struct ct_shard_sample *s = &x->samples[i];

		x->max_size = s->size > x->max_size ? s->size : x->max_size;
		x->max_label = s->label > x->max_label ? s->label : x->max_label;
		x->crc = ct_crc32(x->crc, s, offsetof(struct ct_shard_sample, key));
	}
}

static int by_key(const void *a, const void *b, void *index)
{
	const struct ct_shard_index *x = index;
	const struct ct_shard_sample *s = &x->samples[*(const uint32_t *)a], *t = &x->samples[*(const uint32_t *)b];
	uint32_t n = s->key_len < t->key_len ? s->key_len : t->key_len;
	int order = memcmp(x->text + s->key, x->text + t->key, n);

	return order ? order : (s->key_len > t->key_len) - (s->key_len < t->key_len);
}

static enum ct_status count_repeated(struct ct_shard_index *x)
{
	uint32_t *order;

	CT_TRY_ALLOC(order = CT_NEW_ARRAY(uint32_t, (size_t)x->n + 1));
	for (uint32_t i = 0; i < x->n; i++)
		order[i] = i;
	qsort_r(order, x->n, sizeof(*order), by_key, x);
	x->n_repeated = 0;
	for (uint32_t i = 1; i < x->n; i++)
		x->n_repeated += by_key(&order[i - 1], &order[i], x) == 0;
	ct_free(order);
	return CT_OK;
}

enum ct_status ct_shard_index_limit_labels(struct ct_shard_index *x, int n_classes)
{
	struct ct_shard_build b = {.x = x, .cap_skipped = x->n_skipped};
	enum ct_status st = CT_OK;
	uint32_t kept = 0;

	if (x->max_label < n_classes)
		return CT_OK;
	b.text = (struct ct_str){0};
	ct_str_add_bytes(&b.text, x->text, x->text_len);
	CT_TRY_GOTO(ct_str_status(&b.text), st, out);
	for (uint32_t i = 0; i < x->n; i++) {
		const struct ct_shard_sample s = x->samples[i];

		if (s.label < n_classes) {
			x->samples[kept++] = s;
			continue;
		}
		ct_str_clear(&b.key);
		ct_str_add_bytes(&b.key, x->text + s.key, s.key_len);
		CT_TRY_GOTO(ct_str_status(&b.key), st, out);
		b.header = s.offset;
		CT_TRY_GOTO(skip(&b, "label", "%d is out of range: there are %d classes", s.label, n_classes), st, out);
	}
	x->n = kept;
	ct_free(x->text);
	x->text = b.text.s;
	x->text_len = (uint32_t)b.text.len;
	b.text = (struct ct_str){0};
	ct__shard_index_sum(x);
out:
	ct__shard_build_release(&b);
	return st;
}

enum ct_status ct__shard_build_finish(struct ct_shard_build *b)
{
	struct ct_shard_index *x = b->x;

	if (x->n == 0 && x->n_skipped == 0) {
		CT_FAIL_TAG(CT_DATA, ct_tar_path(b->tar), "empty", "%s",
			    x->bytes ? "it contains no samples" : "the file has no bytes");
		return ct_error_hint("a sample consists of two successive members such as n01440764_10026.jpg and "
				     "n01440764_10026.cls; `ctrain data pack` makes such shards");
	}
	x->text = b->text.s;
	x->text_len = (uint32_t)b->text.len;
	b->text = (struct ct_str){0};
	x->goes_on = ct_tar_goes_on(b->tar);
	x->padding_cut = ct_tar_padding_cut(b->tar);
	ct__shard_index_sum(x);
	return count_repeated(x);
}

void ct__shard_build_release(struct ct_shard_build *b)
{
	ct_str_release(&b->text);
	ct_str_release(&b->key);
}

void ct_shard_index_release(struct ct_shard_index *x)
{
	ct_free(x->samples);
	ct_free(x->skipped);
	ct_free(x->text);
	*x = (struct ct_shard_index){0};
}

static enum ct_status scan(struct ct_shard_build *b)
{
	struct ct_tar_member m;

	for (;;) {
		const char *ext;
		size_t n_key, n_ext;

		CT_TRY(ct_tar_next(b->tar, &m));
		if (!m.name)
			break;
		/* WebDataset ignores these without ending the sample. */
		if ((m.type != CT_TAR_FILE && m.type != CT_TAR_LINK) ||
		    !ct__shard_split(m.name, m.name_len, &n_key, &ext, &n_ext))
			continue;
		CT_TRY(ct__shard_build_add(b, m.name, n_key, ext, n_ext, &m));
	}
	CT_TRY(ct__shard_build_flush(b));
	return ct__shard_build_finish(b);
}

enum ct_status ct_shard_index_scan(ct_tar *t, struct ct_shard_index *out)
{
	struct ct_shard_build b;
	enum ct_status st;

	st = ct__shard_build_init(&b, t, out);
	if (st == CT_OK)
		st = scan(&b);
	ct__shard_build_release(&b);
	if (st < 0)
		ct_shard_index_release(out);
	return st;
}
