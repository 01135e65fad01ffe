/* What a run reports, written by rank 0: metrics.jsonl (docs/FORMATS.md: one JSON object per line, "v":1 and "kind"),
 * TensorBoard event files, and the console. A resumed run appends; lines of steps after the resumed checkpoint are removed
 * first, so no step appears twice. Epochs count from 0 here and in the files, from 1 on the console. Values that are not
 * finite are written as null. CT_IO naming the path if a file cannot be written, or if it was removed, renamed or replaced
 * in the meantime; write errors of the console are ignored. Used by one thread only. */
#ifndef CT_TRAINER_REPORT_METRICS_H
#define CT_TRAINER_REPORT_METRICS_H

#include <stdint.h>

#include "base/json.h"
#include "trainer/config/choices.h"

struct ct_step_metrics {
	uint64_t step;
	uint32_t epoch;
	double loss, lr, images_per_sec;
	double data_ms, forward_ms, backward_ms, exposed_comm_ms, optim_ms,
		other_ms; /* per step, mean since the last line */
	double grad_norm; /* < 0: not computed */
};

struct ct_epoch_metrics {
	uint32_t epoch;
	uint64_t step, images;
	uint64_t timed; /* images that `seconds` covers: fewer than `images` after a resume within the epoch */
	double train_loss, seconds;
	uint64_t bad_samples; /* replaced, over all ranks */
	uint64_t
		damaged; /* images decoded since the last epoch line although the codec reported damage, over all ranks */
	const char *bound_by, *verdict; /* trainer/report/bottleneck.h; verdict "": no report */
};

struct ct_eval_metrics {
	uint32_t epoch;
	uint64_t step, count;
	double loss, top1, top5, seconds; /* top1 < 0: regression */
	uint64_t bad_samples;             /* skipped, over all ranks */
};

struct ct_progress {                /* for the console's status line */
	uint64_t step, total_steps; /* total 0: unknown */
	uint32_t epoch, epochs;
	double loss, images_per_sec, eta_seconds;
	const char *phase; /* a literal: "train", "eval", "saving" */
};

struct ct_run_summary {
	const char *status; /* "done", "target reached", "stopped by signal", "failed" */
	uint64_t step, images;
	uint32_t epoch;
	double seconds, best_top1 /* < 0: none */, last_loss /* NaN: no step was done */, startup_seconds;
	double images_per_sec; /* over the steps of this process, without evaluation and saving; 0: no steps */
	const char *weights_digest, *checkpoint; /* "": none */
	double share
		[6]; /* of the step time: data, forward, backward, exposed communication, optimizer, other; they sum to 1 */
};

typedef struct ct_metrics_log ct_metrics_log;

/* Removes the lines of later steps from metrics.jsonl (trainer/report/metrics_cut_impl.h) and starts a new event file in RUN/tb.
 * resume_step: step of the checkpoint from which training continues (0: from scratch). console: see
 * trainer/report/console_impl.h. The directory RUN must exist. */
enum ct_status ct_metrics_open(const char *run_dir, uint64_t resume_step, bool tensorboard, enum ct_cfg_console console,
			       ct_metrics_log **out) CT_MUST_CHECK;
void ct_metrics_close(ct_metrics_log *m);
/* Writes the line of kind `run`. Takes `fields`, which the caller has filled (host, world_size, resumed_step ...); adds v and
 * kind. */
enum ct_status ct_metrics_run(ct_metrics_log *m, ct_json *fields) CT_MUST_CHECK;
enum ct_status ct_metrics_step(ct_metrics_log *m, const struct ct_step_metrics *s) CT_MUST_CHECK;
enum ct_status ct_metrics_epoch(ct_metrics_log *m, const struct ct_epoch_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_eval(ct_metrics_log *m, const struct ct_eval_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_checkpoint(ct_metrics_log *m, uint64_t step, const char *path, double seconds,
				     double exposed_seconds, uint64_t bytes) CT_MUST_CHECK;
/* Writes the `end` line, then the table on the console. */
enum ct_status ct_metrics_end(ct_metrics_log *m, const struct ct_run_summary *s) CT_MUST_CHECK;
/* Writes the `end` line of a run that failed, with the status and message of the error chain, which does not change. */
void ct_metrics_failed(ct_metrics_log *m, uint64_t step, uint32_t epoch, double seconds);
/* Redraws the live line at most 10 times a second; nothing on a plain console. Cheap to call each step, allocates
 * nothing. */
void ct_metrics_progress(ct_metrics_log *m, const struct ct_progress *p);
/* A line of text above the live line (start banner and the like), on the console only. */
void ct_metrics_say(ct_metrics_log *m, const char *fmt, ...) CT_PRINTF(2, 3);

#endif
