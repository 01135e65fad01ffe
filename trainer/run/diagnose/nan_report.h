/* The report after a loss or a gradient that is not finite: which layer was first, in which rank and sample, and what
 * the last steps before were like. An ordinary step costs nothing: after the failure, each rank repeats the passes of
 * its batch, with the weights as they are, and examines the values that the engine has kept. */
#ifndef CT_TRAINER_RUN_DIAGNOSE_NAN_REPORT_H
#define CT_TRAINER_RUN_DIAGNOSE_NAN_REPORT_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/step/step.h"

enum { CT_NAN_STEPS = 16 };

/* The last steps. A zero-initialized struct is empty. */
struct ct_nan_history {
	struct ct_nan_step {
		uint64_t step; /* counted from 1 */
		double loss, lr;
		double grad_norm, weight_norm; /* -1: not computed */
	} steps[CT_NAN_STEPS];
	uint64_t n;
};

void ct_nan_note(struct ct_nan_history *h, const struct ct_step_result *r);
/* Call it on all ranks, when ct_outcome_check has failed with CT_NUMERIC: completes the current error with what was
 * found, and writes RUN/nan.json and a line of metrics.jsonl on rank 0, whose metrics is not NULL. Returns CT_NUMERIC.
 */
enum ct_status ct_nan_report(struct ct_session *s, ct_stepper *p, const struct ct_nan_history *h,
			     const struct ct_step_result *r, ct_metrics_log *metrics) CT_MUST_CHECK;
/* Removes the report of an earlier failure, which would be misleading. */
enum ct_status ct_nan_report_remove(const char *run_dir) CT_MUST_CHECK;

#endif
