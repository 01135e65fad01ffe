/* Runs whose number of nodes may change (launch.nodes: MIN..MAX). */
#ifndef CT_TRAINER_PLAN_ELASTIC_H
#define CT_TRAINER_PLAN_ELASTIC_H

#include "trainer/config/config.h"

bool ct_plan_is_elastic(const struct ct_config *c);
/* Returns true if batch.global can be divided among `world` ranks. */
bool ct_plan_divides(const struct ct_config *c, uint32_t world);
/* Gets the number of micro-batches of a step, which is train.accumulate if the number of nodes is fixed. Otherwise,
 * each rank has more samples if there are fewer ranks; the result is the smallest number, from train.accumulate, with
 * which a micro-batch is not larger than with all nodes. */
enum ct_status ct_plan_accumulate(const struct ct_config *c, uint32_t world, uint64_t *out) CT_MUST_CHECK;
/* Fails with CT_CONFIG if batch.global cannot be divided among the ranks of any possible number of nodes. */
enum ct_status ct_plan_check_elastic(const struct ct_config *c) CT_MUST_CHECK;

#endif
