/* Learning-rate schedules. The learning rate is a pure function of the optimizer step (0 is the first update), except
 * with plateau, which also depends on evaluations (struct ct_plateau). The formulas are the closed forms of
 * torch.optim.lr_scheduler. With warm-up, the main schedule counts its steps from the end of the warm-up, as
 * SequentialLR(LinearLR, schedule) does. After total_steps, the learning rate keeps its last value. */
#ifndef CT_NN_OPTIM_LR_SCHEDULE_H
#define CT_NN_OPTIM_LR_SCHEDULE_H

#include <stdint.h>

#include "base/choice.h"
#include "base/status.h"

#define CT_SCHEDULES(X)                 \
	X(CT_LR_CONSTANT, "constant")   \
	X(CT_LR_STEP, "step")           \
	X(CT_LR_MULTISTEP, "multistep") \
	X(CT_LR_COSINE, "cosine")       \
	X(CT_LR_POLY, "poly")           \
	X(CT_LR_ONE_CYCLE, "one_cycle") \
	X(CT_LR_PLATEAU, "plateau")
enum ct_schedule_kind { CT_SCHEDULES(CT_CHOICE_ID) };

#define CT_MAX_MILESTONES 16

struct ct_schedule {
	enum ct_schedule_kind kind;
	double base_lr;                         /* after warm-up; one-cycle: the maximum */
	uint64_t total_steps;                   /* cosine, poly and one-cycle end here; includes the warm-up */
	uint64_t warmup_steps;                  /* the learning rate rises linearly from warmup_start*base_lr */
	double warmup_start;                    /* factor in the first step, for example 0.1 */
	double min_lr;                          /* cosine, poly: the final value */
	double gamma;                           /* step, multistep: factor of each decay */
	uint64_t step_size;                     /* step: number of steps between decays */
	uint64_t milestones[CT_MAX_MILESTONES]; /* multistep: steps after the warm-up, in increasing order */
	int n_milestones;
	double power; /* poly */
	double pct_start, div_factor,
		final_div_factor; /* one-cycle; the annealing is cosine, which is PyTorch's default */
};

/* With plateau, the result is to be multiplied by the scale of the state below. */
double ct_schedule_lr(const struct ct_schedule *s, uint64_t step);

/* torch.optim.lr_scheduler.ReduceLROnPlateau with a relative threshold. */
struct ct_plateau_opts {
	double gamma, min_lr; /* the learning rate becomes the larger of gamma * lr and min_lr */
	double threshold;     /* an evaluation is better if it improves the best one by more than this fraction of it */
	uint32_t patience; /* so many evaluations in a row that are not better change nothing; the next one reduces */
	uint32_t cooldown; /* after a reduction, so many evaluations do not count */
	bool larger;       /* larger values are better */
};
/* Initially, scale is 1, and the other members are 0. */
struct ct_plateau {
	double scale;               /* of the learning rate */
	double best;                /* valid if n_since is above 0 */
	uint32_t n_since, cooldown; /* n_since: evaluations since the best one, including it */
};
/* Notes the result of an evaluation. Returns true if it reduces the scale. */
bool ct_plateau_note(struct ct_plateau *p, const struct ct_plateau_opts *o, double base_lr, double value);

#endif
