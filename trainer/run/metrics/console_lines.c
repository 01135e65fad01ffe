/* The lines about steps, epochs and evaluations on the console. */
#include <stdio.h>
#include <string.h>

#include "trainer/run/metrics/console_impl.h"

void ct_console_step(ct_console *c, const struct ct_step_metrics *s)
{
	char rate[16];

	if (ct_console_is_live(c))
		return;
	ct_console_rate(s->images_per_sec, rate, sizeof(rate));
	ct_console_say(c, "epoch %u  step %llu  loss %.4g  lr %.4g  %s img/s", s->epoch + 1,
		       (unsigned long long)s->step, s->loss, s->lr, rate);
}

static void say_epoch(ct_console *c, const struct ct_epoch_metrics *e)
{
	char span[16], timed[48] = "";

	ct_console_span(e->seconds, span, sizeof(span));
	if (e->timed < e->images)
		snprintf(timed, sizeof(timed), ", the last %llu", (unsigned long long)e->timed);
	ct_console_say(c, "epoch %u  step %llu  training loss %.4g  %llu images%s in %s", e->epoch + 1,
		       (unsigned long long)e->step, e->train_loss, (unsigned long long)e->images, timed, span);
}

void ct_console_epoch(ct_console *c, const struct ct_epoch_metrics *e)
{
	if (ct_console_is_live(c))
		ct__console_hold_epoch(c, e);
	else
		say_epoch(c, e);
	if (e->bad_samples > 0)
		ct_console_say(c, "epoch %u  %llu unreadable samples were replaced: see the logs", e->epoch + 1,
			       (unsigned long long)e->bad_samples);
	if (e->damaged > 0)
		ct_console_say(
			c,
			"epoch %u  %llu images are damaged and were used as far as they could be decoded: `ctrain "
			"data check` lists them",
			e->epoch + 1, (unsigned long long)e->damaged);
	if (e->verdict[0] && !ct_console_is_live(c))
		ct_console_say(c, "epoch %u  %s", e->epoch + 1, e->verdict);
}

void ct_console_eval(ct_console *c, const struct ct_eval_metrics *e)
{
	char span[16], bad[56] = "";

	if (ct_console_is_live(c)) {
		ct__console_end_epoch(c, e);
		if (e->bad_samples > 0)
			ct_console_say(c, "epoch %u  %llu unreadable samples were skipped in the evaluation",
				       e->epoch + 1, (unsigned long long)e->bad_samples);
		return;
	}
	ct_console_span(e->seconds, span, sizeof(span));
	if (e->bad_samples > 0)
		snprintf(bad, sizeof(bad), ", %llu unreadable samples skipped", (unsigned long long)e->bad_samples);
	if (e->top1 >= 0)
		ct_console_say(c,
			       "epoch %u  step %llu  evaluation loss %.4g  top1 %.4f  top5 %.4f  (%llu images in %s%s)",
			       e->epoch + 1, (unsigned long long)e->step, e->loss, e->top1, e->top5,
			       (unsigned long long)e->count, span, bad);
	else
		ct_console_say(c, "epoch %u  step %llu  evaluation loss %.4g  (%llu samples in %s%s)", e->epoch + 1,
			       (unsigned long long)e->step, e->loss, (unsigned long long)e->count, span, bad);
}
