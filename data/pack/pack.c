/* The manifest identifies the input: a digest over everything that determines the bytes of the shards, which are the
 * options, the division into shards, and path, size, time and label of each file. It is written and synced before the
 * first shard and stays locked, so two processes never pack the same shards. A later call with the same digest keeps
 * the shards that exist and makes the others; with another digest it refuses if any shard of this name exists. Threads
 * take whole shards, which are independent of each other, so results do not depend on their number. The report counts
 * what is in the shards, not what was done now. */
#include "data/pack/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/json.h"
#include "base/thread.h"
#include "base/work_queue.h"
#include "data/pack/pack_impl.h"

#define MANIFEST_MAX ((size_t)1 << 20)

struct job {
	const struct ct_pack_opts *opts;
	struct pack_pattern pattern;
	struct pack_list list;
	struct pack_shard *shards;
	uint32_t n_shards;
	char *dir, *manifest;
	int lock; /* the manifest, locked */
	bool *kept;
	pthread_mutex_t mutex; /* protects `done` */
	uint64_t done;
};

static enum ct_status check_opts(const struct ct_pack_opts *o)
{
	if (o->shard_samples > 0 && o->shard_bytes > 0)
		return CT_FAIL(CT_USAGE, "give the size of a shard in samples or in bytes, not both");
	if (o->short_side < 0 || o->short_side > 16384)
		return CT_FAIL(CT_USAGE, "a short side of %d pixels is not in 1..16384", o->short_side);
	if (o->quality < 0 || o->quality > 100)
		return CT_FAIL(CT_USAGE, "JPEG quality %d is not in 1..100", o->quality);
	if (o->quality > 0 && o->short_side == 0)
		return CT_FAIL(CT_USAGE,
			       "a JPEG quality requires a short side: without one, images are copied as they are");
	return CT_OK;
}

static void hash_text(struct ct_sha256 *h, const char *text)
{
	ct_sha256_update(h, text, strlen(text) + 1);
}

/* Describes everything that determines the bytes of the shards. */
static void digest(const struct job *j, char hex[CT_SHA256_HEX])
{
	const struct ct_pack_opts *o = j->opts;
	struct ct_sha256 h;
	char line[160];

	ct_sha256_init(&h);
	snprintf(line, sizeof(line), "pack 1 short %d quality %d shards %u%s", o->short_side, o->quality, j->n_shards,
		 o->seekable ? " seekable" : "");
	hash_text(&h, line);
	for (uint32_t i = 0; i < j->n_shards; i++) {
		snprintf(line, sizeof(line), "%zu", j->shards[i].n);
		hash_text(&h, line);
	}
	for (size_t i = 0; i < j->list.n; i++) {
		const struct pack_item *item = &j->list.v[i];

		snprintf(line, sizeof(line), "%llu %lld %d", (unsigned long long)item->size, (long long)item->mtime_ns,
			 item->label);
		hash_text(&h, line);
		hash_text(&h, item->path);
	}
	ct_sha256_final_hex(&h, hex);
}

/* Searches the directory for a shard of this pattern with any number. */
static enum ct_status any_shard(const struct job *j, bool *found)
{
	const char *prefix = ct_path_name(j->pattern.prefix);
	size_t n, len = strlen(prefix);
	char **names;

	*found = false;
	CT_TRY(ct_dir_list(j->dir, &names, &n));
	for (size_t i = 0; i < n; i++) {
		size_t digits;

		if (strncmp(names[i], prefix, len) != 0)
			continue;
		digits = strspn(names[i] + len, "0123456789");
		*found |= digits > 0 && strcmp(names[i] + len + digits, j->pattern.suffix) == 0;
	}
	ct_dir_list_free(names, n);
	return CT_OK;
}

static enum ct_status refuse_others(const struct job *j)
{
	CT_FAIL(CT_USAGE,
		"%s: shards with this name already exist, but were made from other files or with other options",
		j->opts->pattern);
	return ct_error_hint("remove them and %s, or choose another name", j->manifest);
}

static enum ct_status write_manifest(const struct job *j, const char *hex)
{
	ct_json *o = ct_json_object();
	struct ct_str text = {0};
	enum ct_status st;

	ct_json_set_i64(o, "v", 1);
	ct_json_set_str(o, "kind", "pack");
	ct_json_set_str(o, "source", j->opts->src);
	ct_json_set_i64(o, "images", (int64_t)j->list.n);
	ct_json_set_i64(o, "classes", j->list.classes.n);
	ct_json_set_i64(o, "shards", j->n_shards);
	ct_json_set_i64(o, "short_side", j->opts->short_side);
	ct_json_set_bool(o, "seekable", j->opts->seekable);
	ct_json_set_str(o, "sha256", hex);
	st = ct_json_dump(o, true, &text);
	ct_str_add(&text, "\n");
	if (st == CT_OK)
		st = ct_str_status(&text);
	if (st == CT_OK && (ftruncate(j->lock, 0) != 0 || lseek(j->lock, 0, SEEK_SET) != 0))
		st = CT_FAIL(CT_IO, "cannot write %s: %s", j->manifest, strerror(errno));
	if (st == CT_OK)
		st = ct_fd_write_all(j->lock, text.s, text.len, j->manifest);
	if (st == CT_OK)
		st = ct_fd_sync(j->lock, j->manifest);
	if (st == CT_OK)
		st = ct_dir_sync(j->dir);
	ct_str_release(&text);
	ct_json_destroy(o);
	return st;
}

/* Sets *same if the manifest on disk has this digest. An incomplete manifest counts as missing. */
static enum ct_status compare_manifest(const struct job *j, const char *hex, bool *same)
{
	ct_json *o = NULL;
	const char *theirs;
	char *text;
	size_t len;

	*same = false;
	CT_TRY(ct_file_read(j->manifest, MANIFEST_MAX, &text, &len));
	if (ct_json_parse(text, len, j->manifest, &o) == CT_OK && ct_json_get_str(o, "sha256", &theirs) == CT_OK)
		*same = strcmp(theirs, hex) == 0;
	ct_error_clear();
	ct_json_destroy(o);
	ct_free(text);
	return CT_OK;
}

/* Locks the manifest and checks that existing shards are from the same input. */
static enum ct_status claim(struct job *j)
{
	char hex[CT_SHA256_HEX];
	bool same, found, taken;

	CT_TRY(ct_file_open(j->manifest, CT_FILE_UPDATE, &j->lock));
	if (ct_fd_lock(j->lock, 0, &taken) < 0)
		return ct_error_wrap("cannot lock %s", j->manifest);
	if (!taken) {
		CT_FAIL(CT_USAGE, "%s is in use: these shards are being packed by another process", j->manifest);
		return ct_error_hint("wait for that process, or stop it; packing then continues where it stopped");
	}
	digest(j, hex);
	CT_TRY(compare_manifest(j, hex, &same));
	if (same)
		return CT_OK;
	CT_TRY(any_shard(j, &found));
	return found ? refuse_others(j) : write_manifest(j, hex);
}

static enum ct_status find_kept(struct job *j)
{
	CT_TRY_ALLOC(j->kept = CT_NEW_ARRAY(bool, j->n_shards));
	for (uint32_t i = 0; i < j->n_shards; i++) {
		char *path = ct__pack_pattern_name(&j->pattern, i);

		if (!path)
			return CT_NOMEM;
		j->kept[i] = ct_file_exists(path);
		j->done += j->kept[i] ? j->shards[i].n : 0;
		ct_free(path);
	}
	return CT_OK;
}

static void count_one(void *user)
{
	struct job *j = user;

	pthread_mutex_lock(&j->mutex);
	j->done++;
	if (j->opts->progress)
		j->opts->progress(j->opts->user, j->done, j->list.n);
	pthread_mutex_unlock(&j->mutex);
}

static enum ct_status pack_some(ct_work_queue *q, void *arg)
{
	struct job *j = arg;
	pack_worker *w = NULL;
	enum ct_status st = ct__pack_worker_create(j->opts, &w);
	size_t i;

	while (st == CT_OK && ct_work_next(q, &i)) {
		char *path = j->kept[i] ? NULL : ct__pack_pattern_name(&j->pattern, (uint32_t)i);

		if (j->kept[i])
			continue;
		st = path ? ct__pack_worker_write(w, j->list.v, &j->shards[i], path, count_one, j) : CT_NOMEM;
		ct_free(path);
	}
	ct__pack_worker_destroy(w);
	return st;
}

static enum ct_status pack_all(struct job *j)
{
	return ct_work_run(j->n_shards, j->opts->threads > 0 ? j->opts->threads : ct_cpu_count(), "ctrain-pack",
			   pack_some, j);
}

static enum ct_status report(const struct job *j, struct ct_pack_report *out)
{
	char *path;

	out->n_classes = (uint32_t)j->list.classes.n;
	out->n_shards = j->n_shards;
	for (uint32_t i = 0; i < j->n_shards; i++) {
		uint64_t n = 0, bytes = 0;
		enum ct_status st;

		CT_TRY_ALLOC(path = ct__pack_pattern_name(&j->pattern, i));
		st = ct__pack_shard_count(path, &n);
		if (st == CT_OK)
			st = ct_file_size(path, &bytes);
		ct_free(path);
		CT_TRY(st);
		out->n_samples += n;
		out->bytes += bytes;
		out->n_kept += j->kept[i];
	}
	out->n_left_out = j->list.n - out->n_samples;
	out->shards = j->n_shards == 1 ? ct__pack_pattern_name(&j->pattern, 0)
				       : ct_strfmt("%s{%0*u..%0*u}%s", j->pattern.prefix, j->pattern.width, 0,
						   j->pattern.width, j->n_shards - 1, j->pattern.suffix);
	return out->shards ? CT_OK : CT_NOMEM;
}

/* Uses the class list that was given, else classes.txt next to the shards, else none. */
static enum ct_status list_images(struct job *j)
{
	char *beside;
	enum ct_status st;

	CT_TRY_ALLOC(beside = ct_path_join(j->dir, "classes.txt"));
	st = ct__pack_list_make(j->opts,
				j->opts->classes         ? j->opts->classes
				: ct_file_exists(beside) ? beside
							 : NULL,
				&j->list);
	if (st == CT_OK && j->list.n > UINT32_MAX)
		st = CT_FAIL(CT_DATA, "%zu images are too many for one data set", j->list.n);
	ct_free(beside);
	return st;
}

/* Labels of existing shards must keep their meaning. */
static enum ct_status write_classes(const struct job *j)
{
	char *path = ct_path_join(j->dir, "classes.txt"), *text = NULL;
	enum ct_status st = path ? CT_OK : CT_NOMEM;
	size_t len;

	if (st == CT_OK && j->list.classes_text && !ct_file_exists(path)) {
		st = ct_file_replace(path, j->list.classes_text, strlen(j->list.classes_text));
	} else if (st == CT_OK && j->list.classes_text) {
		st = ct_file_read(path, (size_t)256 << 20, &text, &len);
		if (st == CT_OK && strcmp(text, j->list.classes_text) != 0) {
			CT_FAIL(CT_USAGE, "%s exists and differs from the given class list", path);
			st = ct_error_hint("other shards in that directory use it: choose another directory");
		}
	}
	ct_free(text);
	ct_free(path);
	return st;
}

static enum ct_status run(struct job *j, struct ct_pack_report *out)
{
	CT_TRY(ct__pack_pattern_parse(j->opts->pattern, &j->pattern));
	CT_TRY_ALLOC(j->dir = ct_path_dir(j->opts->pattern));
	CT_TRY_ALLOC(j->manifest = ct_strfmt("%spack.json", j->pattern.prefix));
	CT_TRY(list_images(j));
	CT_TRY(ct__pack_plan(j->opts, &j->pattern, &j->list, &j->shards, &j->n_shards));
	CT_TRY(ct_dir_make(j->dir));
	CT_TRY(claim(j));
	CT_TRY(write_classes(j));
	CT_TRY(find_kept(j));
	ct_failpoint("pack.start");
	CT_TRY(pack_all(j));
	return report(j, out);
}

enum ct_status ct_pack(const struct ct_pack_opts *opts, struct ct_pack_report *out)
{
	struct job j = {.opts = opts, .lock = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};
	enum ct_status st;

	*out = (struct ct_pack_report){0};
	CT_TRY(check_opts(opts));
	st = run(&j, out);
	if (j.lock >= 0)
		close(j.lock);
	ct_free(j.kept);
	ct_free(j.manifest);
	ct_free(j.dir);
	ct_free(j.shards);
	ct__pack_list_release(&j.list);
	ct__pack_pattern_release(&j.pattern);
	pthread_mutex_destroy(&j.mutex);
	if (st < 0)
		ct_pack_report_release(out);
	return st;
}

void ct_pack_report_release(struct ct_pack_report *r)
{
	ct_free(r->shards);
	*r = (struct ct_pack_report){0};
}
