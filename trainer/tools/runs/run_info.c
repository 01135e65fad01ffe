/* The state of a run is derived from what it leaves: the lock, which shows a process that is alive; the `end` line of
 * its last process; and the time of the last write. The lock of a run on another host may not be visible, so such a run
 * is taken to be running as long as it has written recently. A run without an `end` line was lost, and one without a
 * `run` line failed before it began, unless it was started a moment ago. The time of a run is the sum over its
 * processes, and of one that could not write its end, the time until its last write. */
#define CT_LOG_COMPONENT "runs"
#include "trainer/tools/runs/run_info.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/job/run_dir.h"
#include "trainer/run/metrics/metrics.h"

#define RECENTLY_S 120 /* a run on another host that has written within this time is taken to be running */
#define STARTING_S 30  /* a run directory without metrics that was created within this time is taken to be starting */
#define MAX_DEPTH 3    /* of subdirectories that are searched for runs */

const char *ct_run_state_name(enum ct_run_state s)
{
	static const char *const names[CT_RUN_STATES] = {"running", "done", "stopped", "failed", "lost"};

	return names[s];
}

static bool has(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name);
	bool exists = path && ct_file_exists(path);

	ct_free(path);
	return exists;
}

bool ct_run_is_dir(const char *dir)
{
	return has(dir, "metrics.jsonl") || (has(dir, "log") && has(dir, "checkpoints"));
}

const char *ct_run_setting(const struct ct_run_info *r, const char *key)
{
	const struct ct_run_setting *s = ct_run_setting_find(&r->files, key);

	return s ? s->value : NULL;
}

double ct_run_changed_at(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name);
	struct stat sb;
	double at = path && stat(path, &sb) == 0 ? (double)sb.st_mtim.tv_sec + 1e-9 * (double)sb.st_mtim.tv_nsec : NAN;

	ct_free(path);
	return at;
}

static bool is_kind(const ct_json *line, const char *kind)
{
	return strcmp(ct_line_str(line, "kind", ""), kind) == 0;
}

/* Returns the `end` line of the last process of the run, or NULL if it has not ended or was killed. */
static const ct_json *last_end(const struct ct_run_files *f)
{
	for (size_t i = f->n_lines; i-- > 0;) {
		if (is_kind(f->lines[i], "run"))
			return NULL;
		if (is_kind(f->lines[i], "end"))
			return f->lines[i];
	}
	return NULL;
}

static enum ct_run_state state_of_end(const char *status)
{
	const enum ct_run_end end = ct_run_end_of(status);

	if (end == CT_END_FAILED)
		return CT_RUN_FAILED;
	return end == CT_END_SIGNAL || end == CT_END_REGROUP ? CT_RUN_STOPPED : CT_RUN_DONE;
}

static enum ct_run_state find_state(const struct ct_run_info *r, const ct_json *end)
{
	char host[65] = "";

	(void)gethostname(host, sizeof(host) - 1);
	if (ct_run_dir_in_use(r->dir))
		return CT_RUN_RUNNING;
	if (end)
		return state_of_end(ct_line_str(end, "status", ""));
	if (!r->files.run)
		return r->silent < STARTING_S && !has(r->dir, "log/launcher.log") ? CT_RUN_RUNNING : CT_RUN_FAILED;
	const bool elsewhere = strcmp(ct_line_str(r->files.run, "host", host), host) != 0;
	return elsewhere && r->silent < RECENTLY_S ? CT_RUN_RUNNING : CT_RUN_LOST;
}

/* Adds up the times of all processes of the run. The last one may not have ended, or not in a way that it could write.
 */
static void find_times(struct ct_run_info *r)
{
	const struct ct_run_files *f = &r->files;
	double since = NAN, last = ct_run_changed_at(r->dir, "metrics.jsonl");

	r->seconds = 0;
	for (size_t i = 0; i < f->n_lines; i++) {
		const double time = ct_line_f64(f->lines[i], "time");

		if (is_kind(f->lines[i], "run")) {
			since = time;
			r->started = isnan(r->started) ? time : r->started;
		} else if (is_kind(f->lines[i], "end")) {
			const double seconds = ct_line_f64(f->lines[i], "seconds");

			r->seconds += isnan(seconds) ? 0 : seconds;
			since = NAN;
		}
	}
	if (last > since)
		r->seconds += last - since;
	const double log = ct_run_changed_at(r->dir, "log/rank-00000.log"), dir = ct_run_changed_at(r->dir, ".");
	r->silent = ct_wall_seconds() - fmax(fmax(last, log), dir);
}

static void find_results(struct ct_run_info *r, const ct_json *end)
{
	const struct ct_run_files *f = &r->files;
	const char *epochs = ct_run_setting(r, "train.epochs");
	int64_t total;

	for (size_t i = 0; i < f->evals.n; i++) {
		r->best_top1 = fmax(r->best_top1, ct_table_at(&f->evals, i, CT_EVAL_TOP1));
		r->best_loss = fmin(r->best_loss, ct_table_at(&f->evals, i, CT_EVAL_LOSS));
	}
	if (epochs && ct_parse_i64(epochs, &total) == CT_OK && total > 0)
		r->epochs_total = (double)total;
	ct_error_clear();
	r->steps_total = ct_line_f64(f->run, "total_steps");
	if (r->epochs_total * ct_line_f64(f->run, "steps_per_epoch") > r->steps_total) /* train.max_steps comes first */
		r->epochs_total = NAN;
	r->step = f->steps.n > 0 ? ct_table_at(&f->steps, f->steps.n - 1, CT_STEP_STEP)
				 : ct_line_f64(f->run, "resumed_step");
	r->step = fmax(r->step, ct_line_f64(end, "step"));
	r->epochs = f->epochs.n > 0 ? ct_table_at(&f->epochs, f->epochs.n - 1, CT_EPOCH_EPOCH) + 1 : f->run ? 0 : NAN;
	r->images_per_sec = ct_line_f64(end, "images_per_sec");
	if (!(r->images_per_sec > 0) && f->steps.n > 0)
		r->images_per_sec = ct_table_at(&f->steps, f->steps.n - 1, CT_STEP_RATE);
	r->message = end && state_of_end(ct_line_str(end, "status", "")) == CT_RUN_FAILED
			     ? ct_line_str(end, "message", "")
			     : "";
}

enum ct_status ct_run_info_load(const char *dir, const char *name, struct ct_run_info *out)
{
	*out = (struct ct_run_info){.message = "",
				    .best_top1 = NAN,
				    .best_loss = NAN,
				    .epochs_total = NAN,
				    .images_per_sec = NAN,
				    .started = NAN};
	CT_TRY_ALLOC(out->name = ct_strdup(name));
	CT_TRY_ALLOC(out->dir = ct_strdup(dir));
	const enum ct_status st = ct_run_files_load(dir, &out->files);
	if (st == CT_NOT_FOUND)
		ct_error_clear();
	else
		CT_TRY(st);
	const ct_json *end = last_end(&out->files);
	find_times(out);
	find_results(out, end);
	out->state = find_state(out, end);
	return CT_OK;
}

void ct_run_info_release(struct ct_run_info *r)
{
	ct_run_files_release(&r->files);
	ct_free(r->name);
	ct_free(r->dir);
	memset(r, 0, sizeof(*r));
}

static enum ct_status add(struct ct_run_list *l, const char *dir, const char *name)
{
	CT_TRY_GROW(l->runs, l->n, l->cap);
	struct ct_run_info *r = &l->runs[l->n];
	const enum ct_status st = ct_run_info_load(dir, name, r);
	if (st == CT_OK) {
		l->n++;
		return CT_OK;
	}
	ct_run_info_release(r);
	if (st == CT_NOMEM)
		return st;
	CT_WARN("%s is not shown: %s", dir, ct_error_message());
	ct_error_clear();
	return CT_OK;
}

/* `name` is the path of dir below the directory where the search began, or "" in that directory. */
static enum ct_status search(struct ct_run_list *l, const char *dir, const char *name, int depth)
{
	char **names = NULL;
	size_t n = 0;
	struct stat sb;

	if (ct_run_is_dir(dir))
		return add(l, dir, name[0] ? name : ct_path_name(dir));
	if (depth == MAX_DEPTH)
		return CT_OK;
	enum ct_status st = ct_dir_list(dir, &names, &n);
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		char *path = ct_path_join(dir, names[i]),
		     *below = ct_strfmt("%s%s%s", name, name[0] ? "/" : "", names[i]);

		if (!path || !below)
			st = CT_NOMEM;
		else if (names[i][0] != '.' && lstat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
			st = search(l, path, below, depth + 1);
		ct_free(below);
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	if (st == CT_IO && depth > 0) { /* a directory that may not be read */
		ct_error_clear();
		st = CT_OK;
	}
	return st;
}

enum ct_status ct_run_list_find(const char *dir, struct ct_run_list *out)
{
	*out = (struct ct_run_list){0};
	return search(out, dir, "", 0);
}

void ct_run_list_release(struct ct_run_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		ct_run_info_release(&l->runs[i]);
	ct_free(l->runs);
	*l = (struct ct_run_list){0};
}

static bool differs(const struct ct_run_info *const *runs, size_t n, const char *key)
{
	const char *first = ct_run_setting(runs[0], key);

	for (size_t i = 1; i < n; i++) {
		const char *other = ct_run_setting(runs[i], key);

		if (!first != !other || (first && strcmp(first, other) != 0))
			return true;
	}
	return false;
}

static bool is_listed(const struct ct_run_keys *k, const char *key)
{
	for (size_t i = 0; i < k->n; i++)
		if (strcmp(k->keys[i], key) == 0)
			return true;
	return strcmp(key, "run.dir") == 0 || strcmp(key, "run.name") == 0;
}

enum ct_status ct_run_keys_that_differ(const struct ct_run_info *const *runs, size_t n, struct ct_run_keys *out)
{
	*out = (struct ct_run_keys){0};
	for (size_t i = 0; i < n; i++) {
		const struct ct_run_files *f = &runs[i]->files;

		for (size_t k = 0; k < f->n_settings; k++) {
			const char *key = f->settings[k].key;

			/* Keys of the first run have already been compared. */
			if ((i > 0 && ct_run_setting(runs[0], key)) || is_listed(out, key) || !differs(runs, n, key))
				continue;
			CT_TRY_GROW(out->keys, out->n, out->cap);
			out->keys[out->n++] = key;
		}
	}
	return CT_OK;
}

void ct_run_keys_release(struct ct_run_keys *k)
{
	ct_free((void *)k->keys);
	*k = (struct ct_run_keys){0};
}
