/* `ctrain plan --simulate`: predicts the step time on clusters. */
#ifndef CT_TRAINER_COMMANDS_SIMULATE_IMPL_H
#define CT_TRAINER_COMMANDS_SIMULATE_IMPL_H

#include "trainer/commands/cli.h"

enum ct_status ct__simulate(const struct ct_cli *cli) CT_MUST_CHECK;
/* Fails with CT_USAGE if an option that needs --simulate is given without it. */
enum ct_status ct__simulate_check_options(const struct ct_cli *cli) CT_MUST_CHECK;

#endif
