/* Only what ctrain has written is ever removed: all files must match the patterns below, and a run directory with any
 * other file is kept and reported. The patterns must therefore grow with each file that a run writes. A run is removed
 * if it has no checkpoint and has failed or was lost; of a finished run, old checkpoints are. Of all runs that have
 * ended, temporary files that killed processes have left are. A run on another host, whose lock may not be visible,
 * must also have been silent for a day.
 *
 * Time passes between the plan and the removal, while the user decides. So each item is checked again under the lock of
 * its run: whether the run has written since, has a checkpoint by now, or contains a foreign file. What has changed is
 * kept. */
#include "trainer/tools/runs/clean.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "trainer/job/run_dir.h"
#include "trainer/run/checkpoint/checkpoint.h"

#define ELSEWHERE_S                                                                                                   \
	86400 /* a run that may be on another host, whose lock may not be visible here, must have written nothing for \
		 so long */

/* What ctrain writes to a run directory. Names are patterns; a directory ends with '/'. */
static const char *const run_names[] = {"config.yaml",
					"plan.txt",
					"nan.json",
					"metrics.jsonl",
					"metrics.jsonl.tmp",
					"classes.txt",
					"lock",
					"lock.tmp",
					"token",
					"leader",
					".shared-*", /* the check that all nodes have the same directory */
					".doctor-*", /* `ctrain doctor` */
					".probe",
					"report.html",
					"results.csv",
					"results.png",
					"log/",
					"checkpoints/",
					"tb/",
					"eval/",
					NULL};
static const char *const eval_names[] = {"predictions.csv", "classes.csv",     "confusion.csv",
					 "confusion.png",   "evaluation.json", NULL};
static const char *const log_names[] = {"rank-*.log",    "launcher.log", "postmortem.txt", "postmortem.json",
					"flight-*.json", "stacks-*.txt", ".probe",         NULL};
static const char *const checkpoints_names[] = {"last", "best", "step-*/", ".tmp-*/", ".probe", NULL};
static const char *const checkpoint_names[] = {"model.safetensors", "optim.safetensors", "state.json", NULL};
static const char *const tb_names[] = {"events.out.tfevents.*", NULL};

static const char *const *names_below(const char *pattern)
{
	return strcmp(pattern, "log/") == 0           ? log_names
	       : strcmp(pattern, "tb/") == 0          ? tb_names
	       : strcmp(pattern, "eval/") == 0        ? eval_names
	       : strcmp(pattern, "checkpoints/") == 0 ? checkpoints_names
						      : checkpoint_names;
}

/* Returns the pattern that the name matches, or NULL. A temporary file matches the pattern of its file. */
static const char *match(const char *const *patterns, const char *name, bool is_dir)
{
	const char *suffix = is_dir ? NULL : ct_file_temp_suffix(name);
	char file[NAME_MAX + 1];

	snprintf(file, sizeof(file), "%.*s", (int)(suffix ? (size_t)(suffix - name) : strlen(name)), name);
	for (; *patterns; patterns++) {
		const size_t len = strlen(*patterns);
		const bool dir = (*patterns)[len - 1] == '/';
		char pattern[64];

		snprintf(pattern, sizeof(pattern), "%.*s", (int)(len - dir), *patterns);
		if (dir == is_dir && fnmatch(pattern, file, 0) == 0)
			return *patterns;
	}
	return NULL;
}

/* Adds up the sizes of all files. Sets *foreign, which the caller owns, to a path that no pattern matches. */
static enum ct_status look(const char *dir, const char *const *patterns, uint64_t *bytes, char **foreign)
{
	char **names = NULL;
	size_t n = 0;
	enum ct_status st = ct_dir_list(dir, &names, &n);

	for (size_t i = 0; i < n && st == CT_OK && !*foreign; i++) {
		char *path = ct_path_join(dir, names[i]);
		const char *pattern;
		struct stat sb;

		if (!path) {
			st = CT_NOMEM;
		} else if (lstat(path, &sb) != 0) {
			st = errno == ENOENT ? CT_OK : CT_FAIL(CT_IO, "cannot read %s: %m", path);
		} else if (!(pattern = match(patterns, names[i], S_ISDIR(sb.st_mode)))) {
			*foreign = path;
			path = NULL;
		} else if (S_ISDIR(sb.st_mode)) {
			st = look(path, names_below(pattern), bytes, foreign);
		} else {
			*bytes += (uint64_t)sb.st_size;
		}
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	return st;
}

/* Takes item.path. */
static enum ct_status append(struct ct_clean_plan *p, struct ct_clean_item item)
{
	struct ct_clean_item *items = item.path ? ct_array_grow(p->items, p->n, &p->cap, sizeof(*items)) : NULL;

	if (!items) {
		ct_free(item.path);
		return CT_NOMEM;
	}
	p->items = items;
	p->items[p->n++] = item;
	p->bytes += item.bytes;
	return CT_OK;
}

/* Adds a directory. Takes path. */
static enum ct_status add(struct ct_clean_plan *p, const struct ct_run_info *r, char *path, const char *why)
{
	struct ct_clean_item item = {
		.run = r, .path = path, .why = why, .changed = ct_run_changed_at(r->dir, "metrics.jsonl")};
	char *foreign = NULL;
	enum ct_status st = path ? CT_OK : CT_NOMEM;

	if (st == CT_OK)
		st = look(path, strcmp(path, r->dir) == 0 ? run_names : checkpoint_names, &item.bytes, &foreign);
	if (st == CT_OK && foreign)
		ct_str_addf(&p->kept, "%s is kept, because ctrain has not written %s\n", path, foreign);
	if (st < 0 || foreign) {
		ct_free(foreign);
		ct_free(path);
		return st;
	}
	return append(p, item);
}

/* Returns true for a temporary file that is so old that its process has ended. */
static bool is_leftover(const char *path, struct stat *sb)
{
	return lstat(path, sb) == 0 && !S_ISDIR(sb->st_mode) &&
	       ct_wall_seconds() - (double)sb->st_mtime > CT_FILE_LEFTOVER_S;
}

/* Adds the temporary files that killed processes have left in a directory. */
static enum ct_status add_leftovers(struct ct_clean_plan *p, const struct ct_run_info *r, const char *dir,
				    const char *const *patterns)
{
	char **names = NULL;
	size_t n = 0;
	enum ct_status st = ct_file_exists(dir) ? ct_dir_list(dir, &names, &n) : CT_OK;

	for (size_t i = 0; i < n && st == CT_OK; i++) {
		struct ct_clean_item item = {.run = r, .why = "a temporary file of a killed process", .leftover = true};
		struct stat sb;

		if (!ct_file_temp_suffix(names[i]) || !match(patterns, names[i], false))
			continue;
		item.path = ct_path_join(dir, names[i]);
		if (item.path && !is_leftover(item.path, &sb)) {
			ct_free(item.path);
			continue;
		}
		item.bytes = item.path ? (uint64_t)sb.st_size : 0;
		st = append(p, item);
	}
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status find_leftovers(struct ct_clean_plan *p, const struct ct_run_info *r)
{
	static const char *const places[] = {"log/", "eval/", "checkpoints/"};
	enum ct_status st = add_leftovers(p, r, r->dir, run_names);

	for (size_t i = 0; i < CT_ARRAY_LEN(places) && st == CT_OK; i++) {
		char *dir = ct_path_join(r->dir, places[i]);

		st = dir ? add_leftovers(p, r, dir, names_below(places[i])) : CT_NOMEM;
		ct_free(dir);
	}
	return st;
}

/* Returns true if checkpoints/LINK refers to the checkpoint. */
static bool is_linked(const char *run_dir, const char *link, const char *checkpoint)
{
	char target[256] = "", *path = ct_strfmt("%s/checkpoints/%s", run_dir, link);
	const ssize_t n = path ? readlink(path, target, sizeof(target) - 1) : -1;

	ct_free(path);
	return n > 0 && strcmp(ct_path_name(target), checkpoint) == 0;
}

static bool is_old(const char *run_dir, const char *checkpoint)
{
	return strncmp(checkpoint, "step-", 5) == 0 && !is_linked(run_dir, "last", checkpoint) &&
	       !is_linked(run_dir, "best", checkpoint);
}

static enum ct_status find_checkpoints(struct ct_clean_plan *p, const struct ct_run_info *r)
{
	char *dir, **names = NULL;
	size_t n = 0;

	CT_TRY_ALLOC(dir = ct_path_join(r->dir, "checkpoints"));
	enum ct_status st = ct_file_exists(dir) ? ct_dir_list(dir, &names, &n) : CT_OK;
	for (size_t i = 0; i < n && st == CT_OK; i++)
		if (is_old(r->dir, names[i]))
			st = add(p, r, ct_path_join(dir, names[i]),
				 "neither the last nor the best checkpoint of a finished run");
	ct_dir_list_free(names, n);
	ct_free(dir);
	return st;
}

/* Returns true if the launcher has written why the run has failed, after all that rank 0 has written. */
static bool has_failed(const char *run_dir)
{
	const double at = ct_run_changed_at(run_dir, "log/launcher.log");

	return !isnan(at) && !(ct_run_changed_at(run_dir, "log/rank-00000.log") > at);
}

/* Returns true if the run may be on another host. Without a `run` line, its host is not known. */
static bool is_elsewhere(const struct ct_run_info *r)
{
	char host[65] = "";

	if (!r->files.run)
		return !has_failed(r->dir);
	(void)gethostname(host, sizeof(host) - 1);
	return strcmp(ct_line_str(r->files.run, "host", host), host) != 0;
}

enum ct_status ct_clean_find(const struct ct_run_list *l, struct ct_clean_plan *out)
{
	*out = (struct ct_clean_plan){0};
	for (size_t i = 0; i < l->n; i++) {
		const struct ct_run_info *r = &l->runs[i];

		if (is_elsewhere(r) && r->silent < ELSEWHERE_S)
			continue;
		if ((r->state == CT_RUN_FAILED || r->state == CT_RUN_LOST) && ct_checkpoint_count(r->dir) == 0) {
			CT_TRY(add(out, r, ct_strdup(r->dir),
				   r->state == CT_RUN_FAILED ? "failed before its first checkpoint"
							     : "lost before its first checkpoint"));
			continue;
		}
		if (r->state == CT_RUN_DONE)
			CT_TRY(find_checkpoints(out, r));
		if (r->state != CT_RUN_RUNNING)
			CT_TRY(find_leftovers(out, r));
	}
	return ct_str_status(&out->kept);
}

static bool has_changed(const struct ct_clean_item *item, bool complete)
{
	const double now = ct_run_changed_at(item->run->dir, "metrics.jsonl");

	if (isnan(now) != isnan(item->changed) || now > item->changed || now < item->changed)
		return true;
	return complete ? ct_checkpoint_count(item->path) > 0 : !is_old(item->run->dir, ct_path_name(item->path));
}

static enum ct_status remove_leftover(const char *path, bool *removed)
{
	struct stat sb;

	if (!is_leftover(path, &sb))
		return CT_OK;
	*removed = unlink(path) == 0;
	return *removed || errno == ENOENT ? CT_OK : CT_FAIL(CT_IO, "cannot remove %s: %s", path, strerror(errno));
}

enum ct_status ct_clean_remove(const struct ct_clean_item *item, bool *removed)
{
	const bool complete = strcmp(item->path, item->run->dir) == 0;
	ct_run_lock *lock = NULL;
	char *foreign = NULL;
	uint64_t bytes = 0;

	*removed = false;
	if (ct_run_dir_lock(item->run->dir, &lock) < 0) {
		ct_error_clear();
		return CT_OK;
	}
	enum ct_status st = CT_OK;
	if (item->leftover) {
		st = remove_leftover(item->path, removed);
		goto out;
	}
	if (!has_changed(item, complete))
		st = look(item->path, complete ? run_names : checkpoint_names, &bytes, &foreign);
	else
		foreign = ct_strdup("");
	if (st == CT_OK && !foreign) {
		st = ct_dir_remove(item->path);
		*removed = st == CT_OK;
	}
	ct_free(foreign);
out:
	ct_run_dir_unlock(lock);
	return st;
}

void ct_clean_release(struct ct_clean_plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		ct_free(p->items[i].path);
	ct_free(p->items);
	ct_str_release(&p->kept);
	*p = (struct ct_clean_plan){0};
}
