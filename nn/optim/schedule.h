/* Learning-rate schedules: pure functions of the optimizer step (0 = first update). Formulas are the closed forms of
 * torch.optim.lr_scheduler. With warm-up, the main schedule counts its steps from the end of the warm-up, as
 * SequentialLR(LinearLR, schedule) does; after total_steps the learning rate stays at its last value. */
#ifndef CT_NN_OPTIM_SCHEDULE_H
#define CT_NN_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "base/choice.h"
#include "base/status.h"

#define CT_SCHEDULES(X)                 \
	X(CT_LR_CONSTANT, "constant")   \
	X(CT_LR_STEP, "step")           \
	X(CT_LR_MULTISTEP, "multistep") \
	X(CT_LR_COSINE, "cosine")       \
	X(CT_LR_POLY, "poly")           \
	X(CT_LR_ONE_CYCLE, "one_cycle")
enum ct_schedule_kind { CT_SCHEDULES(CT_CHOICE_ID) };

#define CT_MAX_MILESTONES 16

struct ct_schedule {
	enum ct_schedule_kind kind;
	double base_lr;        /* after warm-up; one-cycle: the maximum */
	uint64_t total_steps;  /* cosine, poly, one-cycle end here (warm-up included) */
	uint64_t warmup_steps; /* linear from warmup_start*base_lr; the main schedule covers the remaining steps */
	double warmup_start;   /* factor of the first step, for example 0.1 */
	double min_lr;         /* cosine, poly: the end value */
	double gamma;          /* step, multistep */
	uint64_t step_size;    /* step: interval in steps */
	uint64_t milestones[CT_MAX_MILESTONES]; /* multistep: steps after the warm-up, in increasing order */
	int n_milestones;
	double power;                                   /* poly */
	double pct_start, div_factor, final_div_factor; /* one-cycle, with cosine annealing, PyTorch's default */
};

double ct_schedule_lr(const struct ct_schedule *s, uint64_t step);

#endif
