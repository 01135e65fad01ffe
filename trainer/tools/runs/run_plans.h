/* How the plans by which two runs computed their models differ (nn/net_plan.h), for `ctrain compare`. */
#ifndef CT_TRAINER_TOOLS_RUNS_RUN_PLANS_H
#define CT_TRAINER_TOOLS_RUNS_RUN_PLANS_H

#include "base/json.h"
#include "nn/net_plan.h"

struct ct_run_plans {
	bool known; /* both runs have a plan.txt, which runs on GPUs do not have; false: the other members are zero */
	struct ct_net_plan plan[2];
	const char **convs; /* [n_convs] that the plans do not compute by the same methods; names borrowed from plan */
	int n_convs;
};

/* Reads the plans of the runs in two directories. Fails with CT_CONFIG if one of them is not valid. Release *out even
 * if this function fails. */
enum ct_status ct_run_plans_load(const char *dir_a, const char *dir_b, struct ct_run_plans *out) CT_MUST_CHECK;
void ct_run_plans_release(struct ct_run_plans *p);
bool ct_run_plans_differ(const struct ct_run_plans *p);
/* Appends a sentence that states how the plans differ, or nothing if they do not. a, b: names of the runs. */
void ct_run_plans_describe(const struct ct_run_plans *p, const char *a, const char *b, struct ct_str *out);
/* Sets members of an object: same_plan, plan_layouts and plan_convs (the convolutions that differ). Sets none if a run
 * has no plan. */
void ct_run_plans_set_json(const struct ct_run_plans *p, ct_json *object);

#endif
