/* Image directories: one sub-directory of images per class. Class i is the i-th name in strcmp order (as in
 * torchvision's ImageFolder), or as given by a class list. Instead, the labels may be in a CSV file (spec->labels), or,
 * in a flat directory, in a file val.txt or labels.txt with lines "FILE LABEL" or "FILE WNID". */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset_impl.h"
#include "data/files/class_list.h"
#include "data/files/label.h"
#include "data/formats/imagefolder_classes_impl.h"
#include "data/formats/imagefolder_labels_impl.h"
#include "data/formats/imagefolder_map_impl.h"
#include "data/formats/imagefolder_scan.h"
#include "data/formats/imagefolder_split_impl.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

struct directory_set {
	ct_dataset base;
	char *root;
	int fd; /* of root */
	struct ct_str paths;
	uint64_t *at;    /* [n] in paths */
	int32_t *labels; /* [n] */
	struct ct_class_list classes;
	struct ct_image_dir_map map; /* of a flat directory */
};

static void close_set(ct_dataset *d)
{
	struct directory_set *s = (struct directory_set *)d;

	if (s->fd >= 0)
		close(s->fd);
	ct_str_release(&s->paths);
	ct_free(s->at);
	ct_free(s->labels);
	ct_class_list_release(&s->classes);
	ct__folder_map_release(&s->map);
	ct_free(s->root);
	ct_free(s);
}

struct class_directories {
	char *const *directories; /* [n] */
	size_t n;
	struct ct_image_dir_images *found; /* [n] */
};

static enum ct_status check_count(uint64_t n)
{
	if (n > UINT32_MAX)
		return CT_FAIL(CT_UNSUPPORTED, "the directories contain more than %u images", UINT32_MAX);
	return CT_OK;
}

static void warn(const char *root, size_t n, uint32_t n_empty, const char *empty, uint64_t others)
{
	if (n_empty == 1)
		CT_WARN("%s: the class directory \"%s\" is empty", root, empty);
	else if (n_empty)
		CT_WARN("%s: %u of %zu class directories are empty, for example \"%s\"", root, n_empty, n, empty);
	if (others)
		CT_WARN("%s: %llu file%s ignored because %s not .jpg, .jpeg or .png", root, (unsigned long long)others,
			others == 1 ? " is" : "s are", others == 1 ? "it is" : "they are");
}

/* Concatenates the images of all directories. */
static enum ct_status join_found(struct directory_set *s, const struct class_directories *x, const int *labels,
				 bool quiet)
{
	uint64_t n = 0, others = 0;
	uint32_t k = 0, n_empty = 0;
	const char *empty = NULL;

	for (size_t i = 0; i < x->n; i++) {
		n += x->found[i].n;
		others += x->found[i].n_others;
		if (x->found[i].n == 0 && n_empty++ == 0)
			empty = x->directories[i];
	}
	CT_TRY(check_count(n));
	if (!quiet)
		warn(s->root, x->n, n_empty, empty, others);
	CT_TRY_ALLOC(s->at = CT_NEW_ARRAY(uint64_t, (size_t)n));
	CT_TRY_ALLOC(s->labels = CT_NEW_ARRAY(int32_t, (size_t)n));
	for (size_t i = 0; i < x->n; i++) {
		const struct ct_image_dir_images *f = &x->found[i];

		for (size_t j = 0; j < f->n; j++, k++) {
			s->at[k] = s->paths.len + f->at[j];
			s->labels[k] = labels[i];
		}
		ct_str_add_bytes(&s->paths, ct_str_text(&f->paths), f->paths.len);
	}
	s->base.info.n = (uint32_t)n;
	return ct_str_status(&s->paths);
}

static enum ct_status load_directories(struct directory_set *s, char *const *directories, size_t n,
				       const struct ct_dataset_spec *spec)
{
	struct class_directories x = {.directories = directories, .n = n};
	enum ct_status st = CT_OK;
	int *labels;

	if (n > CT_MAX_LABEL)
		return CT_FAIL(CT_UNSUPPORTED, "%s has %zu directories, but the limit is %d classes", s->root, n,
			       CT_MAX_LABEL);
	CT_TRY_ALLOC(labels = CT_NEW_ARRAY(int, n));
	x.found = CT_NEW_ARRAY(struct ct_image_dir_images, n);
	if (!x.found) {
		st = CT_NOMEM;
		goto done_labels;
	}
	CT_TRY_GOTO(ct__folder_classes_label(s->root, spec, directories, n, &s->classes, labels), st, done_found);
	CT_TRY_GOTO(ct_image_dir_scan_all(s->root, directories, n, spec->threads, x.found), st, done_found);
	/* The part for evaluation is in the same directories as that for training, which have been reported. */
	st = join_found(s, &x, labels, spec->val_fraction > 0 && !spec->train);
done_found:
	for (size_t i = 0; i < n; i++)
		ct_image_dir_images_release(&x.found[i]);
	ct_free(x.found);
done_labels:
	ct_free(labels);
	return st;
}

static enum ct_status flat_without_map(const struct directory_set *s, const struct ct_image_dir_images *f)
{
	if (f->n == 0) {
		CT_FAIL(CT_DATA, "%s contains neither images nor directories with images", s->root);
		ct_error_hint("expected one directory per class, for example %s/n01440764/n01440764_10026.JPEG",
			      s->root);
	} else {
		CT_FAIL(CT_DATA,
			"%s is flat: it contains %zu images but no class directories, so "
			"their classes are unknown",
			s->root, f->n);
		ct_error_hint("add a file val.txt with lines \"FILE LABEL\" or \"FILE WNID\", or make shards with "
			      "`ctrain data pack --val-map`");
	}
	return CT_DATA;
}

/* Takes the paths of f. */
static void take_images(struct directory_set *s, struct ct_image_dir_images *f, uint32_t n)
{
	s->paths = f->paths;
	s->at = f->at;
	s->base.info.n = n;
	f->paths = (struct ct_str){0};
	f->at = NULL;
}

static enum ct_status join_flat(struct directory_set *s, struct ct_image_dir_images *f)
{
	uint32_t k = 0;

	CT_TRY(check_count(f->n));
	CT_TRY_ALLOC(s->labels = CT_NEW_ARRAY(int32_t, f->n));
	for (size_t i = 0; i < f->n; i++) {
		const char *path = f->paths.s + f->at[i];
		int32_t label = ct__folder_map_take(&s->map, path);

		if (label >= 0) {
			s->labels[k] = label;
			f->at[k++] = f->at[i];
		} else {
			CT_TRY(ct__folder_map_skip(&s->map, path, "no-label", "the file is not in the list of labels"));
		}
	}
	CT_TRY(ct__folder_map_rest(&s->map));
	take_images(s, f, k);
	s->base.info.n_skipped = (uint32_t)s->map.n_skipped;
	return CT_OK;
}

static enum ct_status load_labels(struct directory_set *s, const struct ct_dataset_spec *spec)
{
	struct ct_image_dir_images f;
	enum ct_status st;

	if (spec->classes)
		CT_TRY(ct__folder_classes_load(spec, &s->classes));
	st = ct__folder_labels_load(s->root, spec, &s->classes, &f, &s->labels);
	if (st == CT_OK)
		take_images(s, &f, (uint32_t)f.n);
	ct_image_dir_images_release(&f);
	return st;
}

static enum ct_status load_flat(struct directory_set *s)
{
	struct ct_image_dir_images f;
	enum ct_status st;
	char *path = NULL;

	CT_TRY(ct_image_dir_scan(s->root, "", false, &f));
	st = ct__folder_map_find(s->root, &path);
	if (st == CT_OK && (!path || f.n == 0))
		st = flat_without_map(s, &f);
	if (st == CT_OK)
		st = ct__folder_map_load(path, &s->classes, &s->map);
	if (st == CT_OK)
		st = join_flat(s, &f);
	ct_free(path);
	ct_image_dir_images_release(&f);
	return st;
}

/* Keeps only the training or the evaluation data. */
static enum ct_status split(struct directory_set *s, const struct ct_dataset_spec *spec)
{
	const struct ct_folder_split how = {.fraction = spec->val_fraction, .seed = spec->seed, .train = spec->train};
	uint32_t n_single;

	if (spec->val_fraction <= 0)
		return CT_OK;
	CT_TRY(ct__folder_split(&how, ct_str_text(&s->paths), s->at, s->labels, &s->base.info.n, &n_single));
	if (n_single && spec->train)
		CT_WARN("%s: %u class%s only one image, which is used for training and not for evaluation", s->root,
			n_single, n_single == 1 ? " has" : "es have");
	if (s->base.info.n == 0) {
		CT_FAIL(CT_DATA, "%s has too few images to split off evaluation data: no class has two images",
			s->root);
		return ct_error_hint("add images, or set data.val=none to train without evaluation");
	}
	return CT_OK;
}

static enum ct_status settle_classes(struct directory_set *s, const struct ct_dataset_spec *spec)
{
	struct ct_dataset_info *info = &s->base.info;
	int32_t top = -1;

	for (uint32_t i = 0; i < info->n; i++)
		top = s->labels[i] > top ? s->labels[i] : top;
	info->n_classes = s->classes.n > top + 1 ? s->classes.n : top + 1;
	if (spec->n_classes && info->n_classes > spec->n_classes) {
		CT_FAIL(CT_DATA, "%s has %d classes, but %d were expected", s->root, info->n_classes, spec->n_classes);
		return ct_error_hint(
			"every directory in it counts as a class: check for directories that are not classes");
	}
	if (spec->n_classes)
		info->n_classes = spec->n_classes;
	return CT_OK;
}

static enum ct_status open_root(struct directory_set *s, const struct ct_dataset_spec *spec)
{
	const char *dir = spec->dir && spec->dir[0] ? spec->dir : ".", *half = spec->train ? "train" : "val";

	const char *path = spec->path && spec->path[0] ? spec->path : half;

	CT_TRY_ALLOC(s->root = strcmp(path, ".") == 0 ? ct_strdup(dir) : ct_path_join(dir, path));
	do
		s->fd = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (s->fd < 0 && errno == EINTR);
	if (s->fd >= 0)
		return CT_OK;
	CT_FAIL(errno == ENOENT || errno == ENOTDIR ? CT_NOT_FOUND : CT_IO, "cannot open the directory %s: %s", s->root,
		strerror(errno));
	if (spec->labels)
		ct_error_hint("data.%s is the directory of the images that %s lists", half, spec->labels);
	else if (!ct_file_exists(dir))
		ct_error_hint(
			"data.dir is the directory with the images; relative paths begin at the current directory");
	else if (spec->val_fraction > 0)
		ct_error_hint("data.train=. reads the class directories that are in data.dir itself");
	else
		ct_error_hint(
			"data.dir must contain the directories `train` and `val`; data.%s selects another one. If there is only "
			"one directory, data.val_fraction splits it",
			half);
	return ct_error_status();
}

/* Loads class directories or a flat directory. */
static enum ct_status load_root(struct directory_set *s, const struct ct_dataset_spec *spec)
{
	enum ct_status st;
	char **directories;
	size_t n;

	CT_TRY(ct__folder_classes_load(spec, &s->classes));
	CT_TRY(ct_image_dir_classes(s->root, &directories, &n));
	st = n ? load_directories(s, directories, n, spec) : load_flat(s);
	ct_dir_list_free(directories, n);
	return st;
}

static enum ct_status load_set(struct directory_set *s, const struct ct_dataset_kind *kind,
			       const struct ct_dataset_spec *spec)
{
	ct__dataset_init(&s->base, kind, 0, 3, 0, 0);
	s->base.info.kind = CT_SAMPLE_ENCODED;
	CT_TRY(open_root(s, spec));
	CT_TRY(spec->labels ? load_labels(s, spec) : load_root(s, spec));
	if (s->base.info.n == 0)
		return CT_FAIL(CT_DATA, "%s: none of its directories contains an image", s->root);
	CT_TRY(split(s, spec));
	s->base.info.bytes = s->paths.len + s->base.info.n * (sizeof(*s->at) + sizeof(*s->labels));
	return settle_classes(s, spec);
}

static enum ct_status open_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, ct_dataset **out)
{
	struct directory_set *s;
	enum ct_status st;

	CT_TRY_ALLOC(s = CT_NEW(struct directory_set));
	s->fd = -1;
	st = load_set(s, kind, spec);
	if (st < 0) {
		close_set(&s->base);
		return st;
	}
	*out = &s->base;
	return CT_OK;
}

static enum ct_status find_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec)
{
	struct directory_set s = {.fd = -1};
	enum ct_status st = open_root(&s, spec);

	(void)kind;
	if (s.fd >= 0)
		close(s.fd);
	ct_free(s.root);
	return st;
}

static const char *path_of(const struct directory_set *s, uint32_t i)
{
	return s->paths.s + s->at[i];
}

static enum ct_status read_file(int fd, struct ct_bytes *buf)
{
	struct stat sb;

	if (fstat(fd, &sb) != 0)
		return CT_FAIL(CT_IO, "cannot stat it: %s", strerror(errno));
	if (!S_ISREG(sb.st_mode))
		return CT_FAIL(CT_DATA, "this is not a regular file");
	if (sb.st_size == 0)
		return CT_FAIL_TAG(CT_DATA, NULL, "empty", "the file has no bytes");
	if ((uint64_t)sb.st_size > CT_MAX_IMAGE_BYTES)
		return CT_FAIL_TAG(CT_DATA, NULL, "size", "the file has %lld bytes, but the limit is %u",
				   (long long)sb.st_size, CT_MAX_IMAGE_BYTES);
	CT_TRY(ct_bytes_reserve(buf, (size_t)sb.st_size));
	while (buf->n < (size_t)sb.st_size) {
		ssize_t got = read(fd, buf->data + buf->n, (size_t)sb.st_size - buf->n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return CT_FAIL(errno == ESTALE ? CT_DATA : CT_IO, "cannot read it: %s", strerror(errno));
		if (got == 0)
			return CT_FAIL(CT_DATA, "the file was truncated while it was read");
		buf->n += (size_t)got;
	}
	return CT_OK;
}

static enum ct_status fetch_sample(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label)
{
	const struct directory_set *s = (const struct directory_set *)d;
	enum ct_status st;
	int fd;

	buf->n = 0;
	do
		fd = openat(s->fd, path_of(s, i), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return CT_FAIL(errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ESTALE ? CT_DATA
													: CT_IO,
			       "cannot open the file: %s", strerror(errno));
	st = read_file(fd, buf);
	close(fd);
	if (st < 0)
		buf->n = 0;
	else if (label)
		*label = s->labels[i];
	return st;
}

static int32_t label_of(const ct_dataset *d, uint32_t i)
{
	return ((const struct directory_set *)d)->labels[i];
}

static void describe_sample(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	const struct directory_set *s = (const struct directory_set *)d;
	const char *slash = strrchr(s->root, '/'), *path = path_of(s, i);
	char name[1024];

	snprintf(name, sizeof(name), "%s/%s", slash && slash[1] ? slash + 1 : s->root, path);
	ct_name_escape(name, strlen(name), text, len);
}

static void key_of(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	const char *path = path_of((const struct directory_set *)d, i);

	ct_name_escape(path, strlen(path), text, len);
}

static void describe_skipped(const ct_dataset *d, uint32_t i, struct ct_refusal *out)
{
	const struct ct_image_dir_skipped *s = &((const struct directory_set *)d)->map.skipped[i];

	snprintf(out->where, sizeof(out->where), "%s", s->file);
	snprintf(out->tag, sizeof(out->tag), "%s", s->tag);
	snprintf(out->reason, sizeof(out->reason), "%s: %s", s->tag, s->reason);
}

static const char *class_name(const ct_dataset *d, int label)
{
	const struct directory_set *s = (const struct directory_set *)d;

	return label < s->classes.n ? s->classes.names[label] : NULL;
}

static void digest_set(const ct_dataset *d, struct ct_sha256 *h)
{
	const struct directory_set *s = (const struct directory_set *)d;

	for (uint32_t i = 0; i < d->info.n; i++) {
		const char *path = path_of(s, i);
		uint8_t label[4];

		for (int k = 0; k < 4; k++)
			label[k] = (uint8_t)((uint32_t)s->labels[i] >> 8 * k);
		ct_sha256_update(h, path, strlen(path) + 1);
		ct_sha256_update(h, label, sizeof(label));
	}
}

const struct ct_dataset_ops ct__dataset_imagefolder_ops = {
	.open = open_set,
	.find = find_set,
	.close = close_set,
	.digest = digest_set,
	.fetch = fetch_sample,
	.label = label_of,
	.describe = describe_sample,
	.key = key_of,
	.skipped = describe_skipped,
	.class_name = class_name,
};
