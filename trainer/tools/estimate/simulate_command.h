/* `ctrain plan --simulate`: predicts the step time on clusters. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_COMMAND_H
#define CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_COMMAND_H

#include "trainer/config/config.h"

enum { CT_SIMULATE_STEPS = 50 }; /* steps to measure if the user does not choose */

/* As the user wrote them; NULL if not given. docs/SCALING.md describes them. */
struct ct_simulate_options {
	const char *shapes;  /* of the clusters, for example 1x8..16x8 */
	const char *step_ms; /* times of a step; NULL: measure them */
	const char *link_intra, *link_inter, *allreduce;
};

/* Measures `steps` steps of the config unless o->step_ms is given, and prints the prediction. Changes the batch size in
 * cfg. */
enum ct_status ct_simulate(const struct ct_simulate_options *o, int64_t steps, struct ct_config *cfg,
			   bool json) CT_MUST_CHECK;

#endif
