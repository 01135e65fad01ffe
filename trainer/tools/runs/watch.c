/* The lines of metrics.jsonl are turned back into the structs that the run had passed to its console, and a console of
 * the same kind shows them. A first pass over the file only counts epochs, so that only the last ones are shown at the
 * start. If the run continues from a checkpoint, its file is replaced and read from the start, and `shown` serves to
 * skip what has been shown. The lines that the new file has kept are copies, so their time says which `run` and
 * `restart` lines have been shown; other lines are shown once for each step, even if the run repeats the step.
 *
 * The end is decided by the lock and the lines together. The lock is looked at before the lines, because a run writes
 * its last line before it unlocks. A run that is neither locked nor at its end may be between two attempts, so it has
 * some time to begin again; if its lock may not be visible, much more. */
#include "trainer/tools/runs/watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process/rank_page.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/signals.h"
#include "trainer/run/metrics/metrics.h"
#include "trainer/tools/runs/follow.h"
#include "trainer/tools/runs/run_info.h"

#define LOOK_NS (200 * CT_MS)
/* A run without a lock has ended if it has written nothing for this time. The next attempt after a failure begins
 * earlier, or the launcher has printed the failure. */
#define END_NS (3 * CT_SEC)
#define ELSEWHERE_NS (120 * CT_SEC) /* the same for a run on another host, whose lock may not be visible */
#define SHOWN_EPOCHS 5              /* of those before the start */

/* How far the lines go that have been read. */
struct point {
	uint64_t step; /* 0: no line has a step */
	double time;   /* NaN: no line has a time */
};

struct watch {
	const char *dir;
	ct_console *console;
	bool counting;           /* the first pass, which only counts epochs */
	uint64_t skipped_epochs; /* epochs that are not shown, because more recent ones are */
	uint64_t n_epochs;
	struct point last, shown; /* of this file, and of the files that it has replaced */
	int64_t changed_ns;       /* when the last line was read */
	bool elsewhere;           /* the run is on another host, whose lock may not be visible */
	int pid;                  /* of rank 0, as the lock of the run directory names it */
	struct ct_rank_view view; /* of the page of rank 0, if it has one that can be read here */
	struct ct_progress p;
	uint64_t global_batch, steps_per_epoch;
	/* Of the last `end` line. */
	bool ended;
	char status[64], message[512], error[32], digest[65];
	struct ct_run_summary end;
};

static uint64_t count_of(const ct_json *line, const char *key)
{
	const double v = ct_line_f64(line, key);

	return v > 0 ? (uint64_t)v : 0;
}

static void show_run(struct watch *w, const ct_json *j)
{
	char host[65] = "";

	(void)gethostname(host, sizeof(host) - 1);
	w->elsewhere = strcmp(ct_line_str(j, "host", host), host) != 0;
	w->ended = false;
	w->global_batch = count_of(j, "global_batch");
	w->steps_per_epoch = count_of(j, "steps_per_epoch");
	w->p.total_steps = count_of(j, "total_steps");
	w->p.step = w->last.step = count_of(j, "resumed_step");
	if (w->steps_per_epoch > 0)
		w->p.epochs = (uint32_t)((w->p.total_steps + w->steps_per_epoch - 1) / w->steps_per_epoch);
	if (ct_line_f64(j, "time") <= w->shown.time)
		return;
	ct_console_say(w->console, "%s: %s on %s, %s, %.0f rank%s on %s (%s, %s)", w->dir, ct_line_str(j, "model", "?"),
		       ct_line_str(j, "data", "?"), ct_line_str(j, "precision", "?"), ct_line_f64(j, "world_size"),
		       ct_plural((int64_t)ct_line_f64(j, "world_size")), ct_line_str(j, "host", "?"),
		       ct_line_str(j, "engine", "?"), ct_line_str(j, "backend", "?"));
	if (w->p.step > 0)
		ct_console_say(w->console, "  resumed at step %llu", (unsigned long long)w->p.step);
}

static void show_restart(struct watch *w, const ct_json *j)
{
	if (!(ct_line_f64(j, "time") <= w->shown.time))
		ct_console_say(w->console, "restarted at step %.0f: %s", ct_line_f64(j, "step"),
			       ct_line_str(j, "message", ""));
}

static void show_step(struct watch *w, const ct_json *j)
{
	static const char *const parts[6] = {"data_ms",         "forward_ms", "backward_ms",
					     "exposed_comm_ms", "optim_ms",   "other_ms"};
	const struct ct_step_metrics s = {.step = count_of(j, "step"),
					  .epoch = (uint32_t)count_of(j, "epoch"),
					  .loss = ct_line_f64(j, "loss"),
					  .lr = ct_line_f64(j, "lr"),
					  .images_per_sec = ct_line_f64(j, "images_per_sec")};
	struct ct_progress *p = &w->p;
	double sum = 0;

	p->step = w->last.step = s.step;
	p->epoch = s.epoch;
	p->loss = s.loss;
	p->images_per_sec = s.images_per_sec;
	if (s.images_per_sec > 0 && p->total_steps >= p->step)
		p->eta_seconds = (double)(p->total_steps - p->step) * (double)w->global_batch / s.images_per_sec;
	for (int i = 0; i < 6; i++) {
		p->share[i] = fmax(0, ct_line_f64(j, parts[i]));
		sum += p->share[i];
	}
	for (int i = 0; i < 6; i++)
		p->share[i] = sum > 0 ? p->share[i] / sum : 0;
	ct_console_progress(w->console, p);
	if (s.step > w->shown.step && w->n_epochs >= w->skipped_epochs)
		ct_console_step(w->console, &s);
}

static void show_epoch(struct watch *w, const ct_json *j)
{
	const struct ct_epoch_metrics e = {.epoch = (uint32_t)count_of(j, "epoch"),
					   .step = count_of(j, "step"),
					   .images = count_of(j, "images"),
					   .timed = count_of(j, "timed_images"),
					   .train_loss = ct_line_f64(j, "train_loss"),
					   .seconds = ct_line_f64(j, "seconds"),
					   .bad_samples = count_of(j, "bad_samples"),
					   .damaged = count_of(j, "damaged_images"),
					   .bound_by = ct_line_str(j, "bound_by", ""),
					   .verdict = ct_line_str(j, "verdict", "")};

	w->n_epochs++;
	w->last.step = e.step;
	if (w->n_epochs > w->skipped_epochs && e.step > w->shown.step)
		ct_console_epoch(w->console, &e);
}

static void show_eval(struct watch *w, const ct_json *j)
{
	const double top1 = ct_line_f64(j, "top1"), top5 = ct_line_f64(j, "top5");
	const struct ct_eval_metrics e = {.epoch = (uint32_t)count_of(j, "epoch"),
					  .step = count_of(j, "step"),
					  .count = count_of(j, "count"),
					  .loss = ct_line_f64(j, "loss"),
					  .top1 = isnan(top1) ? -1 : top1,
					  .top5 = isnan(top5) ? -1 : top5,
					  .seconds = ct_line_f64(j, "seconds"),
					  .bad_samples = count_of(j, "bad_samples")};

	w->last.step = e.step;
	if (w->n_epochs > w->skipped_epochs && e.step > w->shown.step)
		ct_console_eval(w->console, &e);
	w->p.best_top1 = fmax(w->p.best_top1, e.top1);
}

static void note_end(struct watch *w, const ct_json *j)
{
	const double best = ct_line_f64(j, "best_top1"), loss = ct_line_f64(j, "last_loss");
	const char *status = ct_line_str(j, "status", "?"), *digest = ct_line_str(j, "weights_digest", "");

	ct_name_escape(status, strlen(status), w->status, sizeof(w->status));
	ct_name_escape(digest, strlen(digest), w->digest, sizeof(w->digest));
	snprintf(w->message, sizeof(w->message), "%s", ct_line_str(j, "message", ""));
	snprintf(w->error, sizeof(w->error), "%s", ct_line_str(j, "error", ""));
	w->ended = true;
	w->end = (struct ct_run_summary){.status = w->status,
					 .step = count_of(j, "step"),
					 .images = count_of(j, "images"),
					 .steps_per_epoch = w->steps_per_epoch,
					 .epoch = (uint32_t)count_of(j, "epoch"),
					 .seconds = ct_line_f64(j, "seconds"),
					 .best_top1 = isnan(best) ? -1 : best,
					 .last_loss = loss,
					 .startup_seconds = ct_line_f64(j, "startup_seconds"),
					 .images_per_sec = ct_line_f64(j, "images_per_sec"),
					 .weights_digest = w->digest,
					 .checkpoint = ""};
}

static enum ct_status use_line(void *user, const ct_json *j)
{
	struct watch *w = user;
	const char *kind = ct_line_str(j, "kind", "");

	w->changed_ns = ct_now_ns();
	if (w->counting) {
		w->skipped_epochs += strcmp(kind, "epoch") == 0;
		return CT_OK;
	}
	w->last.time = fmax(w->last.time, ct_line_f64(j, "time"));
	if (strcmp(kind, "run") == 0)
		show_run(w, j);
	else if (strcmp(kind, "step") == 0)
		show_step(w, j);
	else if (strcmp(kind, "epoch") == 0)
		show_epoch(w, j);
	else if (strcmp(kind, "eval") == 0)
		show_eval(w, j);
	else if (strcmp(kind, "restart") == 0)
		show_restart(w, j);
	else if (strcmp(kind, "end") == 0)
		note_end(w, j);
	return CT_OK;
}

/* The lines that are already there show the last epochs only. */
static enum ct_status count_epochs(struct watch *w, const char *path)
{
	struct ct_follow f;
	bool again;
	enum ct_status st = ct_follow_open(&f, path);

	w->counting = true;
	if (st == CT_OK)
		st = ct_follow_poll(&f, use_line, w, &again);
	w->counting = false;
	w->skipped_epochs = w->skipped_epochs > SHOWN_EPOCHS ? w->skipped_epochs - SHOWN_EPOCHS : 0;
	ct_follow_close(&f);
	return st;
}

/* Returns the status whose name an `end` line has. */
static enum ct_status status_named(const char *name)
{
#define STATUS_OF(n, value, code, text)           \
	if ((value) < 0 && strcmp(name, #n) == 0) \
		return CT_##n;
	CT_STATUS_LIST(STATUS_OF)
#undef STATUS_OF
	return CT_BUG;
}

static enum ct_status report_end(struct watch *w)
{
	if (!w->ended) {
		if (w->last.step > 0)
			CT_FAIL(CT_PEER_LOST, "%s has ended without a message, at step %llu or later", w->dir,
				(unsigned long long)w->last.step);
		else
			CT_FAIL(CT_PEER_LOST, "%s has ended without a message, and has reported no step", w->dir);
		return ct_error_hint("run its command again to continue from the newest checkpoint");
	}
	if (ct_run_end_of(w->status) == CT_END_FAILED)
		return CT_FAIL(status_named(w->error), "%s has failed: %s", w->dir, w->message);
	ct_console_summary(w->console, &w->end);
	if (ct_run_end_of(w->status) == CT_END_SIGNAL)
		return CT_FAIL(CT_INTERRUPTED, "%s was stopped by a signal at step %llu", w->dir,
			       (unsigned long long)w->end.step);
	return CT_OK;
}

/* What rank 0 is doing now is in its page; the metrics only have what it has completed. */
static void look_at_page(struct watch *w)
{
	const int pid = w->elsewhere ? 0 : ct_run_dir_pid(w->dir);

	if (pid != w->pid || (pid > 0 && !w->view.page)) { /* the next attempt has another rank 0 */
		ct_rank_view_close(&w->view);
		ct_rank_view_open(pid, &w->view);
		w->pid = pid;
	}
	w->p.phase = w->view.page ? ct_rank_page_position(w->view.page).phase : CT_RANK_TRAINING;
}

static enum ct_status follow(struct watch *w, struct ct_follow *f, int signals, int *sig)
{
	bool again, used;

	w->changed_ns = ct_now_ns();
	for (*sig = 0; *sig == 0; *sig = ct_signals_wait(signals, ct_deadline_in(LOOK_NS))) {
		used = ct_run_dir_in_use(
			w->dir); /* before the lines, because a run writes its last line before it unlocks */
		CT_TRY(ct_follow_poll(f, use_line, w, &again));
		if (again) {
			w->shown.step = w->last.step > w->shown.step ? w->last.step : w->shown.step;
			w->shown.time = w->last.time;
			w->last.step = 0;
			CT_TRY(ct_follow_poll(f, use_line, w, &again));
		}
		look_at_page(w);
		if (f->fd >= 0 && w->p.total_steps > 0 && !w->ended)
			ct_console_progress(w->console, &w->p);
		const int64_t quiet = ct_now_ns() - w->changed_ns;
		const enum ct_run_end end = ct_run_end_of(w->status);
		const bool final = w->ended && end != CT_END_FAILED && end != CT_END_REGROUP;
		if (!used && (final || quiet > (w->elsewhere && !w->ended ? ELSEWHERE_NS : END_NS)))
			return report_end(w);
	}
	return CT_OK;
}

enum ct_status ct_watch(const char *run_dir, enum ct_cfg_console mode, int signals, int *sig)
{
	struct watch w = {
		.dir = run_dir, .last.time = NAN, .shown.time = NAN, .p = {.loss = NAN, .phase = CT_RANK_TRAINING}};
	struct ct_follow f = {.fd = -1};
	char *path = NULL;
	enum ct_status st;

	*sig = 0;
	if (!ct_run_is_dir(run_dir))
		return CT_FAIL(CT_NOT_FOUND, "%s is not a run directory", run_dir);
	CT_TRY_ALLOC(path = ct_path_join(run_dir, "metrics.jsonl"));
	CT_TRY_GOTO(ct_console_create(mode, &w.console), st, out);
	CT_TRY_GOTO(count_epochs(&w, path), st, out);
	CT_TRY_GOTO(ct_follow_open(&f, path), st, out);
	st = follow(&w, &f, signals, sig);
out:
	ct_rank_view_close(&w.view);
	ct_console_destroy(w.console);
	ct_follow_close(&f);
	ct_free(path);
	return st;
}
