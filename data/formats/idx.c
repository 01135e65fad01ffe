/* Images and labels are loaded completely and checked once, so that reading a sample cannot fail later. Sizes in the
 * header are multiplied with overflow checks and compared with the limit on memory and with what the file can contain,
 * before memory is allocated. Header and content are inflated by one call into one block, in which the content begins
 * at an aligned address. The digest consists of sizes and CRC-32s, which are computed while loading. Errors that
 * suggest a damaged or wrong file get a hint to download it again. */
#include "data/formats/idx_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset_impl.h"

#define IDX_U8 0x08
#define MAX_DIMS 3
#define IMAGES "images-idx3-ubyte"
#define LABELS "labels-idx1-ubyte"
#define ALIGN 64

/* A file in memory. */
struct idx_array {
	uint8_t *block;      /* owned, aligned */
	const uint8_t *body; /* in block */
	uint32_t dims[MAX_DIMS];
	uint64_t n;   /* bytes of body */
	uint32_t crc; /* CRC-32 of the header and the body */
};

struct idx_set {
	ct_dataset base;
	struct idx_array images, labels;
};

static void release_array(struct idx_array *a)
{
	ct_free_aligned(a->block);
	*a = (struct idx_array){0};
}

static const char *element_name(uint8_t type)
{
	switch (type) {
	case 0x09:
		return "signed bytes";
	case 0x0b:
		return "16-bit integers";
	case 0x0c:
		return "32-bit integers";
	case 0x0d:
		return "32-bit floats";
	case 0x0e:
		return "64-bit floats";
	default:
		return "not a type of the IDX format";
	}
}

static enum ct_status check_magic(const ct_inflate *f, const uint8_t *h, size_t got, int n_dims)
{
	const char *name = ct_inflate_name(f);

	if (got == 0)
		return CT_FAIL(CT_DATA, "%s is empty", name);
	if (h[0] == '<')
		return CT_FAIL(CT_DATA, "%s is not an IDX file but looks like a web page (a failed download?)", name);
	if (got < 4)
		return CT_FAIL(CT_DATA, "%s is truncated inside its header: it has only %zu bytes", name, got);
	if (h[0] != 0 || h[1] != 0)
		return CT_FAIL(CT_DATA, "%s is not an IDX file: it starts with %02x %02x %02x %02x", name, h[0], h[1],
			       h[2], h[3]);
	if (h[2] != IDX_U8)
		return CT_FAIL(CT_DATA, "%s: element type 0x%02x (%s) is not supported; only 0x08 (unsigned bytes) is",
			       name, h[2], element_name(h[2]));
	if (h[3] != n_dims)
		return CT_FAIL(CT_DATA, "%s has %d dimensions, but %s have %d%s", name, h[3],
			       n_dims == 1 ? "labels" : "images", n_dims,
			       (h[3] == 1) != (n_dims == 1) && (h[3] == 1 || h[3] == 3)
				       ? ": are images and labels swapped?"
				       : "");
	if (got < 4 + 4 * (size_t)n_dims)
		return CT_FAIL(CT_DATA, "%s is truncated inside its header: it has only %zu bytes", name, got);
	return CT_OK;
}

/* Reads the dimensions into a->dims and their product into a->n. The product must be positive, at most max_bytes minus
 * `taken`, and not larger than the file can contain. */
static enum ct_status check_dims(const ct_inflate *f, const uint8_t *h, int n_dims, uint64_t max_bytes, uint64_t taken,
				 struct idx_array *a)
{
	const char *name = ct_inflate_name(f);
	bool huge = false;
	char shape[48];
	int len = 0;

	a->n = 1;
	for (int i = 0; i < n_dims; i++) {
		const uint8_t *p = h + 4 + 4 * i;

		a->dims[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
		len += snprintf(shape + len, sizeof(shape) - (size_t)len, "%s%u", i ? " x " : "", a->dims[i]);
		huge |= __builtin_mul_overflow(a->n, a->dims[i], &a->n);
	}
	if (a->dims[0] == 0)
		return CT_FAIL(CT_DATA, "%s is empty: it declares 0 %s", name, n_dims == 1 ? "labels" : "images");
	for (int i = 1; i < n_dims; i++) {
		if (a->dims[i] == 0)
			return CT_FAIL(CT_DATA, "%s: dimension %d is 0 (%s)", name, i, shape);
	}
	if (huge || a->n > max_bytes - taken) {
		CT_FAIL(CT_DATA, "%s declares %s bytes, more than the %llu MiB allowed", name, shape,
			(unsigned long long)(max_bytes >> 20));
		return ct_error_hint("the file is damaged or from another data set: download it again");
	}
	for (int i = 1; i < n_dims; i++) {
		if (a->dims[i] > 65536)
			return CT_FAIL(CT_DATA, "%s: images of %s are too large", name, shape);
	}
	if (a->n > ct_inflate_max_content(f))
		return CT_FAIL(CT_DATA, "%s declares %s bytes, more than the file can contain", name, shape);
	return CT_OK;
}

static enum ct_status read_header(ct_inflate *f, int n_dims, uint64_t max_bytes, uint64_t taken, struct idx_array *a)
{
	uint8_t h[4 + 4 * MAX_DIMS];
	size_t got;

	CT_TRY(ct_inflate_peek(f, h, 4 + 4 * (size_t)n_dims, &got));
	CT_TRY(check_magic(f, h, got, n_dims));
	return check_dims(f, h, n_dims, max_bytes, taken, a);
}

static enum ct_status load_array(ct_inflate *f, int n_dims, uint64_t max_bytes, uint64_t taken, struct idx_array *a)
{
	size_t n_header = 4 + 4 * (size_t)n_dims;
	enum ct_status st;

	CT_TRY(read_header(f, n_dims, max_bytes, taken, a));
	/* The header is stored before the aligned body, so that one call inflates both. */
	CT_TRY_ALLOC(a->block = ct_calloc_aligned(ALIGN, ALIGN + (size_t)a->n));
	a->body = a->block + ALIGN;
	st = ct_inflate_body(f, a->block + ALIGN - n_header, n_header + (size_t)a->n, &a->crc);
	if (st < 0)
		release_array(a);
	return st;
}

static enum ct_status check_shape(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				  const ct_inflate *f, const struct idx_array *images)
{
	int want_c = spec->c ? spec->c : kind->c, want_h = spec->h ? spec->h : kind->h,
	    want_w = spec->w ? spec->w : kind->w;
	int h = (int)images->dims[1], w = (int)images->dims[2];
	enum ct_status st = CT_OK;

	if ((want_h && h != want_h) || (want_w && w != want_w))
		st = CT_FAIL(CT_DATA, "%s has images of %d x %d, expected %d x %d", ct_inflate_name(f), h, w,
			     want_h ? want_h : h, want_w ? want_w : w);
	else if (want_c > 1)
		st = CT_FAIL(CT_DATA, "%s has images with 1 channel, but %d were expected", ct_inflate_name(f), want_c);
	if (st < 0 && !kind->h)
		ct_error_hint("data.shape sets the expected shape: remove it to use the shape of the files");
	return st;
}

static enum ct_status check_labels(const ct_inflate *f, const struct idx_array *labels, int n_classes)
{
	uint8_t top = 0;

	for (uint64_t i = 0; i < labels->n; i++)
		top = labels->body[i] > top ? labels->body[i] : top;
	if (top < n_classes)
		return CT_OK;
	for (uint64_t i = 0; i < labels->n; i++) {
		if (labels->body[i] >= n_classes)
			return CT_FAIL(CT_DATA, "%s: label %u of sample %llu is out of range: there are %d classes",
				       ct_inflate_name(f), labels->body[i], (unsigned long long)i, n_classes);
	}
	return CT_OK;
}

static void close_set(ct_dataset *d)
{
	struct idx_set *s = (struct idx_set *)d;

	release_array(&s->images);
	release_array(&s->labels);
	ct_free(s);
}

static uint64_t max_bytes_of(const struct ct_dataset_spec *spec)
{
	return spec->max_bytes ? spec->max_bytes : CT_DATASET_MAX_BYTES;
}

static void hint_at_damage(enum ct_status st)
{
	if (st == CT_DATA && ct_error_hint_text()[0] == '\0')
		ct_error_hint("the file is damaged or is the wrong one: delete it and download it again");
}

static enum ct_status load_set(struct idx_set *s, const struct ct_dataset_kind *kind,
			       const struct ct_dataset_spec *spec, ct_inflate *images, ct_inflate *labels)
{
	int n_classes = spec->n_classes ? spec->n_classes : kind->n_classes ? kind->n_classes : 10;
	uint64_t max_bytes = max_bytes_of(spec);

	/* Start with the small file: its errors are found quickly. */
	CT_TRY(load_array(labels, 1, max_bytes, 0, &s->labels));
	CT_TRY(check_labels(labels, &s->labels, n_classes));
	CT_TRY(load_array(images, 3, max_bytes, s->labels.n, &s->images));
	CT_TRY(check_shape(kind, spec, images, &s->images));
	if (s->images.dims[0] != s->labels.dims[0])
		return CT_FAIL(CT_DATA, "%s has %u images, but %s has %u labels", ct_inflate_name(images),
			       s->images.dims[0], ct_inflate_name(labels), s->labels.dims[0]);
	ct__dataset_init(&s->base, kind, s->images.dims[0], 1, (int)s->images.dims[1], (int)s->images.dims[2]);
	s->base.info.kind = CT_SAMPLE_U8_HWC;
	s->base.info.n_classes = n_classes;
	s->base.info.in_memory = true;
	s->base.info.bytes = s->images.n + s->labels.n;
	return CT_OK;
}

enum ct_status ct__dataset_idx_load(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				    ct_inflate *images, ct_inflate *labels, ct_dataset **out)
{
	struct idx_set *s;
	enum ct_status st;

	CT_TRY_ALLOC(s = CT_NEW(struct idx_set));
	st = load_set(s, kind, spec, images, labels);
	if (st < 0) {
		close_set(&s->base);
		hint_at_damage(st);
		return st;
	}
	*out = &s->base;
	return CT_OK;
}

static enum ct_status not_found(const struct ct_dataset_kind *kind, const char *dir, const char *prefix,
				const char *what)
{
	CT_FAIL(CT_NOT_FOUND, "cannot find the %s of %s: there is no %s-%s[.gz]%s",
		strncmp(what, "labels", 6) ? "images" : "labels", kind->name, prefix, what,
		ct_file_exists(dir) ? "" : ", and the directory does not exist");
	return ct_error_hint("download it with `scripts/get_mnist.sh %s%s`, or draw digits for a first try with "
			     "`ctrain data digits --out %s`; data.dir selects another directory",
			     kind->fetch ? kind->fetch : "", dir, dir);
}

/* Opens PREFIX-WHAT, PREFIX-WHAT.gz, or either with '.' before "idx". */
static enum ct_status open_any(const struct ct_dataset_kind *kind, const char *dir, const char *prefix,
			       const char *what, ct_inflate **out)
{
	static const char *const suffixes[] = {"", ".gz"};
	const char *idx = strstr(what, "-idx");

	for (int dot = 0; dot < 2; dot++) {
		for (size_t i = 0; i < CT_ARRAY_LEN(suffixes); i++) {
			enum ct_status st;
			char *path;

			CT_TRY_ALLOC(path = ct_strfmt("%s-%.*s%c%s%s", prefix, (int)(idx - what), what, dot ? '.' : '-',
						      idx + 1, suffixes[i]));
			st = ct_inflate_open(path, out);
			ct_free(path);
			if (st != CT_NOT_FOUND)
				return st;
		}
	}
	return not_found(kind, dir, prefix, what);
}

/* Opens the file of the split in spec. */
static enum ct_status open_file(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				const char *what, ct_inflate **out)
{
	const char *dir = spec->dir && spec->dir[0] ? spec->dir : ".", *split = spec->train ? "train" : "t10k";
	enum ct_status st;
	char *prefix;

	CT_TRY_ALLOC(prefix = ct_path_join(dir, spec->split && spec->split[0] ? spec->split : split));
	st = open_any(kind, dir, prefix, what, out);
	ct_free(prefix);
	return st;
}

static enum ct_status open_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, ct_dataset **out)
{
	ct_inflate *images, *labels;
	enum ct_status st;

	CT_TRY(open_file(kind, spec, IMAGES, &images));
	CT_TRY_GOTO(open_file(kind, spec, LABELS, &labels), st, done_images);
	st = ct__dataset_idx_load(kind, spec, images, labels, out);
	ct_inflate_close(labels);
done_images:
	ct_inflate_close(images);
	return st;
}

static enum ct_status find_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec)
{
	static const char *const parts[] = {IMAGES, LABELS};

	for (size_t i = 0; i < CT_ARRAY_LEN(parts); i++) {
		ct_inflate *file;

		CT_TRY(open_file(kind, spec, parts[i], &file));
		ct_inflate_close(file);
	}
	return CT_OK;
}

static enum ct_status peek_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
			       struct ct_dataset_info *out)
{
	struct idx_array a = {0};
	ct_inflate *images;
	enum ct_status st;

	CT_TRY(open_file(kind, spec, IMAGES, &images));
	st = read_header(images, 3, max_bytes_of(spec), 0, &a);
	if (st == CT_OK)
		st = check_shape(kind, spec, images, &a);
	if (st == CT_OK) {
		out->c = 1;
		out->h = (int)a.dims[1];
		out->w = (int)a.dims[2];
	}
	hint_at_damage(st);
	ct_inflate_close(images);
	return st;
}

static enum ct_status read_sample(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	const struct idx_set *s = (const struct idx_set *)d;

	(void)target;
	if (x)
		memcpy(x, s->images.body + (size_t)i * d->info.sample_bytes, d->info.sample_bytes);
	if (label)
		*label = s->labels.body[i];
	return CT_OK;
}

static void prefetch_sample(const ct_dataset *d, uint32_t i)
{
	const struct idx_set *s = (const struct idx_set *)d;
	const uint8_t *p = s->images.body + (size_t)i * d->info.sample_bytes;

	/* The first cache lines; the processor's own prefetcher continues from there. */
	for (size_t at = 0; at < d->info.sample_bytes && at < 1024; at += 64)
		__builtin_prefetch(p + at);
	__builtin_prefetch(s->labels.body + i);
}

static void digest_set(const ct_dataset *d, struct ct_sha256 *h)
{
	const struct idx_set *s = (const struct idx_set *)d;
	char text[128];
	int n = snprintf(text, sizeof(text), "idx images=%llu crc=%08x labels=%llu crc=%08x\n",
			 (unsigned long long)s->images.n, s->images.crc, (unsigned long long)s->labels.n,
			 s->labels.crc);

	ct_sha256_update(h, text, (size_t)n);
}

const struct ct_dataset_ops ct__dataset_idx_ops = {
	.open = open_set,
	.peek = peek_set,
	.find = find_set,
	.close = close_set,
	.read = read_sample,
	.digest = digest_set,
	.prefetch = prefetch_sample,
};

enum ct_status ct__dataset_idx_open_memory(const struct ct_dataset_spec *spec, const void *images, size_t images_bytes,
					   const void *labels, size_t labels_bytes, ct_dataset **out)
{
	static const struct ct_dataset_kind kind = {
		.name = "idx", .ops = &ct__dataset_idx_ops, .mean = 0.5f, .std = 0.5f};
	ct_inflate *x = NULL, *y = NULL;
	enum ct_status st;

	CT_TRY(ct_inflate_open_memory(images, images_bytes, "images", &x));
	CT_TRY_GOTO(ct_inflate_open_memory(labels, labels_bytes, "labels", &y), st, done_images);
	st = ct__dataset_idx_load(&kind, spec, x, y, out);
	ct_inflate_close(y);
done_images:
	ct_inflate_close(x);
	return st;
}
