/* The order is always metrics.jsonl, TensorBoard, console: what the user sees is already in the files. A line is a
 * single write to a file opened for appending, so a crash leaves at most the last line incomplete, which the next
 * resume removes. Lines are not synced one by one; those of checkpoints and the end are, so that metrics.jsonl is not
 * older than the newest checkpoint after a crash of the machine. After each line, the path must still lead to the open
 * file, since a file that was removed or replaced would swallow the rest of the run. */
#define CT_LOG_COMPONENT "metrics"
#include "trainer/run/metrics/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/run/metrics/metrics_cut_impl.h"
#include "trainer/run/metrics/tb_events_impl.h"

struct ct_metrics_log {
	char *path;
	int fd;
	ct_tb *tb;           /* NULL: disabled */
	ct_console *console; /* borrowed */
	struct ct_str line;
};

static enum ct_status open_files(ct_metrics_log *m, const char *run_dir, uint64_t resume_step, bool tensorboard)
{
	enum ct_status st;
	char *dir;

	CT_TRY_ALLOC(m->path = ct_path_join(run_dir, "metrics.jsonl"));
	CT_TRY(ct__metrics_cut(m->path, resume_step, NULL));
	CT_TRY(ct_file_open(m->path, CT_FILE_APPEND, &m->fd));
	if (!tensorboard)
		return CT_OK;
	CT_TRY_ALLOC(dir = ct_path_join(run_dir, "tb"));
	st = ct__tb_open(dir, resume_step, &m->tb);
	ct_free(dir);
	return st;
}

enum ct_status ct_metrics_open(const char *run_dir, uint64_t resume_step, bool tensorboard, ct_console *console,
			       ct_metrics_log **out)
{
	enum ct_status st;
	ct_metrics_log *m;

	CT_TRY_ALLOC(m = CT_NEW(ct_metrics_log));
	m->fd = -1;
	CT_TRY_GOTO(open_files(m, run_dir, resume_step, tensorboard), st, fail);
	m->console = console;
	*out = m;
	return CT_OK;

fail:
	ct_metrics_close(m);
	return st;
}

void ct_metrics_close(ct_metrics_log *m)
{
	if (!m)
		return;
	ct__tb_close(m->tb);
	if (m->fd >= 0)
		close(m->fd);
	ct_str_release(&m->line);
	ct_free(m->path);
	ct_free(m);
}

static ct_json *new_object(const char *kind)
{
	ct_json *j = ct_json_object();

	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", kind);
	return j;
}

/* Takes j. Uses a single write per line, so that a crash leaves at most the last line incomplete. */
static enum ct_status put_line(ct_metrics_log *m, ct_json *j)
{
	enum ct_status st;

	ct_json_set_f64(j, "time", round(ct_wall_seconds() * 1e3) / 1e3);
	ct_str_clear(&m->line);
	CT_TRY_GOTO(ct_json_dump(j, false, &m->line), st, out);
	ct_str_add(&m->line, "\n");
	CT_TRY_GOTO(ct_str_status(&m->line), st, out);
	st = ct_fd_write_all(m->fd, m->line.s, m->line.len, m->path);
	/* Writing to a removed file succeeds, but the data is lost. */
	if (st == CT_OK)
		st = ct_file_still_at(m->fd, m->path);
out:
	ct_json_destroy(j);
	return st;
}

static enum ct_status put_scalars(ct_metrics_log *m, uint64_t step, const struct ct_tb_scalar *s, size_t n)
{
	return m->tb ? ct__tb_scalars(m->tb, step, s, n) : CT_OK;
}

static enum ct_status put_fields(ct_metrics_log *m, const char *kind, ct_json *fields)
{
	ct_json_set_i64(fields, "v", 1);
	ct_json_set_str(fields, "kind", kind);
	return put_line(m, fields);
}

enum ct_status ct_metrics_run(ct_metrics_log *m, ct_json *fields)
{
	return put_fields(m, "run", fields);
}

enum ct_status ct_metrics_straggler(ct_metrics_log *m, ct_json *fields)
{
	return put_fields(m, "straggler", fields);
}

enum ct_status ct_metrics_nan(ct_metrics_log *m, ct_json *fields)
{
	return put_fields(m, "nan", fields);
}

enum ct_status ct_metrics_restart(ct_metrics_log *m, const char *fields, uint64_t step)
{
	ct_json *j;

	CT_TRY(ct_json_parse(fields, strlen(fields), "the launcher's description of the restart", &j));
	ct_json_set_i64(j, "step", (int64_t)step);
	return put_fields(m, "restart", j);
}

enum ct_status ct_metrics_step(ct_metrics_log *m, const struct ct_step_metrics *s)
{
	struct ct_tb_scalar scalars[12] = {
		{"train/loss", s->loss},
		{"train/lr", s->lr},
		{"train/images_per_sec", s->images_per_sec},
		{"time/data_ms", s->data_ms},
		{"time/forward_ms", s->forward_ms},
		{"time/backward_ms", s->backward_ms},
		{"time/exposed_comm_ms", s->exposed_comm_ms},
		{"time/optim_ms", s->optim_ms},
		{"time/other_ms", s->other_ms},
	};
	size_t n = 9;
	ct_json *j = new_object("step");

	if (!(s->grad_norm < 0))
		scalars[n++] = (struct ct_tb_scalar){"train/grad_norm", s->grad_norm};
	if (!(s->weight_norm < 0))
		scalars[n++] = (struct ct_tb_scalar){"train/weight_norm", s->weight_norm};
	if (s->loss_scale > 0)
		scalars[n++] = (struct ct_tb_scalar){"train/loss_scale", s->loss_scale};

	ct_json_set_i64(j, "step", (int64_t)s->step);
	ct_json_set_i64(j, "epoch", s->epoch);
	if (s->memory_bytes > 0)
		ct_json_set_i64(j, "memory_bytes", (int64_t)s->memory_bytes);
	if (s->loss_scale > 0)
		ct_json_set_i64(j, "skipped_updates", (int64_t)s->skipped_updates);
	/* The key is the tag without its group ("train/loss": loss). */
	for (size_t i = 0; i < n; i++)
		ct_json_set_f64(j, strchr(scalars[i].tag, '/') + 1, scalars[i].value);
	CT_TRY(put_line(m, j));
	CT_TRY(put_scalars(m, s->step, scalars, n));
	ct_console_step(m->console, s);
	return CT_OK;
}

/* How long each rank has waited, and for what. */
static void add_ranks(ct_json *line, const struct ct_epoch_metrics *e)
{
	enum { MAX_RANKS = 1024 };
	ct_json *data = ct_json_array(), *compute = ct_json_array(), *waiting = ct_json_array();

	for (int i = 0; i < e->n_ranks && e->n_ranks <= MAX_RANKS; i++) {
		ct_json_push_f64(data, e->ranks[i].data_s);
		ct_json_push_f64(compute, e->ranks[i].compute_s);
		ct_json_push_f64(waiting, e->ranks[i].exposed_s);
	}
	ct_json_set(line, "rank_data_seconds", data);
	ct_json_set(line, "rank_compute_seconds", compute);
	ct_json_set(line, "rank_waiting_seconds", waiting);
}

enum ct_status ct_metrics_epoch(ct_metrics_log *m, const struct ct_epoch_metrics *e)
{
	const struct ct_tb_scalar scalars[] = {{"epoch/train_loss", e->train_loss},
					       {"epoch/seconds", e->seconds},
					       {"epoch/bad_samples", (double)e->bad_samples}};
	ct_json *j = new_object("epoch");

	ct_json_set_i64(j, "epoch", e->epoch);
	ct_json_set_i64(j, "step", (int64_t)e->step);
	ct_json_set_f64(j, "train_loss", e->train_loss);
	ct_json_set_i64(j, "images", (int64_t)e->images);
	ct_json_set_i64(j, "timed_images", (int64_t)e->timed);
	ct_json_set_f64(j, "seconds", e->seconds);
	ct_json_set_i64(j, "bad_samples", (int64_t)e->bad_samples);
	ct_json_set_i64(j, "damaged_images", (int64_t)e->damaged);
	ct_json_set_str(j, "bound_by", e->bound_by);
	ct_json_set_str(j, "verdict", e->verdict);
	add_ranks(j, e);
	CT_TRY(put_line(m, j));
	CT_TRY(put_scalars(m, e->step, scalars, CT_ARRAY_LEN(scalars)));
	ct_console_epoch(m->console, e);
	return CT_OK;
}

enum ct_status ct_metrics_eval(ct_metrics_log *m, const struct ct_eval_metrics *e)
{
	const struct ct_tb_scalar scalars[] = {{"eval/loss", e->loss}, {"eval/top1", e->top1}, {"eval/top5", e->top5}};
	bool classes = e->top1 >= 0;
	ct_json *j = new_object("eval");

	ct_json_set_i64(j, "epoch", e->epoch);
	ct_json_set_i64(j, "step", (int64_t)e->step);
	ct_json_set_f64(j, "loss", e->loss);
	ct_json_set_f64(j, "top1", classes ? e->top1 : NAN);
	ct_json_set_f64(j, "top5", classes ? e->top5 : NAN);
	ct_json_set_i64(j, "count", (int64_t)e->count);
	ct_json_set_f64(j, "seconds", e->seconds);
	ct_json_set_i64(j, "bad_samples", (int64_t)e->bad_samples);
	CT_TRY(put_line(m, j));
	CT_TRY(put_scalars(m, e->step, scalars, classes ? 3 : 1));
	ct_console_eval(m->console, e);
	return CT_OK;
}

enum ct_status ct_metrics_checkpoint(ct_metrics_log *m, uint64_t step, const char *path, double seconds,
				     double exposed_seconds, uint64_t bytes)
{
	ct_json *j = new_object("checkpoint");

	ct_json_set_i64(j, "step", (int64_t)step);
	ct_json_set_str(j, "path", path);
	ct_json_set_f64(j, "seconds", seconds);
	ct_json_set_f64(j, "exposed_seconds", exposed_seconds);
	ct_json_set_i64(j, "bytes", (int64_t)bytes);
	CT_TRY(put_line(m, j));
	/* The checkpoint has just been synced; sync its line as well, so that both survive a crash of the machine. */
	return ct_fd_sync(m->fd, m->path);
}

enum ct_status ct_metrics_end(ct_metrics_log *m, const struct ct_run_summary *s)
{
	ct_json *j = new_object("end");

	ct_json_set_str(j, "status", s->status);
	ct_json_set_i64(j, "step", (int64_t)s->step);
	ct_json_set_i64(j, "epoch", s->epoch);
	ct_json_set_f64(j, "seconds", s->seconds);
	ct_json_set_f64(j, "best_top1", s->best_top1 >= 0 ? s->best_top1 : NAN);
	ct_json_set_str(j, "weights_digest", s->weights_digest);
	ct_json_set_f64(j, "startup_seconds", s->startup_seconds);
	ct_json_set_i64(j, "images", (int64_t)s->images);
	ct_json_set_f64(j, "images_per_sec", s->images_per_sec);
	ct_json_set_f64(j, "last_loss", s->last_loss);
	CT_TRY(put_line(m, j));
	CT_TRY(ct_fd_sync(m->fd, m->path));
	if (m->tb)
		CT_TRY(ct__tb_end(m->tb, true));
	ct_console_summary(m->console, s);
	return CT_OK;
}

static const char *const end_names[] = {CT_RUN_ENDS(CT_CHOICE_NAME) NULL};

const char *ct_run_end_name(enum ct_run_end end)
{
	return ct_choice_name(end_names, (int)end);
}

enum ct_run_end ct_run_end_of(const char *status)
{
	const int end = ct_choice_find(end_names, status);

	return end < 0 ? CT_END_DONE : (enum ct_run_end)end;
}

void ct_metrics_failed(ct_metrics_log *m, uint64_t step, uint32_t epoch, double seconds)
{
	struct ct_error keep;
	ct_json *j = new_object("end");

	ct_error_save(&keep);
	ct_json_set_str(j, "status", ct_run_end_name(CT_END_FAILED));
	ct_json_set_i64(j, "step", (int64_t)step);
	ct_json_set_i64(j, "epoch", epoch);
	ct_json_set_f64(j, "seconds", seconds);
	ct_json_set_str(j, "error", ct_status_name(keep.status));
	ct_json_set_str(j, "message", keep.message);
	/* If the disk is the cause of the failure, this line is lost, too. */
	if (put_line(m, j) < 0 || ct_fd_sync(m->fd, m->path) < 0 || (m->tb && ct__tb_end(m->tb, false) < 0))
		CT_DEBUG("cannot write the `end` line to metrics.jsonl: %s", ct_error_message());
	(void)ct_error_restore(&keep);
}

bool ct_metrics_has_board(const ct_metrics_log *m)
{
	return m->tb != NULL;
}

enum ct_status ct_metrics_image(ct_metrics_log *m, uint64_t step, const char *tag, const struct ct_tb_image *image)
{
	return ct__tb_image(m->tb, step, tag, image);
}

enum ct_status ct_metrics_histogram(ct_metrics_log *m, uint64_t step, const char *tag, const float *v, size_t n)
{
	return ct__tb_histogram(m->tb, step, tag, v, n);
}

enum ct_status ct_metrics_hparams(ct_metrics_log *m, const char *lines)
{
	return ct__tb_hparams(m->tb, lines);
}

void ct_metrics_progress(ct_metrics_log *m, const struct ct_progress *p)
{
	ct_console_progress(m->console, p);
}

void ct_metrics_say(ct_metrics_log *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ct_console_sayv(m->console, fmt, ap);
	va_end(ap);
}
