/* `ctrain plan --simulate`: predicts the step time on clusters. */
#ifndef CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_COMMAND_H
#define CT_TRAINER_TOOLS_ESTIMATE_SIMULATE_COMMAND_H

#include "trainer/tools/cli/cli.h"

enum ct_status ct_simulate(const struct ct_cli *cli) CT_MUST_CHECK;
/* Fails with CT_USAGE if an option that needs --simulate is given without it. */
enum ct_status ct_simulate_check_options(const struct ct_cli *cli) CT_MUST_CHECK;

#endif
