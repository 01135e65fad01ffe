#define CT_LOG_COMPONENT "train"
#include "trainer/run/loop/summary.h"

#include <math.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/run/pipeline/gather.h"

/* Computes the digest of the complete model, on rank 0. */
static enum ct_status digest_stages(const struct ct_session *s, bool root, char digest[65])
{
	struct ct_whole w = {0};
	enum ct_status st = ct_pipeline_gather(s->pipe, s->net, NULL, NULL, &w);

	if (st == CT_OK && root)
		st = ct_values_digest(w.graph, w.groups[0].params, digest);
	ct_whole_release(&w);
	return st;
}

enum ct_status ct_summary_write(const struct ct_session *s, const struct ct_meter *meter, double loss,
				enum ct_run_end end, ct_metrics_log *metrics)
{
	char digest[65];

	/* The weights of all ranks, or of all ranks with the same stage, are the same. In the log, a test or a user can
	 * check this. */
	if ((metrics && !s->pipe) || ct_log_enabled(CT_LOG_DEBUG, CT_LOG_COMPONENT))
		CT_TRY(ct_net_digest(s->net, digest));
	if (s->pipe)
		CT_TRY(digest_stages(s, metrics != NULL, digest));
	if (!metrics) {
		CT_DEBUG("weights %s", digest);
		return CT_OK;
	}
	const struct ct_interval *all = &meter->run;
	double rate = all->images > 0 ? (double)all->images / ct_meter_seconds(meter, all) : 0;
	char *last = NULL;
	CT_TRY_ALLOC(last = ct_path_join(s->run.dir, "checkpoints/last"));
	const struct ct_step_times *t = &all->times;
	struct ct_run_summary sum = {.status = ct_run_end_name(end),
				     .step = s->state.step,
				     .images = s->state.images,
				     .steps_per_epoch = s->plan.steps_per_epoch,
				     .epoch = s->state.epoch,
				     .seconds = ct_seconds_since(meter->start_ns),
				     .best_top1 = s->state.best_top1,
				     .last_loss = all->images > 0 ? loss : NAN,
				     .images_per_sec = rate,
				     .startup_seconds = meter->startup_s > 0 ? meter->startup_s : NAN,
				     .weights_digest = digest,
				     .checkpoint = last};
	double known = (double)(t->data_ns + t->forward_ns + t->backward_ns + t->exposed_ns + t->optim_ns);
	double whole = fmax(known, ct_meter_seconds(meter, all) * 1e9);
	if (whole > 0) {
		const int64_t part[5] = {t->data_ns, t->forward_ns, t->backward_ns, t->exposed_ns, t->optim_ns};

		for (int i = 0; i < 5; i++)
			sum.share[i] = (double)part[i] / whole;
		sum.share[5] = 1 - known / whole;
	}
	enum ct_status st = ct_metrics_end(metrics, &sum);
	ct_free(last);
	return st;
}
