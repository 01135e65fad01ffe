/* Every rank gets the same result, notes it in its own copy of the state and thus makes the same decisions without
 * further messages. The first evaluation is always the best so far, unless its loss is NaN. Rank 0 keeps the
 * predictions of the best evaluation in memory and writes them once at the end of the run. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/loop/train_eval.h"

#include <math.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/run/evaluation/eval_files.h"
#include "trainer/run/loop/board.h"
#include "trainer/run/loop/patience.h"

/* Returns true if the result is better than all earlier ones. */
static bool note(struct ct_session *s, const struct ct_eval_result *r)
{
	struct ct_train_state *t = &s->state;
	bool better = s->plan.regression ? r->loss < t->best_loss : r->top1 > t->best_top1;
	bool best = !isnan(r->loss) && (t->best_step == 0 || better);

	if (best) {
		t->best_top1 = r->top1;
		t->best_loss = r->loss;
		t->best_step = t->step;
	}
	t->last_top1 = r->top1;
	t->last_loss = r->loss;
	return best;
}

/* Takes ownership of what *p contains. */
static void keep_best(struct ct_train_eval *e, bool best, struct ct_predictions *p)
{
	const bool keep = best && e->metrics;

	ct_predictions_release(keep ? &e->best : p);
	if (keep)
		e->best = *p;
}

enum ct_status ct_train_eval_run(struct ct_train_eval *e, void (*progress)(void *user, double done), void *user,
				 bool *best)
{
	struct ct_session *s = e->s;
	struct ct_eval_result r;
	struct ct_predictions p = {0};

	ct_session_phase(s, CT_RANK_EVALUATING, s->state.step);
	enum ct_status st = ct_evaluate(s, e->metrics ? progress : NULL, user, s->cfg->log.report ? &p : NULL, &r);
	if (st < 0) {
		ct_predictions_release(&p);
		return st;
	}
	*best = note(s, &r);
	keep_best(e, *best, &p);
	ct_patience_note(s, &r, e->metrics);
	if (!e->metrics)
		return CT_OK;
	return ct_metrics_eval(e->metrics, &(struct ct_eval_metrics){
						   .epoch = (uint32_t)((s->state.step - 1) / s->plan.steps_per_epoch),
						   .step = s->state.step,
						   .count = r.count,
						   .loss = r.loss,
						   .top1 = r.top1,
						   .top5 = r.top5,
						   .seconds = r.seconds,
						   .bad_samples = r.bad});
}

bool ct_train_eval_reached_target(const struct ct_session *s)
{
	return s->cfg->train.target_top1 > 0 && s->state.last_top1 >= s->cfg->train.target_top1;
}

void ct_train_eval_write(const struct ct_train_eval *e)
{
	char *dir;

	if (!e->metrics || e->best.n == 0)
		return;
	if (!(dir = ct_path_join(e->s->run.dir, "eval")) ||
	    ct_eval_files_write(dir, &e->best, e->s->data.val, NULL) < 0) {
		CT_WARN("cannot write the predictions of the evaluation: %s", ct_error_message());
		ct_error_clear();
	}
	ct_free(dir);
	ct_board_mistakes(e->s, e->metrics, &e->best);
}

void ct_train_eval_release(struct ct_train_eval *e)
{
	ct_predictions_release(&e->best);
}
