/* CIFAR-10 and CIFAR-100 (Krizhevsky 2009), "binary version": records of one label byte (CIFAR-100: a coarse label,
 * then the fine one, which is used) and 3072 bytes of red, green and blue planes of 32 x 32. The planes are
 * interleaved when they are loaded. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CT_LOG_COMPONENT "data"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset_impl.h"
#include "data/files/class_list.h"
#include "data/files/inflate.h"

#define SIDE 32
#define PLANE ((size_t)SIDE * SIDE)
#define PIXELS (3 * PLANE)
#define ALIGN 64
#define MAX_FILES 64

/* The differences between the two sets. */
struct layout {
	const char *train, *test; /* file names, separated by spaces; missing training files are ignored */
	const char *directory;    /* in the archive */
	const char *python;       /* directory of the "python version" */
	const char *archive;
	const char *names;
	size_t n_labels; /* bytes before the pixels */
};

static const struct layout cifar10 = {
	.train = "data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin",
	.test = "test_batch.bin",
	.directory = "cifar-10-batches-bin",
	.python = "cifar-10-batches-py",
	.archive = "cifar-10-binary.tar.gz",
	.names = "batches.meta.txt",
	.n_labels = 1,
};
static const struct layout cifar100 = {
	.train = "train.bin",
	.test = "test.bin",
	.directory = "cifar-100-binary",
	.python = "cifar-100-python",
	.archive = "cifar-100-binary.tar.gz",
	.names = "fine_label_names.txt",
	.n_labels = 2,
};

struct cifar_set {
	ct_dataset base;
	uint8_t *pixels; /* [n,32,32,3] */
	uint8_t *labels;
	struct ct_class_list classes; /* n 0: unused */
	uint32_t crc[MAX_FILES], records[MAX_FILES];
	int n_files;
};

/* The files of the set and their record counts. */
struct files {
	char *path[MAX_FILES];
	uint32_t records[MAX_FILES];
	int n;
	uint64_t n_records;
};

static void release_files(struct files *f)
{
	for (int i = 0; i < f->n; i++)
		ct_free(f->path[i]);
	f->n = 0;
}

static const struct layout *layout_of(const struct ct_dataset_kind *kind)
{
	return kind->n_classes == 100 ? &cifar100 : &cifar10;
}

static bool has_file(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name);
	bool yes = path && ct_file_exists(path);

	ct_free(path);
	return yes;
}

/* Computes the number of records from the size of the file. */
static enum ct_status count_records(const struct layout *lay, const char *path, uint32_t *records)
{
	size_t record = lay->n_labels + PIXELS;
	uint8_t head[2] = {0};
	ct_inflate *in;
	enum ct_status st;
	uint64_t bytes;
	size_t got;

	CT_TRY(ct_inflate_open(path, &in));
	st = ct_inflate_peek(in, head, sizeof(head), &got);
	ct_inflate_close(in);
	CT_TRY(st);
	CT_TRY(ct_file_size(path, &bytes));
	if (got == 2 && head[0] == 0x80 && head[1] <= 5) {
		CT_FAIL(CT_DATA,
			"%s is a pickle file of the \"python version\" of the data set (its size, %" PRIu64
			" bytes, is not a multiple of the record size %zu)",
			path, bytes, record);
		return ct_error_hint("ctrain reads only the \"binary version\": download %s", lay->archive);
	}
	if (bytes == 0)
		return CT_FAIL(CT_DATA, "%s is empty", path);
	if (bytes % record) {
		CT_FAIL(CT_DATA,
			"%s: its size, %" PRIu64 " bytes, is not a multiple of the record size %zu: %" PRIu64
			" complete records and %" PRIu64 " more bytes",
			path, bytes, record, bytes / record, bytes % record);
		return ct_error_hint("the file is truncated or from another data set: download it again");
	}
	if (bytes / record > UINT32_MAX)
		return CT_FAIL(CT_DATA, "%s contains %" PRIu64 " records, which is too many", path, bytes / record);
	*records = (uint32_t)(bytes / record);
	return CT_OK;
}

static enum ct_status add_file(const struct layout *lay, const char *dir, const char *name, struct files *f)
{
	if (f->n == MAX_FILES)
		return CT_FAIL(CT_CONFIG, "a data set may have at most %d files", MAX_FILES);
	CT_TRY_ALLOC(f->path[f->n] = ct_path_join(dir, name));
	f->n++;
	CT_TRY(count_records(lay, f->path[f->n - 1], &f->records[f->n - 1]));
	f->n_records += f->records[f->n - 1];
	return CT_OK;
}

/* Adds the files of `names` (separated by spaces) that exist in dir. With `all`, a missing one is an error. */
static enum ct_status find_files(const struct layout *lay, const char *dir, const char *names, bool all,
				 struct files *f)
{
	char *copy, *rest, *name;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(rest = copy = ct_strdup(names));
	while (st == CT_OK && (name = strsep(&rest, " "))) {
		if (name[0] && (all || has_file(dir, name)))
			st = add_file(lay, dir, name, f);
	}
	ct_free(copy);
	return st;
}

static enum ct_status not_found(const struct ct_dataset_kind *kind, const char *dir, const char *names)
{
	const struct layout *lay = layout_of(kind);
	const char *first_python = lay == &cifar10 ? "data_batch_1" : "meta";
	bool python = has_file(dir, lay->python) || has_file(dir, first_python);

	CT_FAIL(CT_NOT_FOUND, "cannot find the images of %s: there is no %s in %s%s", kind->name, names, dir,
		ct_file_exists(dir) ? "" : ", and the directory does not exist");
	if (has_file(dir, lay->archive))
		ct_error_hint("that directory contains %s: unpack it with `tar -xzf %s/%s -C %s`", lay->archive, dir,
			      lay->archive, dir);
	else if (python)
		ct_error_hint(
			"that directory contains the \"python version\", but ctrain reads only the \"binary version\": download %s",
			lay->archive);
	else
		ct_error_hint(
			"download the \"binary version\" of the data set, https://www.cs.toronto.edu/~kriz/%s, and "
			"unpack it in that directory; data.dir selects another directory",
			lay->archive);
	return CT_NOT_FOUND;
}

static enum ct_status check_labels(const struct layout *lay, const char *path, const uint8_t *raw, uint32_t n)
{
	int n_classes = lay == &cifar10 ? 10 : 100;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t label = raw[i * (lay->n_labels + PIXELS) + lay->n_labels - 1];

		if (label >= n_classes) {
			CT_FAIL(CT_DATA, "%s: label %u of record %u is out of range: there are %d classes", path, label,
				i, n_classes);
			return ct_error_hint("the file is damaged or from another data set: download it again");
		}
	}
	return CT_OK;
}

static void interleave(const uint8_t *planes, uint8_t *x)
{
	for (size_t i = 0; i < PLANE; i++) {
		x[3 * i] = planes[i];
		x[3 * i + 1] = planes[PLANE + i];
		x[3 * i + 2] = planes[2 * PLANE + i];
	}
}

/* Reads file number k into samples [first, ...). */
static enum ct_status load_file(struct cifar_set *s, const struct layout *lay, const struct files *f, int k,
				uint32_t first)
{
	size_t record = lay->n_labels + PIXELS, bytes = f->records[k] * record;
	ct_inflate *in;
	enum ct_status st;
	uint8_t *raw;

	CT_TRY(ct_inflate_open(f->path[k], &in));
	raw = ct_calloc_aligned(ALIGN, bytes);
	st = raw ? CT_OK : CT_NOMEM;
	CT_TRY_GOTO(st, st, done);
	CT_TRY_GOTO(ct_inflate_body(in, raw, bytes, &s->crc[k]), st, done);
	CT_TRY_GOTO(check_labels(lay, f->path[k], raw, f->records[k]), st, done);
	for (uint32_t i = 0; i < f->records[k]; i++) {
		const uint8_t *r = raw + i * record;

		s->labels[first + i] = r[lay->n_labels - 1];
		interleave(r + lay->n_labels, s->pixels + (first + i) * PIXELS);
	}
	s->records[s->n_files++] = f->records[k];
done:
	ct_free_aligned(raw);
	ct_inflate_close(in);
	return st;
}

/* Reads the class names if the file exists and has one name for each class. */
static enum ct_status load_names(struct cifar_set *s, const char *dir, const char *file, int n_classes)
{
	enum ct_status st = CT_OK;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(dir, file));
	if (ct_file_exists(path))
		st = ct_class_list_load(path, &s->classes);
	if (st == CT_DATA) {
		CT_WARN("class names are not used: %s", ct_error_message());
		ct_error_clear();
		st = CT_OK;
	} else if (st == CT_OK && s->classes.n && s->classes.n != n_classes) {
		CT_WARN("class names are not used: %s has %d names for %d classes", path, s->classes.n, n_classes);
		ct_class_list_release(&s->classes);
	}
	ct_free(path);
	return st;
}

static void close_set(ct_dataset *d)
{
	struct cifar_set *s = (struct cifar_set *)d;

	ct_free_aligned(s->pixels);
	ct_free(s->labels);
	ct_class_list_release(&s->classes);
	ct_free(s);
}

static enum ct_status load_set(struct cifar_set *s, const struct ct_dataset_kind *kind,
			       const struct ct_dataset_spec *spec, const char *dir, const struct files *f)
{
	uint64_t max_bytes = spec->max_bytes ? spec->max_bytes : CT_DATASET_MAX_BYTES;
	uint32_t first = 0;

	if (f->n_records > UINT32_MAX || f->n_records * (PIXELS + 1) > max_bytes)
		return CT_FAIL(CT_DATA, "%s in %s has %" PRIu64 " samples, which need more than %" PRIu64 " MiB",
			       kind->name, dir, f->n_records, max_bytes >> 20);
	ct__dataset_init(&s->base, kind, (uint32_t)f->n_records, 3, SIDE, SIDE);
	s->base.info.kind = CT_SAMPLE_U8_HWC;
	s->base.info.n_classes = spec->n_classes ? spec->n_classes : kind->n_classes;
	s->base.info.in_memory = true;
	s->base.info.bytes = f->n_records * (PIXELS + 1);
	CT_TRY_ALLOC(s->pixels = ct_calloc_aligned(ALIGN, (size_t)f->n_records * PIXELS));
	CT_TRY_ALLOC(s->labels = CT_NEW_ARRAY(uint8_t, (size_t)f->n_records));
	for (int i = 0; i < f->n; i++) {
		CT_TRY(load_file(s, layout_of(kind), f, i, first));
		first += f->records[i];
	}
	return load_names(s, dir, layout_of(kind)->names, kind->n_classes);
}

static void say_what(const struct ct_dataset_kind *kind, const struct layout *lay, const struct files *f, bool train)
{
	int want = train && lay == &cifar10 ? 5 : 1;
	struct ct_str list = {0};

	for (int i = 0; i < f->n; i++)
		ct_str_addf(&list, "%s%s", i ? ", " : "", ct_path_name(f->path[i]));
	if (f->n < want)
		CT_INFO("%s: %" PRIu64 " samples from %d of the %d training files (%s)", kind->name, f->n_records, f->n,
			want, ct_str_text(&list));
	else
		CT_DEBUG("%s: %" PRIu64 " samples from %s", kind->name, f->n_records, ct_str_text(&list));
	ct_str_release(&list);
}

static enum ct_status check_shape(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec)
{
	if ((spec->c && spec->c != 3) || (spec->h && spec->h != SIDE) || (spec->w && spec->w != SIDE))
		return CT_FAIL(CT_CONFIG, "%s has images of 3 x %d x %d, not %d x %d x %d", kind->name, SIDE, SIDE,
			       spec->c, spec->h, spec->w);
	if (spec->n_classes && spec->n_classes < kind->n_classes)
		return CT_FAIL(CT_CONFIG, "%s has %d classes, not %d", kind->name, kind->n_classes, spec->n_classes);
	return CT_OK;
}

static bool is_train(const struct ct_dataset_spec *spec)
{
	return spec->split && spec->split[0] ? strcmp(spec->split, "train") == 0 : spec->train;
}

/* Finds the files of spec in data.dir, or in its sub-directory to which the archive is unpacked. The caller owns *dir
 * and *f and must release both, even after a failure. */
static enum ct_status locate(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, char **dir,
			     struct files *f)
{
	const struct layout *lay = layout_of(kind);
	const char *base = spec->dir && spec->dir[0] ? spec->dir : ".";
	bool train = is_train(spec), test = !train && (!spec->split || !spec->split[0] || !strcmp(spec->split, "test"));
	const char *names = train ? lay->train : test ? lay->test : spec->split;

	CT_TRY_ALLOC(*dir = ct_path_join(base, lay->directory));
	if (!ct_file_exists(*dir)) {
		ct_free(*dir);
		CT_TRY_ALLOC(*dir = ct_strdup(base));
	}
	CT_TRY(find_files(lay, *dir, names, !train && !test, f));
	return f->n ? CT_OK : not_found(kind, *dir, names);
}

static enum ct_status find_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec)
{
	struct files f = {0};
	char *dir = NULL;
	enum ct_status st = locate(kind, spec, &dir, &f);

	release_files(&f);
	ct_free(dir);
	return st;
}

static enum ct_status open_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, ct_dataset **out)
{
	struct cifar_set *s = NULL;
	struct files f = {0};
	char *dir = NULL;
	enum ct_status st;

	CT_TRY(check_shape(kind, spec));
	CT_TRY_GOTO(locate(kind, spec, &dir, &f), st, done);
	s = CT_NEW(struct cifar_set);
	st = s ? load_set(s, kind, spec, dir, &f) : CT_NOMEM;
	CT_TRY_GOTO(st, st, done);
	say_what(kind, layout_of(kind), &f, is_train(spec));
	*out = &s->base;
	s = NULL;
done:
	if (s)
		close_set(&s->base);
	release_files(&f);
	ct_free(dir);
	return st;
}

static enum ct_status read_sample(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	const struct cifar_set *s = (const struct cifar_set *)d;

	(void)target;
	if (x)
		memcpy(x, s->pixels + i * PIXELS, PIXELS);
	if (label)
		*label = s->labels[i];
	return CT_OK;
}

static void prefetch_sample(const ct_dataset *d, uint32_t i)
{
	const struct cifar_set *s = (const struct cifar_set *)d;

	/* The first cache lines; the processor's own prefetcher continues from there. */
	for (size_t at = 0; at < 1024; at += 64)
		__builtin_prefetch(s->pixels + i * PIXELS + at);
	__builtin_prefetch(s->labels + i);
}

static void digest_set(const ct_dataset *d, struct ct_sha256 *h)
{
	const struct cifar_set *s = (const struct cifar_set *)d;

	for (int i = 0; i < s->n_files; i++) {
		char text[96];
		int n = snprintf(text, sizeof(text), "cifar records=%u crc=%08x\n", s->records[i], s->crc[i]);

		ct_sha256_update(h, text, (size_t)n);
	}
}

static const char *class_name(const ct_dataset *d, int label)
{
	const struct cifar_set *s = (const struct cifar_set *)d;

	return label < s->classes.n ? s->classes.names[label] : NULL;
}

const struct ct_dataset_ops ct__dataset_cifar_ops = {
	.open = open_set,
	.find = find_set,
	.close = close_set,
	.read = read_sample,
	.digest = digest_set,
	.prefetch = prefetch_sample,
	.class_name = class_name,
};
