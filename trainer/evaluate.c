#define CT_LOG_COMPONENT "eval"
#include "trainer/evaluate.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

static enum ct_status sum_over_ranks(struct ct_session *s, struct ct_metrics *m)
{
	double v[4] = {m->loss, (double)m->count, (double)m->top1, (double)m->top5};
	ct_work *w = NULL;
	CT_TRY(ct_comm_allreduce(s->comm, v, CT_ARRAY_LEN(v), CT_F64, CT_SUM, &w));
	CT_TRY(ct_work_wait(w));
	*m = (struct ct_metrics){v[0], (int64_t)v[1], (int64_t)v[2], (int64_t)v[3]};
	return CT_OK;
}

static enum ct_status run_batches(struct ct_session *s, ct_loader *loader, uint64_t steps,
				  void (*progress)(void *, double), void *user, struct ct_metrics *m)
{
	for (uint64_t i = 0; i < steps; i++) {
		struct ct_loader_batch b;
		CT_TRY(ct_loader_next(loader, CT_FOREVER, &b));
		struct ct_batch in = {.n = (int)b.n, .x = b.x, .labels = b.labels, .targets = b.targets};
		if (b.n > 0)
			CT_TRY(ct_program_forward(s->eval, &in, m));
		ct_failpoint("eval");
		if (progress)
			progress(user, (double)(i + 1) / (double)steps);
	}
	return CT_OK;
}

enum ct_status ct_evaluate(struct ct_session *s, void (*progress)(void *user, double done), void *user,
			   struct ct_eval_result *out)
{
	int64_t t0 = ct_now_ns();
	struct ct_metrics m = {0};
	struct ct_loader_opts lo = {.sampler = s->plan.val, .n_threads = 0};
	ct_loader *loader = NULL;
	enum ct_status st;

	lo.sampler.rank = (uint32_t)s->world.id.rank;
	CT_TRY(ct_session_broadcast(s, ct_net_buffers(s->net), ct_net_buffers_elems(s->net) * sizeof(float)));
	if (s->ema)
		CT_TRY(ct_session_broadcast(s, ct_ema_buffers(s->ema), ct_net_buffers_elems(s->net) * sizeof(float)));
	if (!s->eval)
		CT_TRY(ct_program_create(s->net, (int)s->plan.eval_rows, CT_EVAL, &s->eval));
	CT_TRY(ct_loader_create(s->val, &lo, &loader));
	if (s->ema)
		ct_ema_swap(s->ema);
	st = run_batches(s, loader, ct_sampler_steps(&lo.sampler), progress, user, &m);
	if (s->ema)
		ct_ema_swap(s->ema);
	ct_loader_destroy(loader);
	if (st == CT_OK)
		st = sum_over_ranks(s, &m);
	CT_TRY(st);
	if ((uint64_t)m.count != s->plan.val.n)
		return CT_FAIL(CT_BUG, "evaluation counted %lld of %u samples", (long long)m.count, s->plan.val.n);
	double n = (double)m.count;
	*out = (struct ct_eval_result){.loss = m.loss / n,
				       .top1 = s->plan.regression ? -1 : (double)m.top1 / n,
				       .top5 = s->plan.regression ? -1 : (double)m.top5 / n,
				       .count = (uint64_t)m.count,
				       .seconds = (double)(ct_now_ns() - t0) * 1e-9};
	return CT_OK;
}
