/* The part of `ctrain plan` that shows the reduce buckets. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_PLAN_BUCKETS_H
#define CT_TRAINER_TOOLS_ESTIMATE_PLAN_BUCKETS_H

#include "base/json.h"
#include "trainer/plan/run_plan.h"

struct planned_buckets { /* all borrowed */
	const struct ct_config *cfg;
	const ct_net *net;
	const double *ready; /* [n_slices] from ct_plan_ready */
	const struct ct_bucket *buckets;
	int n;
	bool reduced; /* there are several ranks */
};

/* Prints a line for each bucket; if there are many, a summary replaces those in the middle. */
void ct_plan_print_buckets(const struct planned_buckets *p);
/* Returns the same as a JSON object with all buckets. */
ct_json *ct_plan_buckets_json(const struct planned_buckets *p);

#endif
