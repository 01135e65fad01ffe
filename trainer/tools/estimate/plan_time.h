/* How long a training takes, for `ctrain plan`. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_PLAN_TIME_H
#define CT_TRAINER_TOOLS_ESTIMATE_PLAN_TIME_H

#include "base/json.h"
#include "trainer/plan/run_plan.h"

enum ct__time_source {
	CT__TIME_UNKNOWN,   /* see `why` */
	CT__TIME_MEASURED,  /* steps of the planned batch on this host */
	CT__TIME_PREDICTED, /* from measured steps of a smaller batch, or of synthetic samples */
	CT__TIME_GIVEN      /* by --step-ms */
};

struct ct_plan_time {
	enum ct__time_source source;
	char why[256];
	double step_s; /* in the first epoch */
	double epoch_s, evaluation_s,
		all_s; /* epoch_s: the first epoch; evaluation_s: one of them; all_s: everything */
	uint64_t n_evaluations;
	int64_t measured_steps;
	uint32_t measured_rows, rows; /* samples per rank and micro-batch: in the measurement, and as planned */
	int threads;                  /* of the rank that was measured */
	bool synthetic;               /* measured with synthetic samples */
};

struct ct__time_request {
	const struct ct_config *cfg;
	const struct ct_run_plan *plan;
	const struct ct_dataset_info *train;
	int local, world;          /* ranks on this host, and on all hosts */
	double flops, val_flops;   /* of the forward pass, per sample of training and of evaluation */
	const char *step_ms;       /* the value of --step-ms, or NULL */
	struct ct_config *measure; /* the same config, which is changed for the measurement; NULL: do not measure */
	bool assumed;              /* there are no data */
};

/* Parses the value of --step-ms: the milliseconds of the forward pass, the backward pass and the update. */
enum ct_status ct_parse_step_ms(const char *text, double ms[3]) CT_MUST_CHECK;
/* Runs a few steps on one rank, for about a second, unless --step-ms gives their time. A failed measurement is no
 * error. */
enum ct_status ct_plan_time(const struct ct__time_request *r, struct ct_plan_time *out) CT_MUST_CHECK;
void ct_plan_time_print(const struct ct__time_request *r, const struct ct_plan_time *t);
ct_json *ct_plan_time_json(const struct ct_plan_time *t);

#endif
