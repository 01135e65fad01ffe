/* The reports of a run, written by rank 0: metrics.jsonl (one JSON object per line, see docs/FORMATS.md), TensorBoard
 * event files, and console output. A resumed run appends to metrics.jsonl. Lines of steps after the resumed checkpoint
 * are removed first, so no step appears twice. Epochs are counted from 0 here and in the files, and from 1 on the
 * console. Values that are not finite are written as null. The functions fail with CT_IO if a file cannot be written,
 * or has been removed, renamed or replaced since it was opened; the message contains the path. Write errors on the
 * console are ignored. Only one thread may use these functions. */
#ifndef CT_TRAINER_RUN_METRICS_METRICS_H
#define CT_TRAINER_RUN_METRICS_METRICS_H

#include <stdint.h>

#include "base/choice.h"
#include "base/json.h"
#include "trainer/run/metrics/bottleneck.h"
#include "trainer/run/metrics/console.h"

/* How a run ended, and the value of `status` in the `end` line. The names are part of the files of runs and must not
 * change; docs/FORMATS.md lists them. */
#define CT_RUN_ENDS(X)                                 \
	X(CT_END_DONE, "done")                         \
	X(CT_END_BEFORE, "already finished")           \
	X(CT_END_TARGET, "target reached")             \
	X(CT_END_EARLY, "stopped early")               \
	X(CT_END_SIGNAL, "stopped by a signal")        \
	X(CT_END_REGROUP, "continues with more nodes") \
	X(CT_END_FAILED, "failed")
enum ct_run_end { CT_RUN_ENDS(CT_CHOICE_ID) };
const char *ct_run_end_name(enum ct_run_end end);
/* Returns how a run ended whose `end` line has this status, or CT_END_DONE if the status is unknown. */
enum ct_run_end ct_run_end_of(const char *status);

struct ct_step_metrics {
	uint64_t step;
	uint32_t epoch;
	double loss, lr, images_per_sec;
	double data_ms, forward_ms, backward_ms, exposed_comm_ms, optim_ms,
		other_ms;         /* per step, averaged since the last line */
	double grad_norm;         /* < 0: not computed */
	double weight_norm;       /* < 0: not computed */
	uint64_t memory_bytes;    /* 0: not known */
	double loss_scale;        /* 0: the loss is not scaled */
	uint64_t skipped_updates; /* of the run; written only with loss_scale */
};

struct ct_epoch_metrics {
	uint32_t epoch;
	uint64_t step, images;
	uint64_t
		timed; /* number of images processed in `seconds`; less than `images` after a resume within the epoch */
	double train_loss, seconds;
	uint64_t bad_samples; /* unreadable samples that were replaced, over all ranks */
	uint64_t damaged; /* images that were decoded since the last epoch line although the codec reported damage, over
			     all ranks */
	const char *bound_by, *verdict; /* see trainer/run/metrics/bottleneck.h; verdict is "" if there is no report */
	const struct ct_rank_times *ranks; /* [n_ranks] the times of all ranks in the epoch */
	int n_ranks;
};

struct ct_eval_metrics {
	uint32_t epoch;
	uint64_t step, count;
	double loss, top1, top5, seconds; /* top1 < 0 for regression */
	uint64_t bad_samples;             /* unreadable samples that were skipped, over all ranks */
};

typedef struct ct_metrics_log ct_metrics_log;

/* Removes the lines of later steps from metrics.jsonl (trainer/run/metrics/metrics_cut_impl.h) and starts a new event
 * file in RUN/tb. resume_step is the step of the checkpoint from which training continues, or 0 for a start from
 * scratch. Borrows console, which may be NULL. The directory RUN must exist. */
enum ct_status ct_metrics_open(const char *run_dir, uint64_t resume_step, bool tensorboard, ct_console *console,
			       ct_metrics_log **out) CT_MUST_CHECK;
void ct_metrics_close(ct_metrics_log *m);
/* Writes the line of kind `run`. The caller must have added host, world_size, resumed_step and so on to `fields`; this
 * function adds v and kind, and takes ownership of `fields`. */
enum ct_status ct_metrics_run(ct_metrics_log *m, ct_json *fields) CT_MUST_CHECK;
/* Writes the line of kind `restart`. fields is a JSON object from the launcher; `step` is the step from which training
 * continues. */
enum ct_status ct_metrics_restart(ct_metrics_log *m, const char *fields, uint64_t step) CT_MUST_CHECK;
enum ct_status ct_metrics_step(ct_metrics_log *m, const struct ct_step_metrics *s) CT_MUST_CHECK;
enum ct_status ct_metrics_epoch(ct_metrics_log *m, const struct ct_epoch_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_eval(ct_metrics_log *m, const struct ct_eval_metrics *e) CT_MUST_CHECK;
enum ct_status ct_metrics_checkpoint(ct_metrics_log *m, uint64_t step, const char *path, double seconds,
				     double exposed_seconds, uint64_t bytes) CT_MUST_CHECK;
/* Writes the `end` line, and then prints the final table on the console. */
enum ct_status ct_metrics_end(ct_metrics_log *m, const struct ct_run_summary *s) CT_MUST_CHECK;
/* Writes the `end` line of a run that failed, with the status and message of the current error chain. The chain is not
 * changed. */
void ct_metrics_failed(ct_metrics_log *m, uint64_t step, uint32_t epoch, double seconds);
/* Redraws the live line at most 10 times a second. Does nothing on a plain console. It is cheap enough to be called in
 * each step, and allocates nothing. */
void ct_metrics_progress(ct_metrics_log *m, const struct ct_progress *p);
/* Write a line of the kind "straggler" or "nan". Take fields. */
enum ct_status ct_metrics_straggler(ct_metrics_log *m, ct_json *fields) CT_MUST_CHECK;
enum ct_status ct_metrics_nan(ct_metrics_log *m, ct_json *fields) CT_MUST_CHECK;
/* What only TensorBoard shows. Call these only if ct_metrics_has_board returns true. Tags have at most 127 bytes. */
struct ct_tb_image {
	const char *png;
	size_t n;
	int h, w;
};
bool ct_metrics_has_board(const ct_metrics_log *m);
enum ct_status ct_metrics_image(ct_metrics_log *m, uint64_t step, const char *tag,
				const struct ct_tb_image *image) CT_MUST_CHECK;
/* Writes a histogram with 64 bins of equal width. Of more than 1,048,576 values, it counts one of k, at equal
 * distances. Values that are not finite are ignored. */
enum ct_status ct_metrics_histogram(ct_metrics_log *m, uint64_t step, const char *tag, const float *v,
				    size_t n) CT_MUST_CHECK;
/* Writes the hyperparameters, lines of the form "key=value". ct_metrics_end and ct_metrics_failed write the end of the
 * session. */
enum ct_status ct_metrics_hparams(ct_metrics_log *m, const char *lines) CT_MUST_CHECK;
/* Prints a line of text above the live line, such as the start banner, on the console only. */
void ct_metrics_say(ct_metrics_log *m, const char *fmt, ...) CT_PRINTF(2, 3);

#endif
