/* A learning rate is computed from the step alone, so a resumed run needs no state. The main schedule counts from the
 * end of the warm-up, and `done` is its fraction in [0, 1]. In one-cycle, as in PyTorch, both phases end on steps: the
 * maximum at pct_start * total - 1 and the minimum at total - 1.
 *
 * Plateau is the exception: its scale depends on past evaluations, so the caller keeps it as a state. n_since counts
 * from 1 at the best evaluation, so that 0 means that there was none yet. A NaN is never the best one, and never
 * better, because all comparisons with it are false. */
#include "nn/optim/lr_schedule.h"

#include <math.h>

static double cosine_between(double from, double to, double fraction)
{
	return to + (from - to) / 2 * (1 + cos(3.14159265358979323846 * fraction));
}

static double multistep(const struct ct_schedule *s, double t)
{
	int passed = 0;

	while (passed < s->n_milestones && t >= (double)s->milestones[passed])
		passed++;
	return s->base_lr * pow(s->gamma, passed);
}

/* torch.optim.lr_scheduler.OneCycleLR with two phases. */
static double one_cycle(const struct ct_schedule *s, double t, double total)
{
	double initial = s->base_lr / s->div_factor, final = initial / s->final_div_factor;
	double peak = s->pct_start * total - 1, end = total - 1;

	if (t > end)
		return final;
	if (t < peak)
		return cosine_between(initial, s->base_lr, t / peak);
	return end > peak ? cosine_between(s->base_lr, final, (t - peak) / (end - peak)) : s->base_lr;
}

double ct_schedule_lr(const struct ct_schedule *s, uint64_t step)
{
	if (step < s->warmup_steps)
		return s->base_lr * (s->warmup_start + (1 - s->warmup_start) * (double)step / (double)s->warmup_steps);

	double t = (double)(step - s->warmup_steps);
	double total = s->total_steps > s->warmup_steps ? (double)(s->total_steps - s->warmup_steps) : 1;
	double done = t < total ? t / total : 1;

	switch (s->kind) {
	case CT_LR_CONSTANT:
	case CT_LR_PLATEAU:
		return s->base_lr;
	case CT_LR_STEP:
		return s->step_size ? s->base_lr * pow(s->gamma, floor(t / (double)s->step_size)) : s->base_lr;
	case CT_LR_MULTISTEP:
		return multistep(s, t);
	case CT_LR_COSINE:
		return cosine_between(s->base_lr, s->min_lr, done);
	case CT_LR_POLY:
		return s->min_lr + (s->base_lr - s->min_lr) * pow(1 - done, s->power);
	case CT_LR_ONE_CYCLE:
		return one_cycle(s, t, total);
	}
	return s->base_lr;
}

bool ct_plateau_note(struct ct_plateau *p, const struct ct_plateau_opts *o, double base_lr, double value)
{
	const double limit = p->best * (o->larger ? 1 + o->threshold : 1 - o->threshold);
	const bool first = p->n_since == 0 && !isnan(value);

	if (first || (p->n_since > 0 && (o->larger ? value > limit : value < limit))) {
		p->best = value;
		p->n_since = 1;
	} else if (p->n_since > 0) {
		p->n_since++;
	}
	if (p->cooldown > 0) {
		p->cooldown--;
		p->n_since = p->n_since > 0 ? 1 : 0;
	}
	if (p->n_since <= o->patience + 1)
		return false;
	const double reduced = fmax(p->scale * o->gamma, o->min_lr / base_lr);
	const bool changes = base_lr * (p->scale - reduced) > 1e-8; /* PyTorch's eps */
	p->scale = changes ? reduced : p->scale;
	p->cooldown = o->cooldown;
	p->n_since = 1;
	return changes;
}
