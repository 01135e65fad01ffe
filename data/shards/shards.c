/* Shards: WebDataset tar files with random access through their indexes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/work_queue.h"
#include "data/dataset_impl.h"
#include "data/files/class_list.h"
#include "data/files/file_pool.h"
#include "data/shards/shard_index.h"
#include "data/shards/shard_list_impl.h"
#define CT_LOG_COMPONENT "data"
#include "base/log.h"

#define MAX_THREADS 64

struct shard_set {
	ct_dataset base;
	char **paths;
	size_t n_shards;
	struct ct_shard_index *indexes; /* [n_shards] */
	uint32_t *first;                /* [n_shards + 1] */
	uint32_t *first_skipped;        /* [n_shards + 1] */
	ct_file_pool *files;
	struct ct_class_list classes;
};

/* Threads take shards one by one. Each process starts at a different shard, so that ranks that index the same shards at
 * the same time share the work. */
struct indexing {
	struct shard_set *set;
	const char *index_dir;
	struct ct_refusal **damage; /* [n_shards] errors of the shards. NULL: the first error ends indexing */
	size_t start;
	atomic_size_t n_from[3]; /* by enum ct_shard_source */
	pthread_mutex_t lock;
	size_t failed; /* index of the first shard that could not be indexed; n_shards: none */
	struct ct_error error;
};

/* Makes a copy of the thread's error, or returns NULL. */
static struct ct_refusal *copy_error(void)
{
	const size_t at = ct_error_tag_at();
	struct ct_refusal *r = CT_NEW(struct ct_refusal);

	if (r) {
		snprintf(r->where, sizeof(r->where), "%.*s", at > 2 ? (int)at - 2 : 0, ct_error_message());
		snprintf(r->tag, sizeof(r->tag), "%s", ct_error_tag());
		snprintf(r->reason, sizeof(r->reason), "%s", ct_error_message() + at);
	}
	return r;
}

/* Handles the thread's error for shard i. Returns false if the error has been recorded and indexing continues. */
static bool ends_indexing(struct indexing *x, size_t i)
{
	enum ct_status st = ct_error_status();

	if (!x->damage || st == CT_NOMEM)
		return true;
	x->damage[i] = copy_error();
	return x->damage[i] == NULL;
}

static enum ct_status index_some(ct_work_queue *q, void *arg)
{
	struct indexing *x = arg;
	size_t n = x->set->n_shards, at;

	while (ct_work_next(q, &at)) {
		size_t i = (at + x->start) % n;
		enum ct_shard_source source;

		if (ct_shard_index_open(x->set->paths[i], x->index_dir, &x->set->indexes[i], &source) == CT_OK) {
			atomic_fetch_add(&x->n_from[source], 1);
			continue;
		}
		if (!ends_indexing(x, i)) {
			ct_error_clear();
			continue;
		}
		if (ct_error_status() == CT_DATA && ct_error_hint_text()[0] == '\0')
			ct_error_hint("the shard is damaged: download it again, or remove it from the list");
		pthread_mutex_lock(&x->lock);
		if (i < x->failed) {
			x->failed = i;
			ct_error_save(&x->error);
		}
		pthread_mutex_unlock(&x->lock);
		return ct_error_status();
	}
	return CT_OK;
}

static enum ct_status index_on_threads(struct indexing *x, int n_threads)
{
	enum ct_status st;

	pthread_mutex_init(&x->lock, NULL);
	st = ct_work_run(x->set->n_shards, n_threads < MAX_THREADS ? n_threads : MAX_THREADS, "ct-index", index_some,
			 x);
	pthread_mutex_destroy(&x->lock);
	/* The error that is reported does not depend on which thread was first. */
	return x->failed < x->set->n_shards ? ct_error_restore(&x->error) : st;
}

static enum ct_status index_all(struct shard_set *s, const struct ct_dataset_spec *spec)
{
	struct indexing x = {.set = s, .index_dir = spec->index_dir, .failed = s->n_shards};
	int64_t began = ct_now_ns();
	enum ct_status st;

	x.start = (size_t)getpid() * 7919 % s->n_shards;
	if (spec->on_damaged)
		CT_TRY_ALLOC(x.damage = CT_NEW_ARRAY(struct ct_refusal *, s->n_shards));
	st = index_on_threads(&x, spec->threads);
	if (st == CT_OK)
		CT_INFO("%zu shards in %.2f s: %zu indexes from the cache, %zu from .idx files, %zu built", s->n_shards,
			(double)(ct_now_ns() - began) / CT_SEC, (size_t)x.n_from[CT_SHARD_CACHED],
			(size_t)x.n_from[CT_SHARD_DALI], (size_t)x.n_from[CT_SHARD_SCANNED]);
	for (size_t i = 0; x.damage && i < s->n_shards; i++) {
		if (x.damage[i] && st == CT_OK)
			st = spec->on_damaged(spec->user, x.damage[i]);
		ct_free(x.damage[i]);
	}
	ct_free(x.damage);
	return st;
}

static void close_set(ct_dataset *d)
{
	struct shard_set *s = (struct shard_set *)d;

	ct_file_pool_destroy(s->files);
	for (size_t i = 0; s->indexes && i < s->n_shards; i++)
		ct_shard_index_release(&s->indexes[i]);
	ct_free(s->indexes);
	ct_free(s->first);
	ct_free(s->first_skipped);
	ct_class_list_release(&s->classes);
	ct_dir_list_free(s->paths, s->n_shards);
	ct_free(s);
}

/* Writes "PATH: key "KEY" at byte N" for messages. */
static void describe_at(const char *name, const struct ct_shard_index *x, uint32_t key, uint32_t key_len,
			uint64_t offset, char *text, size_t len)
{
	char shown[160];

	ct_name_escape(x->text + key, key_len, shown, sizeof(shown));
	snprintf(text, len, "%s: key \"%s\" at byte %" PRIu64, name, shown, offset);
}

/* Returns the group of sample i in first [n + 1], skipping empty groups. */
static uint32_t find_group(const uint32_t *first, size_t n, uint32_t i)
{
	size_t low = 0, high = n;

	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;

		if (first[mid] <= i)
			low = mid;
		else
			high = mid;
	}
	return (uint32_t)low;
}

/* Finds the shard's first label that is n_classes or more, and writes "PATH: key ...: label 3" to text. Without such a
 * label, text does not change. */
static void find_label(const struct shard_set *s, size_t shard, int n_classes, char *text, size_t len)
{
	const struct ct_shard_index *x = &s->indexes[shard];
	char where[320];

	for (uint32_t i = 0; x->max_label >= n_classes && i < x->n; i++) {
		const struct ct_shard_sample *p = &x->samples[i];

		if (p->label < n_classes)
			continue;
		describe_at(ct_path_name(s->paths[shard]), x, p->key, p->key_len, p->offset, where, sizeof(where));
		snprintf(text, len, "%s: label %d", where, p->label);
		return;
	}
}

/* Skips samples whose labels data.classes excludes. If this affects more than half of the samples, data.classes is
 * probably wrong, which is an error. */
static enum ct_status limit_labels(struct shard_set *s, int n_classes)
{
	uint64_t before = 0, after = 0;
	char first[384] = "";

	for (size_t i = 0; i < s->n_shards; i++) {
		before += s->indexes[i].n;
		if (!first[0])
			find_label(s, i, n_classes, first, sizeof(first));
		CT_TRY(ct_shard_index_limit_labels(&s->indexes[i], n_classes));
		after += s->indexes[i].n;
	}
	if (after * 2 >= before)
		return CT_OK;
	CT_FAIL(CT_DATA,
		"%" PRIu64 " of %" PRIu64 " labels are out of range: there are %d classes. The first one is %s",
		before - after, before, n_classes, first);
	return ct_error_hint("labels start at 0: check data.classes");
}

static enum ct_status add_up(struct shard_set *s)
{
	struct ct_dataset_info *info = &s->base.info;
	uint64_t n = 0, n_skipped = 0;
	int max_label = -1;

	info->bytes = 0;
	for (size_t i = 0; i < s->n_shards; i++) {
		const struct ct_shard_index *x = &s->indexes[i];

		s->first[i] = (uint32_t)n;
		s->first_skipped[i] = (uint32_t)n_skipped;
		n += x->n;
		n_skipped += x->n_skipped;
		if (n > UINT32_MAX || n_skipped > UINT32_MAX)
			return CT_FAIL(CT_UNSUPPORTED, "the shards contain more than %u samples", UINT32_MAX);
		max_label = x->max_label > max_label ? x->max_label : max_label;
		if (x->max_size > info->max_encoded_bytes)
			info->max_encoded_bytes = x->max_size;
		info->bytes += x->n * sizeof(*x->samples) + x->n_skipped * sizeof(*x->skipped) + x->text_len;
	}
	s->first[s->n_shards] = info->n = (uint32_t)n;
	s->first_skipped[s->n_shards] = info->n_skipped = (uint32_t)n_skipped;
	info->n_classes = max_label + 1;
	info->n_groups = (uint32_t)s->n_shards;
	info->group_first = s->first;
	return CT_OK;
}

static enum ct_status load_classes(struct shard_set *s, const struct ct_dataset_spec *spec)
{
	const char *dir = spec->dir && spec->dir[0] ? spec->dir : ".";
	bool given = spec->classes && spec->classes[0];
	enum ct_status st = CT_OK;
	char *directory, *path;

	CT_TRY_ALLOC(path = ct_path_join(dir, given ? spec->classes : "classes.txt"));
	if (!given && !ct_file_exists(path)) {
		ct_free(path);
		CT_TRY_ALLOC(directory = ct_path_dir(s->paths[0]));
		path = ct_path_join(directory, "classes.txt");
		ct_free(directory);
		if (!path)
			return CT_NOMEM;
	}
	if (given || ct_file_exists(path))
		st = ct_class_list_load(path, &s->classes);
	ct_free(path);
	if (st < 0 && !given && st != CT_NOMEM) {
		CT_WARN("class names are not used: %s", ct_error_message());
		ct_error_clear();
		st = CT_OK;
	}
	return st;
}

/* Sets the number of classes: the requested number, or else the number that labels and names need. */
static enum ct_status settle_classes(struct shard_set *s, const struct ct_dataset_spec *spec)
{
	struct ct_dataset_info *info = &s->base.info;

	CT_TRY(load_classes(s, spec));
	if (spec->n_classes) {
		info->n_classes = spec->n_classes;
	} else if (s->classes.n > info->n_classes) {
		info->n_classes = s->classes.n;
	} else if (s->classes.n && s->classes.n < info->n_classes) {
		CT_WARN("there are labels up to %d, but names for only %d classes", info->n_classes - 1, s->classes.n);
	}
	return CT_OK;
}

static enum ct_status check_any(const struct shard_set *s, const struct ct_dataset_spec *spec)
{
	const struct ct_dataset_info *info = &s->base.info;
	struct ct_refusal first = {0};

	if (info->n_skipped)
		ct_dataset_skipped(&s->base, 0, &first);
	if (info->n == 0 && spec->on_damaged)
		return CT_OK;
	if (info->n == 0)
		return CT_FAIL(CT_DATA, "no sample can be used: %u are skipped; the first one is %s: %s",
			       info->n_skipped, first.where, first.reason);
	if (info->n_skipped)
		CT_WARN("%u of %" PRIu64 " samples are skipped; the first one is %s: %s", info->n_skipped,
			(uint64_t)info->n + info->n_skipped, first.where, first.reason);
	return CT_OK;
}

static enum ct_status load_set(struct shard_set *s, const struct ct_dataset_kind *kind,
			       const struct ct_dataset_spec *spec)
{
	ct__dataset_init(&s->base, kind, 0, 3, 0, 0);
	s->base.info.kind = CT_SAMPLE_ENCODED;
	CT_TRY(ct__shard_list(spec->dir, spec->path, spec->train, &s->paths, &s->n_shards));
	CT_TRY_ALLOC(s->indexes = CT_NEW_ARRAY(struct ct_shard_index, s->n_shards));
	CT_TRY_ALLOC(s->first = CT_NEW_ARRAY(uint32_t, s->n_shards + 1));
	CT_TRY_ALLOC(s->first_skipped = CT_NEW_ARRAY(uint32_t, s->n_shards + 1));
	CT_TRY(index_all(s, spec));
	if (spec->n_classes)
		CT_TRY(limit_labels(s, spec->n_classes));
	CT_TRY(add_up(s));
	CT_TRY(check_any(s, spec));
	CT_TRY(settle_classes(s, spec));
	return ct_file_pool_create(s->paths, (uint32_t)s->n_shards, 0, &s->files);
}

static enum ct_status open_set(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, ct_dataset **out)
{
	struct shard_set *s;
	enum ct_status st;

	CT_TRY_ALLOC(s = CT_NEW(struct shard_set));
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
	char **paths;
	size_t n;

	(void)kind;
	CT_TRY(ct__shard_list(spec->dir, spec->path, spec->train, &paths, &n));
	ct_dir_list_free(paths, n);
	return CT_OK;
}

static enum ct_status changed(void)
{
	return CT_FAIL(CT_DATA, "the shard has changed since it was indexed");
}

/* Reads the data and then checks that the file is still the one that was indexed. */
static enum ct_status read_checked(const struct shard_set *s, uint32_t shard, int fd, void *dst, size_t n,
				   uint64_t offset)
{
	const struct ct_shard_index *x = &s->indexes[shard];
	struct stat sb;

	for (size_t done = 0; done < n;) {
		ssize_t got = pread(fd, (char *)dst + done, n - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return CT_FAIL(errno == ESTALE ? CT_DATA : CT_IO, "cannot read %s at byte %" PRIu64 ": %s",
				       s->paths[shard], offset, strerror(errno));
		if (got == 0)
			return changed();
		done += (size_t)got;
	}
	if (fstat(fd, &sb) != 0)
		return CT_FAIL(errno == ESTALE ? CT_DATA : CT_IO, "cannot stat %s: %s", s->paths[shard],
			       strerror(errno));
	if ((uint64_t)sb.st_size != x->bytes ||
	    (uint64_t)sb.st_mtim.tv_sec * CT_SEC + (uint64_t)sb.st_mtim.tv_nsec != x->mtime_ns)
		return changed();
	return CT_OK;
}

static enum ct_status fetch_sample(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first, s->n_shards, i);
	const struct ct_shard_sample *p = &s->indexes[shard].samples[i - s->first[shard]];
	enum ct_status st;
	int fd;

	buf->n = 0;
	CT_TRY(ct_bytes_reserve(buf, p->size));
	CT_TRY(ct_file_pool_get(s->files, shard, &fd));
	st = read_checked(s, shard, fd, buf->data, p->size, p->offset);
	ct_file_pool_put(s->files, shard);
	CT_TRY(st);
	buf->n = p->size;
	if (label)
		*label = p->label;
	return CT_OK;
}

static int32_t label_of(const ct_dataset *d, uint32_t i)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first, s->n_shards, i);

	return s->indexes[shard].samples[i - s->first[shard]].label;
}

static void prefetch_sample(const ct_dataset *d, uint32_t i)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first, s->n_shards, i);
	const struct ct_shard_sample *p = &s->indexes[shard].samples[i - s->first[shard]];
	int fd;

	if (ct_file_pool_get(s->files, shard, &fd) < 0) {
		ct_error_clear(); /* the fetch reports the error */
		return;
	}
	(void)posix_fadvise(fd, (off_t)p->offset, p->size, POSIX_FADV_WILLNEED);
	ct_file_pool_put(s->files, shard);
}

static void describe_sample(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first, s->n_shards, i);
	const struct ct_shard_index *x = &s->indexes[shard];
	const struct ct_shard_sample *p = &x->samples[i - s->first[shard]];

	describe_at(ct_path_name(s->paths[shard]), x, p->key, p->key_len, p->offset, text, len);
}

static void key_of(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first, s->n_shards, i);
	const struct ct_shard_index *x = &s->indexes[shard];
	const struct ct_shard_sample *p = &x->samples[i - s->first[shard]];

	ct_name_escape(x->text + p->key, p->key_len, text, len);
}

static void describe_skipped(const ct_dataset *d, uint32_t i, struct ct_refusal *out)
{
	const struct shard_set *s = (const struct shard_set *)d;
	uint32_t shard = find_group(s->first_skipped, s->n_shards, i);
	const struct ct_shard_index *x = &s->indexes[shard];
	const struct ct_shard_skipped *p = &x->skipped[i - s->first_skipped[shard]];
	const char *reason = x->text + p->reason;
	const size_t n = strcspn(reason, ":");

	describe_at(ct_path_name(s->paths[shard]), x, p->key, p->key_len, p->offset, out->where, sizeof(out->where));
	if (n < sizeof(out->tag) && reason[n])
		snprintf(out->tag, sizeof(out->tag), "%.*s", (int)n, reason);
	ct_name_escape(reason, strlen(reason), out->reason, sizeof(out->reason));
}

static const char *class_name(const ct_dataset *d, int label)
{
	const struct shard_set *s = (const struct shard_set *)d;

	return label < s->classes.n ? s->classes.names[label] : NULL;
}

/* The digest covers file names without directories, because ranks may mount them in different places. */
static void digest_set(const ct_dataset *d, struct ct_sha256 *h)
{
	const struct shard_set *s = (const struct shard_set *)d;

	for (size_t i = 0; i < s->n_shards; i++) {
		const struct ct_shard_index *x = &s->indexes[i];
		const char *name = ct_path_name(s->paths[i]);
		char text[96];
		int n = snprintf(text, sizeof(text), " bytes=%" PRIu64 " n=%u crc=%08x\n", x->bytes, x->n, x->crc);

		ct_sha256_update(h, name, strlen(name));
		ct_sha256_update(h, text, (size_t)n);
	}
}

const struct ct_dataset_ops ct__dataset_shards_ops = {
	.open = open_set,
	.find = find_set,
	.close = close_set,
	.digest = digest_set,
	.prefetch = prefetch_sample,
	.fetch = fetch_sample,
	.label = label_of,
	.describe = describe_sample,
	.key = key_of,
	.skipped = describe_skipped,
	.class_name = class_name,
};
