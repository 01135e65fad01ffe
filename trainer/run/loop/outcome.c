#define CT_LOG_COMPONENT "train"
#include "trainer/run/loop/outcome.h"

#include <math.h>

#include "base/log.h"

static void set_error(const struct ct_session *s, const struct ct_step_result *r)
{
	const unsigned long long step = (unsigned long long)r->request.step + 1;
	const unsigned epoch = s->state.epoch + 1;

	if (r->outcome == CT_UPDATE_BAD_NORM)
		CT_FAIL(CT_NUMERIC,
			"the norm of the gradient is not finite at step %llu (epoch %u); the weights were not updated in this step",
			step, epoch);
	else if (r->outcome == CT_UPDATE_BAD_SCALE)
		CT_FAIL(CT_NUMERIC,
			"the gradient is not finite at step %llu (epoch %u), even with a loss scale of %g; the weights were not updated in this step",
			step, epoch, 2 * r->loss_scale);
	else
		CT_FAIL(CT_NUMERIC, "the loss is %s at step %llu (epoch %u); the weights were not updated in this step",
			isnan(r->loss_sum) ? "nan"
			: r->loss_sum < 0  ? "-inf"
					   : "inf",
			step, epoch);
}

enum ct_status ct_outcome_check(const struct ct_session *s, const struct ct_step_result *r)
{
	if (r->outcome == CT_UPDATE_DONE || r->outcome == CT_UPDATE_SKIPPED)
		return CT_OK;
	const bool half = s->plan.net.precision == CT_PRECISION_FP16;
	set_error(s, r);
	ct_error_hint(
		"lower optim.lr (now %g), increase schedule.warmup_epochs, or set optim.clip_norm%s; the earlier checkpoints in %s are intact",
		s->plan.lr,
		half                                ? ", or use precision=bf16"
		: s->plan.net.reduce_type == CT_F16 ? ", or use dist.reduce_dtype=bf16, which has the range of fp32"
						    : "",
		s->run.dir);
	return CT_NUMERIC;
}

void ct_outcome_note_scale(struct ct_session *s, ct_metrics_log *metrics, const struct ct_step_result *r)
{
	static const char text[] =
		"step %llu  the gradient is not finite: its update was skipped (%llu so far), the loss scale is now %g";
	const unsigned long long step = (unsigned long long)r->request.step + 1,
				 n = (unsigned long long)r->skipped_updates;

	if (r->loss_scale == 0)
		return;
	s->state.loss_scale = r->loss_scale;
	s->state.loss_scale_steps = r->loss_scale_steps;
	s->state.skipped_updates = r->skipped_updates;
	if (r->outcome != CT_UPDATE_SKIPPED || !metrics)
		return;
	CT_INFO(text, step, n, r->loss_scale);
	ct_metrics_say(metrics, text, step, n, r->loss_scale);
}
