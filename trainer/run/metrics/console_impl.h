/* The parts of a live console. */
#ifndef CT_TRAINER_RUN_METRICS_CONSOLE_IMPL_H
#define CT_TRAINER_RUN_METRICS_CONSOLE_IMPL_H

#include "trainer/run/metrics/metrics.h"

struct ct__console_style {
	bool colors, utf8;
	bool one_line; /* there is room for one line only */
};

/* Appends the live lines, separated by a line feed, each with fewer than `width` columns. Fields that do not fit are
 * omitted, the least important ones first. The first line has a bar if there is room. spark may be NULL. */
void ct__console_status(const struct ct_progress *p, const struct ct_spark *spark, struct ct__console_style style,
			int width, struct ct_str *out);
/* Appends the line of an epoch on a live console. e or v may be NULL. best: the accuracy is the best one so far. */
void ct__console_epoch_line(const struct ct_epoch_metrics *e, const struct ct_eval_metrics *v, bool best,
			    struct ct__console_style style, int width, struct ct_str *out);

/* Keeps an epoch until its evaluation, the next training step or the end, whatever comes first. Copies e. */
void ct__console_hold_epoch(ct_console *c, const struct ct_epoch_metrics *e);
/* Prints the line of the epoch that was kept, and of its evaluation. */
void ct__console_end_epoch(ct_console *c, const struct ct_eval_metrics *v);

#endif
