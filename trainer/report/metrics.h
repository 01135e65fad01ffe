/* What a run reports, written by rank 0: metrics.jsonl (docs/FORMATS.md: one JSON object per line, "v":1 and "kind"),
 * TensorBoard event files, and the console. A resumed run appends; lines of steps after the resumed checkpoint are cut
 * off first, so no step is there twice. Epochs count from 0 here and in the files, from 1 on the console. Values that
 * are not finite are written as null. Failing writes of files are CT_IO naming the path, and so is a file that was removed, renamed or replaced
 * meanwhile; the console's are ignored. One
 * thread. */
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
	uint64_t timed; /* the last of these, made in `seconds`: fewer after a resume in the epoch */
	double train_loss, seconds;
	uint64_t bad_samples; /* replaced, over all ranks */
	uint64_t
		damaged; /* images decoded since the last epoch line although the codec reported damage, over all ranks */
	const char *bound_by, *verdict; /* trainer/report/bottleneck.h; verdict "": nothing is known */
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
	double seconds, best_top1 /* < 0 none */, last_loss /* NaN: no step was done */, startup_seconds;
	double images_per_sec;                   /* of this process's steps, without evaluating and saving; 0: none */
	const char *weights_digest, *checkpoint; /* "" when none */
	double share[6]; /* data, forward, backward, exposed comm, optim, other: of the step time, sums to 1 */
};

typedef struct ct_metrics_log ct_metrics_log;

/* resume_step: step of the checkpoint that training goes on from (0: fresh). Cuts metrics.jsonl
 * (trainer/report/metrics_cut_impl.h), starts a new event file in RUN/tb. console: see trainer/report/console_impl.h.
 * The directory RUN exists. */
enum ct_status ct_metrics_open(const char *run_dir, uint64_t resume_step, bool tensorboard, enum ct_cfg_console console,
			       ct_metrics_log **out) CT_MUST_CHECK;
void ct_metrics_close(ct_metrics_log *m);
/* Takes the object (kind `run`: host, world_size, resumed_step ...; the caller fills it) and writes it with its v and
 * kind. */
enum ct_status ct_metrics_run(ct_metrics_log *m, ct_json *fields) CT_MUST_CHECK;
enum ct_status ct_metrics_step(ct_metrics_log *m, const struct ct_step_metrics *s) CT_MUST_CHECK;
enum ct_status ct_metrics_epoch(ct_metrics_log *m, const struct ct_epoch_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_eval(ct_metrics_log *m, const struct ct_eval_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_checkpoint(ct_metrics_log *m, uint64_t step, const char *path, double seconds,
				     uint64_t bytes) CT_MUST_CHECK;
/* Writes the `end` line, then the table on the console. */
enum ct_status ct_metrics_end(ct_metrics_log *m, const struct ct_run_summary *s) CT_MUST_CHECK;
/* The end of a run that failed: status "failed", with the error chain's status and message, which stay as they are. */
void ct_metrics_failed(ct_metrics_log *m, uint64_t step, uint32_t epoch, double seconds);
/* Redraws the live line at most 10 times a second; nothing on a plain console. Cheap to call each step, allocates
 * nothing. */
void ct_metrics_progress(ct_metrics_log *m, const struct ct_progress *p);
/* A line of text above the live line (start banner and the like), on the console only. */
void ct_metrics_say(ct_metrics_log *m, const char *fmt, ...) CT_PRINTF(2, 3);

#endif
