/* Describes the model of a config for the metadata of weights files (infer/description.h). */
#ifndef CT_TRAINER_PLAN_DESCRIBE_H
#define CT_TRAINER_PLAN_DESCRIBE_H

#include "infer/description.h"
#include "trainer/plan/run_plan.h"

/* `info` is the data set, or what ct_plan_foresee_data knows of it; p is the plan for it. The description has no class
 * names. Release *out even if this function fails. */
enum ct_status ct_plan_describe(const struct ct_config *c, const struct ct_dataset_info *info,
				const struct ct_run_plan *p, struct ct_description *out) CT_MUST_CHECK;
/* Appends the JSON text of the description, with the class names of the data set, if it has any. */
enum ct_status ct_plan_describe_data(const struct ct_config *c, const ct_dataset *data, const struct ct_run_plan *p,
				     struct ct_str *out) CT_MUST_CHECK;

#endif
