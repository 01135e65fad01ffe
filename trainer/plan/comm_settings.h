/* The settings of the libraries that sum gradients, in the environment (dist/settings/settings.h). */
#ifndef CT_TRAINER_PLAN_COMM_SETTINGS_H
#define CT_TRAINER_PLAN_COMM_SETTINGS_H

#include "dist/rendezvous/rendezvous.h"
#include "dist/settings/nccl_log.h"
#include "trainer/config/config.h"

/* Fails with CT_CONFIG if a setting of a library that a run of `world` ranks may use is wrong on this host. */
enum ct_status ct_plan_check_comm_settings(const struct ct_config *c, int world) CT_MUST_CHECK;
/* Does the same for a rank of the run, and logs the settings. */
enum ct_status ct_plan_use_comm_settings(const struct ct_config *c, const struct ct_identity *id) CT_MUST_CHECK;
/* Returns true if a run of `world` ranks uses NCCL, or if `auto` may choose it. */
bool ct_plan_may_use_nccl(const struct ct_config *c, int world);
/* Calls ct_nccl_log_open if a run of `world` ranks may use NCCL. */
enum ct_status ct_plan_open_nccl_log(const struct ct_config *c, int world, ct_nccl_log **out) CT_MUST_CHECK;

/* Returns dist.port_range. */
struct ct_port_range ct_plan_port_range(const struct ct_config *c);

#endif
