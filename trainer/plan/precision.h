/* The choice of `precision: auto`. */
#ifndef CT_TRAINER_PLAN_PRECISION_H
#define CT_TRAINER_PLAN_PRECISION_H

#include "nn/engine.h"
#include "trainer/config/config.h"

/* Returns the precision to compute in, which is never AUTO. For AUTO, it is BF16 on GPUs, because all GPUs that ctrain
 * supports have Tensor Cores for it, and on processors with AMX; otherwise FP32. avx512_bf16 alone does not suffice,
 * because its instructions are not faster than those for fp32 on all processors that have them. The function opens no
 * device, so the launcher and all ranks of one host come to the same result. */
enum ct_precision ct_plan_precision(const struct ct_config *c);
/* If the config says `auto`, replaces this by `stored`, the precision with which the run began, or, if that is NULL, by
 * ct_plan_precision. The config's digest, its dump and a resume then depend on the choice. The origin of the key gives
 * the reason. Fails with CT_DATA if `stored` is not the name of a precision. */
enum ct_status ct_plan_settle_precision(struct ct_config *c, const char *stored) CT_MUST_CHECK;
/* Returns a note on the precision of a config for the user: the reason for the choice or, with fp32 on a GPU, that this
 * is slow. NULL: there is nothing to say. The result is borrowed from the config or a string literal. */
const char *ct_plan_precision_note(const struct ct_config *c);

#endif
