/* The decisions are made from results that are the same on all ranks, and their state is saved in checkpoints, so that
 * a resumed run decides as an uninterrupted one. early_n_since is 0 before the first value that is not NaN; afterwards
 * it is one more than the number of evaluations since the best value. A later NaN never counts as an improvement.
 * Plateaus are not noted during the warmup, when the learning rate rises in any case. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/loop/patience.h"

#include <math.h>

#include "base/log.h"

static void note_plateau(struct ct_session *s, const struct ct_eval_result *r, ct_metrics_log *metrics)
{
	const struct ct_plateau_opts *o = &s->plan.plateau;
	struct ct_train_state *t = &s->state;
	struct ct_plateau p = {t->lr_scale, t->plateau_best, t->plateau_n_since, t->plateau_cooldown};
	const bool drops = ct_plateau_note(&p, o, s->plan.lr, o->larger ? r->top1 : r->loss);

	t->lr_scale = p.scale;
	t->plateau_best = p.best;
	t->plateau_n_since = p.n_since;
	t->plateau_cooldown = p.cooldown;
	if (!drops || !metrics)
		return;
	const char *metric = ct_config_choice(s->cfg, "schedule.metric");
	const double lr = s->plan.lr * t->lr_scale;
	CT_INFO("the evaluation %s has not improved: the learning rate is now %g", metric, lr);
	ct_metrics_say(metrics, "step %llu  the evaluation %s has not improved: the learning rate is now %g",
		       (unsigned long long)t->step, metric, lr);
}

static void note_early_stop(struct ct_session *s, const struct ct_eval_result *r)
{
	const struct ct_config *c = s->cfg;
	struct ct_train_state *t = &s->state;
	const bool larger = c->train.early_stop.metric == CT_CFG_METRIC_TOP1;
	const double value = larger ? r->top1 : r->loss, gain = larger ? value - t->early_best : t->early_best - value;

	if (t->early_n_since == 0 ? !isnan(value) : gain > c->train.early_stop.min_delta) {
		t->early_best = value;
		t->early_n_since = 1;
	} else if (t->early_n_since > 0) {
		t->early_n_since++;
	}
}

void ct_patience_note(struct ct_session *s, const struct ct_eval_result *r, ct_metrics_log *metrics)
{
	if (s->cfg->schedule.name == CT_LR_PLATEAU && s->state.step >= s->plan.schedule.warmup_steps)
		note_plateau(s, r, metrics);
	if (s->cfg->train.early_stop.patience > 0)
		note_early_stop(s, r);
}

double ct_patience_lr(const struct ct_session *s, uint64_t step)
{
	return ct_schedule_lr(&s->plan.schedule, step) * s->state.lr_scale;
}

bool ct_patience_is_over(const struct ct_session *s)
{
	return s->cfg->train.early_stop.patience > 0 &&
	       (int64_t)s->state.early_n_since > s->cfg->train.early_stop.patience;
}
