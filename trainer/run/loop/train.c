/* One iteration posts step t and then takes the results of older steps until no more than the lag of the stepper are
 * pending. Results arrive with the sum of the gradients, so all ranks see them at the same step, and with them the
 * requests of any rank to stop, to save or to regroup. A rank must not act on its own signal before it has come back
 * this way, or the ranks would post different collectives. The position of the run (s->state) advances when results are
 * taken, not when work is posted.
 *
 * Evaluations, saves, checks and ends of epochs happen only when no posted step is left, since they read the weights of
 * exactly one step. If a step has failed, its error is reported before anything is saved, so the earlier checkpoints
 * stay as they are. A save copies the state; usually the writer's thread writes it, and its outcome is taken after a
 * later step. All time that is not training is excluded from the meter. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/loop/train.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/signals.h"
#include "trainer/run/diagnose/nan_report.h"
#include "trainer/run/diagnose/replica_check.h"
#include "trainer/run/diagnose/self_check.h"
#include "trainer/run/diagnose/straggler_watch.h"
#include "trainer/run/loop/board.h"
#include "trainer/run/loop/epoch_times.h"
#include "trainer/run/loop/hooks.h"
#include "trainer/run/loop/meter.h"
#include "trainer/run/loop/outcome.h"
#include "trainer/run/loop/patience.h"
#include "trainer/run/loop/summary.h"
#include "trainer/run/loop/train_eval.h"
#include "trainer/run/metrics/memory_use.h"
#include "trainer/run/pipeline/gather.h"

struct loop {
	struct ct_session *s;
	ct_metrics_log *metrics;      /* rank 0 only */
	ct_checkpoint_writer *writer; /* rank 0 only */
	ct_stepper *stepper;
	ct_replica_check *check;          /* NULL: off */
	ct_straggler_watch *stragglers;   /* NULL: off */
	struct ct_whole whole;            /* rank 0 of a pipeline: the values in the last checkpoint */
	struct ct_checkpoint_guard guard; /* the lock of the run directory, which saves check */
	struct ct_meter meter;
	struct ct_nan_history history;
	int signals;
	int64_t last_save_ns;
	uint64_t eval_steps, save_steps; /* 0 if not limited by the number of steps */
	struct ct_epoch_times times;
	struct ct_train_eval eval;
	double images_per_sec, loss; /* step of the last metrics line, and of the last step */
	double share[6];             /* parts of the step time since the last metrics line but one */
	uint64_t memory_bytes;       /* of this process at the last metrics line */
	bool stop, save_now, regroup;
};

static uint64_t every(double epochs, uint64_t steps_per_epoch)
{
	uint64_t n = (uint64_t)llround(epochs * (double)steps_per_epoch);

	return epochs > 0 && n == 0 ? 1 : n;
}

static void report_progress(struct loop *l)
{
	const struct ct_session *s = l->s;

	if (!l->metrics)
		return;
	uint64_t left = s->plan.total_steps - s->state.step;
	struct ct_progress p = {.step = s->state.step,
				.total_steps = s->plan.total_steps,
				.epoch = s->state.epoch,
				.epochs = s->plan.epochs,
				.loss = l->loss,
				.images_per_sec = l->images_per_sec,
				.best_top1 = s->state.best_top1,
				.memory_bytes = l->memory_bytes,
				.phase = ct_rank_page_position(ct_rank_page_own()).phase};
	memcpy(p.share, l->share, sizeof(p.share));
	p.eta_seconds = l->images_per_sec > 0 ? (double)left * s->plan.global_batch / l->images_per_sec : 0;
	ct_metrics_progress(l->metrics, &p);
}

/* Checks that the run directory still belongs to this run and still contains the rank's log file. Called before new
 * files are written. */
static enum ct_status check_run_dir(const struct ct_session_run *run)
{
	CT_TRY(ct_log_check());
	return run->lock ? ct_run_lock_check(run->lock) : CT_OK;
}

/* If the directory was removed during a save, reports that cause instead of the file that could not be written. */
static enum ct_status explain_save(const struct ct_session *s)
{
	struct ct_error e;

	ct_error_save(&e);
	if (e.status == CT_IO && check_run_dir(&s->run) < 0)
		return CT_IO;
	return ct_error_restore(&e);
}

static enum ct_status check_lock(const void *lock)
{
	return lock ? ct_run_lock_check(lock) : CT_OK;
}

static void note_shares(struct loop *l, const struct ct_step_metrics *m)
{
	const double ms[6] = {m->data_ms, m->forward_ms, m->backward_ms, m->exposed_comm_ms, m->optim_ms, m->other_ms};
	double sum = 0;

	for (int i = 0; i < 6; i++)
		sum += ms[i];
	for (int i = 0; i < 6; i++)
		l->share[i] = sum > 0 ? ms[i] / sum : 0;
	l->memory_bytes = ct_memory_use_now();
}

static enum ct_status log_step(struct loop *l, const struct ct_step_result *r)
{
	const struct ct_interval *w = &l->meter.window;
	const struct ct_step_times *t = &w->times;
	double total = ct_meter_seconds(&l->meter, w), k = 1e-6 / (double)w->steps;

	l->images_per_sec = (double)w->images / total;
	struct ct_step_metrics m = {.step = l->s->state.step,
				    .epoch = l->s->state.epoch,
				    .loss = l->loss,
				    .lr = r->request.lr,
				    .images_per_sec = l->images_per_sec,
				    .data_ms = (double)t->data_ns * k,
				    .forward_ms = (double)t->forward_ns * k,
				    .backward_ms = (double)t->backward_ns * k,
				    .exposed_comm_ms = (double)t->exposed_ns * k,
				    .optim_ms = (double)t->optim_ns * k,
				    .grad_norm = r->grad_norm,
				    .weight_norm = r->weight_norm,
				    .memory_bytes = ct_memory_use(),
				    .loss_scale = r->loss_scale,
				    .skipped_updates = r->skipped_updates};
	double known = (double)(t->data_ns + t->forward_ns + t->backward_ns + t->exposed_ns + t->optim_ns);
	m.other_ms = fmax(0, (total * 1e9 - known) * k);
	if (l->metrics)
		note_shares(l, &m);
	CT_TRY(check_run_dir(&l->s->run));
	if (l->metrics)
		CT_TRY(ct_metrics_step(l->metrics, &m));
	ct_meter_restart(&l->meter, &l->meter.window);
	return CT_OK;
}

/* Writes a finished save to the metrics. If `wait` is true, waits for the save in progress. */
static enum ct_status take_save(struct loop *l, bool wait)
{
	struct ct_checkpoint_result r;
	int64_t t0 = ct_now_ns();

	if (!l->writer)
		return CT_OK;
	if (ct_checkpoint_writer_take(l->writer, wait, &r) < 0)
		return explain_save(l->s);
	if (r.step == 0)
		return CT_OK;
	enum ct_status st = ct_metrics_checkpoint(l->metrics, r.step, r.path, r.seconds, r.exposed_seconds, r.bytes);
	ct_hook_checkpoint(l->s, l->metrics, r.path);
	ct_free(r.path);
	ct_meter_exclude_since(&l->meter, t0);
	return st;
}

/* Posts a save, which is written while training continues. */
static enum ct_status save(struct loop *l, bool best)
{
	struct ct_session *s = l->s;
	int64_t t0 = ct_now_ns();

	l->last_save_ns = t0;
	CT_TRY(check_run_dir(&s->run));
	if (!l->writer)
		return s->pipe ? ct_pipeline_gather(s->pipe, s->net, s->optim, s->ema, &l->whole) : CT_OK;
	ct_session_phase(s, CT_RANK_SAVING, s->state.step);
	report_progress(l);
	CT_TRY(take_save(l, true)); /* excludes the time of the save */
	t0 = ct_now_ns();
	if (s->pipe)
		CT_TRY(ct_pipeline_gather(s->pipe, s->net, s->optim, s->ema, &l->whole));
	const bool last = s->state.finished || l->stop || l->regroup;
	struct ct_checkpoint_source src = {.net = s->net,
					   .whole = s->pipe ? &l->whole : NULL,
					   .optim = s->optim,
					   .ema = s->ema,
					   .state = &s->state,
					   .config_lines = s->run.config_lines,
					   .net_plan = s->run.net_plan,
					   .description = s->run.description,
					   .guard = &l->guard,
					   .unchanged = last || !s->cfg->checkpoint.background,
					   .threads = ct_plan_threads(s->cfg, ct_session_local_world(s))};
	s->state.optim_steps = ct_optim_steps(s->optim);
	s->state.train_seconds += ct_meter_take_seconds(&l->meter);
	CT_TRY(ct_checkpoint_writer_post(l->writer, &src, best));
	ct_meter_exclude_since(&l->meter, t0);
	return s->cfg->checkpoint.background ? CT_OK : take_save(l, true);
}

static void eval_progress(void *user, double done)
{
	(void)done;
	report_progress(user);
}

static enum ct_status evaluate(struct loop *l, bool *best)
{
	int64_t t0 = ct_now_ns();

	CT_TRY(ct_train_eval_run(&l->eval, eval_progress, l, best));
	ct_meter_exclude_since(&l->meter, t0);
	return CT_OK;
}

/* Reports the bottleneck of an epoch that the run did not complete. */
static enum ct_status report_rest(struct loop *l)
{
	struct ct_str report = {0};
	const char *bound;

	if (l->meter.epoch.steps == 0)
		return CT_OK;
	CT_TRY(ct_epoch_times_report(&l->times, &l->meter, &bound, &report));
	if (l->metrics && report.len > 0) {
		CT_INFO("%s", ct_str_text(&report));
		ct_metrics_say(l->metrics, "epoch %u  %s", l->s->state.epoch + 1, ct_str_text(&report));
	}
	ct_str_release(&report);
	return CT_OK;
}

static enum ct_status end_epoch(struct loop *l)
{
	struct ct_train_state *t = &l->s->state;
	uint32_t epoch = t->epoch;
	double loss = t->epoch_images > 0 ? t->epoch_loss_sum / (double)t->epoch_images : 0;
	uint64_t images = t->epoch_images, bad = t->epoch_bad;
	double seconds = ct_meter_seconds(&l->meter, &l->meter.epoch);

	t->epoch++;
	t->step_in_epoch = 0;
	t->epoch_loss_sum = 0;
	t->epoch_images = 0;
	t->epoch_bad = 0;
	struct ct_str report = {0};
	struct ct_epoch_metrics m = {.epoch = epoch,
				     .step = t->step,
				     .images = images,
				     .timed = l->meter.epoch.images,
				     .train_loss = loss,
				     .seconds = seconds,
				     .bad_samples = bad};
	CT_TRY(ct_epoch_times_report(&l->times, &l->meter, &m.bound_by, &report));
	m.verdict = ct_str_text(&report);
	m.damaged = l->times.damaged;
	m.ranks = l->times.ranks;
	m.n_ranks = l->s->world.id.world;
	if (l->metrics && m.damaged > 0)
		CT_INFO("epoch %u: %llu damaged images were decoded", epoch + 1, (unsigned long long)m.damaged);
	if (l->metrics && m.verdict[0])
		CT_INFO("epoch %u: %s", epoch + 1, m.verdict);
	enum ct_status st = l->metrics ? ct_metrics_epoch(l->metrics, &m) : CT_OK;
	ct_str_release(&report);
	ct_meter_restart(&l->meter, &l->meter.epoch);
	return st;
}

/* Takes the results of the oldest posted step: advances the position, updates the metrics, and records the requests of
 * all ranks. */
static enum ct_status take_step(struct loop *l)
{
	struct ct_session *s = l->s;
	struct ct_train_state *t = &s->state;
	struct ct_step_result r;

	CT_TRY(ct_stepper_take(l->stepper, &r));
	l->loss = r.loss_sum / (double)r.n_global;
	if (ct_outcome_check(s, &r) < 0)
		return ct_nan_report(s, l->stepper, &l->history, &r, l->metrics);
	ct_nan_note(&l->history, &r);
	ct_outcome_note_scale(s, l->metrics, &r);
	ct_failpoint("step");
	ct_meter_add(&l->meter, &r);
	CT_TRY(ct_straggler_watch_step(l->stragglers, &r.times, l->metrics));
	t->epoch_bad = r.bad;
	t->step++;
	t->step_in_epoch++;
	t->images += r.n_global;
	t->epoch_images += r.n_global;
	t->epoch_loss_sum += r.loss_sum;
	ct_rank_page_count_steps((int64_t)t->step);
	l->stop |= r.stop; /* the same on every rank */
	l->save_now |= r.save;
	l->regroup |= r.regroup;
	if (s->cfg->log.every > 0 && t->step % (uint64_t)s->cfg->log.every == 0)
		CT_TRY(log_step(l, &r));
	return CT_OK;
}

/* The stages of a pipeline would have to exchange their norms. */
static bool is_logged(const struct loop *l, uint64_t step)
{
	const int64_t n = l->s->cfg->log.every;

	return !l->s->pipe && n > 0 && step % (uint64_t)n == 0;
}

static bool is_eval_due(const struct loop *l, uint64_t step)
{
	const struct ct_run_plan *p = &l->s->plan;

	return p->has_val && (step >= p->total_steps || (l->eval_steps > 0 && step % l->eval_steps == 0));
}

static bool is_save_due(const struct loop *l, uint64_t step)
{
	uint64_t n = (uint64_t)l->s->cfg->checkpoint.every_steps;

	return step >= l->s->plan.total_steps || (n > 0 && step % n == 0) ||
	       (l->save_steps > 0 && step % l->save_steps == 0);
}

/* Returns true if no posted step may be left after this step. */
static bool is_event_due(const struct loop *l, uint64_t step)
{
	return is_eval_due(l, step) || is_save_due(l, step) || ct_replica_check_due(l->check, step);
}

/* Posts one optimizer step and takes the results that are due. *drained is true if no posted step is left, and
 * *end_of_epoch if it was the last step of an epoch. */
static enum ct_status one_step(struct loop *l, bool *drained, bool *end_of_epoch)
{
	struct ct_session *s = l->s;
	const struct ct_config *c = s->cfg;
	const uint64_t step = s->state.step + (uint64_t)ct_stepper_pending(l->stepper);
	bool stop = false;

	while (ct_signals_next(l->signals) != 0)
		stop = true;
	bool minutes = c->checkpoint.every_minutes > 0 &&
		       ct_seconds_since(l->last_save_ns) >= c->checkpoint.every_minutes * 60;
	struct ct_step_request req = {.step = step,
				      .lr = ct_patience_lr(s, step),
				      .stop = stop,
				      .save = ct_session_is_root(s) && minutes,
				      .norms = is_logged(l, step + 1),
				      .regroup = (minutes || is_save_due(l, step + 1)) &&
						 ct_rank_page_is_requested(ct_rank_page_own(), CT_REQUEST_REGROUP)};
	ct_rank_page_post_step((int64_t)step);
	CT_TRY(ct_stepper_post(l->stepper, &req, end_of_epoch));
	int left = *end_of_epoch || is_event_due(l, step + 1) ? 0 : ct_stepper_lag(l->stepper);
	while (ct_stepper_pending(l->stepper) > left) {
		CT_TRY(take_step(l));
		if (l->stop || l->save_now || l->regroup)
			left = 0;
	}
	*drained = ct_stepper_pending(l->stepper) == 0;
	ct_session_phase(s, CT_RANK_TRAINING, s->state.step);
	report_progress(l);
	return take_save(l, false);
}

static void run_epoch_hook(struct loop *l)
{
	const int64_t t0 = ct_now_ns();

	ct_hook_epoch_end(l->s, l->metrics);
	ct_meter_exclude_since(&l->meter, t0);
}

static void write_board(struct loop *l)
{
	const int64_t t0 = ct_now_ns();

	ct_board_epoch(l->s, l->metrics);
	ct_meter_exclude_since(&l->meter, t0);
}

/* Evaluates and saves if that is due, when no posted step is left. *done: training is finished. */
static enum ct_status after_step(struct loop *l, bool end_of_epoch, bool *done)
{
	struct ct_session *s = l->s;
	struct ct_train_state *t = &s->state;
	bool best = false;

	if (ct_replica_check_due(l->check, t->step))
		CT_TRY(ct_replica_check_run(l->check, t->step));
	if (end_of_epoch)
		CT_TRY(end_epoch(l));
	if (is_eval_due(l, t->step))
		CT_TRY(evaluate(l, &best));
	best = best && s->cfg->checkpoint.best;
	t->finished = t->step >= s->plan.total_steps || ct_train_eval_reached_target(s) || ct_patience_is_over(s);
	if (is_save_due(l, t->step) || best || l->save_now || l->stop || l->regroup || t->finished)
		CT_TRY(save(l, best));
	if (end_of_epoch) {
		run_epoch_hook(l);
		write_board(l);
	}
	l->save_now = false;
	*done = t->finished;
	return CT_OK;
}

static enum ct_status run(struct loop *l, enum ct_run_end *end)
{
	struct ct_session *s = l->s;
	/* The limits may have changed since the run ended, for example to more epochs or a higher target. */
	bool done = s->state.step >= s->plan.total_steps || ct_train_eval_reached_target(s) || ct_patience_is_over(s);
	enum ct_run_end status = CT_END_DONE;

	if (done && s->state.step > 0)
		status = CT_END_BEFORE;
	l->loss = NAN;
	report_progress(l); /* the first step may take long */
	while (!done && !l->stop && !l->regroup) {
		bool drained = false, end_of_epoch = false;

		CT_TRY(one_step(l, &drained, &end_of_epoch));
		if (drained)
			CT_TRY(after_step(l, end_of_epoch, &done));
	}
	if (done && s->state.step < s->plan.total_steps)
		status = ct_train_eval_reached_target(s) ? CT_END_TARGET : CT_END_EARLY;
	CT_TRY(take_save(l, true));
	CT_TRY(report_rest(l));
	const bool more_nodes = !done && l->regroup && !l->stop;
	if (!done)
		status = more_nodes ? CT_END_REGROUP : CT_END_SIGNAL;
	CT_TRY(ct_summary_write(s, &l->meter, l->loss, status, l->metrics));
	ct_train_eval_write(&l->eval);
	*end = status;
	if (done)
		return CT_OK;
	return ct_session_stopped(s, more_nodes);
}

enum ct_status ct_train(struct ct_session *s, ct_metrics_log *metrics, int64_t start_ns, int signals,
			enum ct_run_end *end)
{
	struct loop l = {.s = s,
			 .metrics = metrics,
			 .signals = signals,
			 .guard = {.check = check_lock, .user = s->run.lock},
			 .eval = {.s = s, .metrics = metrics}};
	enum ct_status st;

	*end = CT_END_FAILED;
	l.eval_steps = every(s->cfg->train.eval_every, s->plan.steps_per_epoch);
	l.save_steps = every(s->cfg->checkpoint.every_epochs, s->plan.steps_per_epoch);
	if (ct_session_is_root(s))
		CT_TRY(ct_checkpoint_writer_create(s->run.dir, (int)s->cfg->checkpoint.keep_last, &l.writer));
	st = ct_self_check(s);
	if (st == CT_OK)
		st = ct_stepper_create(s, &l.stepper);
	if (st == CT_OK)
		st = ct_replica_check_create(s, &l.check);
	if (st == CT_OK)
		st = ct_straggler_watch_create(s, &l.stragglers);
	if (st == CT_OK)
		st = ct_epoch_times_init(&l.times, s, l.stepper);
	if (st == CT_OK) {
		ct_meter_init(&l.meter, start_ns);
		l.last_save_ns = ct_now_ns();
		ct_session_phase(s, CT_RANK_FIRST_STEP, s->state.step);
		st = run(&l, end);
	}
	if (st < 0)
		ct_session_drain(s);
	/* Waits for the save in progress, because its checkpoint is valid even after a failure. */
	ct_checkpoint_writer_destroy(l.writer);
	ct_train_eval_release(&l.eval);
	ct_whole_release(&l.whole);
	ct_straggler_watch_destroy(l.stragglers);
	ct_replica_check_destroy(l.check);
	ct_epoch_times_release(&l.times);
	ct_stepper_destroy(l.stepper);
	return st;
}
