/* The programs of the stepper: for the smaller batches at the end of an epoch, and for other image sizes. */
#define CT_LOG_COMPONENT "train"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/run/step/step_impl.h"

/* Waits for the posted steps before a program is created. An engine may measure plans meanwhile, one process at a time,
 * on an idle device. If a posted step waited for a collective of a rank that waits for its turn, both would wait. */
static enum ct_status wait_posted(const ct_stepper *p)
{
	return ct__step_sync(p, "the posted steps");
}

enum ct_status ct__step_program(ct_stepper *p, int n, int context, ct_program **out)
{
	*out = p->s->model.full;
	if (n == (int)p->s->plan.micro_rows && context == 0)
		return CT_OK;
	for (int i = 0; i < p->programs.n; i++)
		if (p->programs.tails[i].n == n && p->programs.tails[i].context == context) {
			*out = p->programs.tails[i].program;
			return CT_OK;
		}
	/* There are few: row counts other than 0 of one rank differ by at most one between micro-batches. */
	CT_TRY_GROW(p->programs.tails, p->programs.n, p->programs.cap);
	const ct_graph *g = ct_session_train_graph(&p->s->model);
	CT_TRY(wait_posted(p));
	CT_TRY(ct_program_create_in(p->s->net, g, n, CT_TRAIN, context, out));
	p->programs.tails[p->programs.n++] = (struct step_tail){n, context, *out};
	return CT_OK;
}

/* Not every model can be trained on one row (batch norm after a linear layer). Fails at the start, not at the end of an
 * epoch. */
enum ct_status ct__step_check_tail(ct_stepper *p, const struct ct_sampler *sampler)
{
	const struct ct_run_plan *plan = &p->s->plan;
	ct_program *program;

	for (uint32_t i = 0; i < plan->accumulate && plan->total_steps >= plan->steps_per_epoch; i++) {
		if (ct_sampler_slice(sampler, plan->steps_per_epoch - 1, i).count != 1 ||
		    ct__step_program(p, 1, 0, &program) == CT_OK)
			continue;
		ct_error_hint("or skip the last, smaller batch of an epoch: data.drop_last=true");
		return ct_error_wrap("the last step of an epoch has one sample for rank %u", sampler->rank);
	}
	return CT_OK;
}

void ct__step_drop_tails(ct_stepper *p)
{
	for (int i = 0; i < p->programs.n; i++)
		ct_program_destroy(p->programs.tails[i].program);
	ct_free(p->programs.tails);
	p->programs.tails = NULL;
	p->programs.n = p->programs.cap = 0;
}

bool ct__step_fits_size(const ct_stepper *p, struct ct_shape shape)
{
	const struct ct_session *s = p->s;

	return !s->plan.encoded || (shape.h == s->model.full_shape.h && shape.w == s->model.full_shape.w);
}

enum ct_status ct__step_fit_size(ct_stepper *p, struct ct_shape shape, int64_t *compile_ns)
{
	if (ct__step_fits_size(p, shape))
		return CT_OK;
	int64_t t0 = ct_now_ns();
	ct__step_drop_recordings(p);
	ct__step_drop_tails(p);
	CT_TRY(wait_posted(p));
	CT_TRY(ct_session_resize(p->s, shape));
	*compile_ns = ct_now_ns() - t0;
	CT_INFO("training images are now %dx%d (compiling for this size took %.2f s)", shape.w, shape.h,
		(double)*compile_ns * 1e-9);
	return CT_OK;
}
