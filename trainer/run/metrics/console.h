/* The terminal output of a run, written by rank 0 or by `ctrain watch`: text lines and the final table on standard
 * output, and two live lines on standard error. The live lines are redrawn in place and fit into the current width of
 * the terminal. The cursor stays at their start, so that they can be erased completely after a resize. Write errors are
 * ignored, so closing the terminal does not end the run. Only one thread may use a console. */
#ifndef CT_TRAINER_RUN_METRICS_CONSOLE_H
#define CT_TRAINER_RUN_METRICS_CONSOLE_H

#include <stdarg.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/process/position.h"
#include "trainer/config/choices.h"
#include "trainer/run/metrics/spark.h"

typedef struct ct_console ct_console;

struct ct_epoch_metrics;
struct ct_eval_metrics;
struct ct_step_metrics;

struct ct_progress {                /* for the live lines */
	uint64_t step, total_steps; /* total 0: unknown */
	uint32_t epoch, epochs;
	double loss; /* NaN before the first step */
	double images_per_sec, eta_seconds;
	double best_top1;         /* 0 or less: unknown */
	double share[6];          /* as in struct ct_run_summary; 0: unknown */
	uint64_t memory_bytes;    /* of this process; 0: unknown */
	enum ct_rank_phase phase; /* shown unless it is training, or before it */
};

struct ct_run_summary {
	const char *status; /* ct_run_end_name */
	uint64_t step, images;
	uint64_t steps_per_epoch; /* 0: unknown */
	uint32_t epoch;
	double seconds, best_top1 /* < 0: none */, last_loss /* NaN if no step was done */, startup_seconds;
	double images_per_sec; /* over the steps of this process, without evaluation and saving; 0 if there were no
				  steps */
	const char *weights_digest, *checkpoint; /* "": none */
	double share[6]; /* shares of the step time, which sum to 1: data, forward, backward, exposed communication,
			    optimizer, other */
};

/* mode is live, plain (one line for each line of metrics.jsonl), off, or auto: live if standard error is a terminal
 * that can move the cursor, otherwise plain. While a console exists, the log erases the live line before it prints
 * (ct_log_set_before), so a process may have only one console at a time. */
enum ct_status ct_console_create(enum ct_cfg_console mode, ct_console **out) CT_MUST_CHECK;
void ct_console_destroy(ct_console *c); /* erases the live line */
/* Shows what the run is doing before training begins, for example "reading data": as the live line, or as a line. The
 * functions below do nothing if c is NULL. */
void ct_console_stage(ct_console *c, const char *fmt, ...) CT_PRINTF(2, 3);
/* Does the same for a count that changes often, such as "tuning convolutions 3/40", on a live console only. */
void ct_console_count(ct_console *c, const char *what, size_t done, size_t total);
bool ct_console_is_live(const ct_console *c);
/* Redraws the live lines, at most 10 times a second unless the phase has changed. Allocates nothing after a few calls.
 */
void ct_console_progress(ct_console *c, const struct ct_progress *p);
/* Print lines about a step, an epoch and an evaluation. A live console prints no steps, and one line for an epoch and
 * the evaluation that follows it. */
void ct_console_step(ct_console *c, const struct ct_step_metrics *s);
void ct_console_epoch(ct_console *c, const struct ct_epoch_metrics *e);
void ct_console_eval(ct_console *c, const struct ct_eval_metrics *e);
/* Prints a line above the live line; adds the newline. */
void ct_console_say(ct_console *c, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_console_sayv(ct_console *c, const char *fmt, va_list ap);
/* Erases the live line and prints the final table. */
void ct_console_summary(ct_console *c, const struct ct_run_summary *s);

/* Pure formatting functions. */

void ct_console_span(double seconds, char *out,
		     size_t size); /* "0.42s", "7s", "3m07s", "2h05m" or "3d04h"; "?" if not finite */
void ct_console_rate(double per_second, char *out, size_t size);    /* "312" "4.52k" "1.20M" */
const char *ct_console_grouped(uint64_t v, char *buf, size_t size); /* 60000: "60,000" */
enum ct_status ct_console_table(const struct ct_run_summary *s, bool bold, struct ct_str *out) CT_MUST_CHECK;

#endif
