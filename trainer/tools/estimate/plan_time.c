/* The time of the training is that of a step, which is measured on one rank for about half a second, times the numbers
 * of the plan. The measured batch may be smaller, so that a step on a CPU stays short; forward and backward pass are
 * then scaled by the number of samples, the update is not. In later epochs of progressive resizing, they are scaled by
 * the number of pixels. The evaluation is predicted from the forward pass, in proportion to the FLOPs. What is not the
 * backward pass or the update counts as forward pass. A measurement that fails only leaves the time unknown, because
 * the rest of the plan does not need it. The output states what was measured and what is not included. */
#include "trainer/tools/estimate/plan_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/run/metrics/console.h"
#include "trainer/tools/bench/step_bench.h"

/* Limits of the measurement: seconds after the warm-up, and, on a CPU, floating-point operations of a step. */
#define SECONDS 0.5
#define STEP_FLOPS 20e9
#define MIN_ROWS 2 /* batch norm needs more than one value */

/* Seconds of the parts of a step of one rank. */
struct parts {
	double forward, backward; /* of a micro-batch */
	double update;
};

enum ct_status ct_parse_step_ms(const char *text, double ms[3])
{
	int len = 0;

	if (sscanf(text, "%31lf,%31lf,%31lf%n", &ms[0], &ms[1], &ms[2], &len) == 3 && !text[len] && ms[0] >= 0 &&
	    ms[1] >= 0 && ms[2] >= 0 && isfinite(ms[0] + ms[1] + ms[2]) && ms[0] + ms[1] + ms[2] > 0)
		return CT_OK;
	return CT_FAIL(CT_USAGE,
		       "--step-ms %.60s: expected the milliseconds of the forward pass, the backward pass and the "
		       "update, such as 12.5,24,0.8",
		       text);
}

/* Without data, measures synthetic samples of the same shape. A few of them are enough. */
static void use_synthetic(struct ct_config *c, const struct ct__time_request *r, uint32_t rows)
{
	const struct ct_shape *in = &r->plan->input;

	c->data.name = r->plan->regression ? CT_CFG_DATA_SYNTHETIC_REGRESSION : CT_CFG_DATA_SYNTHETIC;
	c->data.shape = (struct ct_int_list){.n = 3, .v = {in->c, in->h, in->w}};
	c->data.classes = r->train->n_classes > 0 ? r->train->n_classes : c->data.classes;
	c->data.train_size.n = 0;
	c->data.n_train = 4 * (int64_t)rows;
	c->data.n_val = 1;
}

static enum ct_status measure(const struct ct__time_request *r, struct ct_plan_time *t, struct parts *p)
{
	struct ct_config *c = r->measure;
	struct ct_session s = {0};
	struct ct_step_bench b;
	enum ct_status st;

	t->synthetic = r->assumed;
	if (r->assumed || c->data.name == CT_CFG_DATA_SYNTHETIC || c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION)
		use_synthetic(c, r, t->measured_rows);
	c->batch.per_rank = t->measured_rows;
	c->batch.global = 0;
	c->train.accumulate = 1;
	c->train.autotune = CT_AUTOTUNE_OFF;
	c->launch.threads = t->threads;
	c->data.workers = ct_plan_loader_threads(r->cfg, r->train, r->local);
	CT_TRY_GOTO(ct_session_create(c, NULL, true, &s), st, out);
	CT_TRY_GOTO(ct_step_bench_for(&s, SECONDS, &b), st, out);
	const double scale = (double)t->rows / t->measured_rows * 1e-3;
	p->update = b.optim_ms * 1e-3;
	p->backward = b.backward_ms * scale;
	p->forward = fmax(0, b.step_ms - b.backward_ms - b.optim_ms) * scale;
	t->measured_steps = b.steps;
	t->source = t->measured_rows == t->rows && !r->assumed ? CT__TIME_MEASURED : CT__TIME_PREDICTED;
out:
	ct_session_destroy(&s, st < 0);
	return st;
}

static void choose_rows(const struct ct__time_request *r, struct ct_plan_time *t)
{
	const double most = STEP_FLOPS / fmax(1, 3 * r->flops);

	t->rows = t->measured_rows = r->plan->micro_rows;
	if (strncmp(r->cfg->device, "cuda", 4) != 0 && most < t->rows)
		t->measured_rows = most > MIN_ROWS ? (uint32_t)most : t->rows < MIN_ROWS ? t->rows : MIN_ROWS;
}

/* The number of evaluations: every train.eval_every epochs, and at the end. */
static uint64_t count_evaluations(const struct ct_config *c, const struct ct_run_plan *p)
{
	const double interval = fmax(1, round(c->train.eval_every * (double)p->steps_per_epoch));
	uint64_t every;

	if (!p->has_val)
		return 0;
	if (c->train.eval_every <= 0 || interval >= (double)p->total_steps)
		return 1;
	every = (uint64_t)interval;
	return p->total_steps / every + (p->total_steps % every != 0);
}

/* Images of later epochs may have other sizes: the time of a step is proportional to the number of pixels. */
static double step_seconds(const struct ct_run_plan *p, const struct parts *one, uint32_t epoch)
{
	const struct ct_shape in = ct_plan_input_at(p, epoch);
	const double pixels = (double)in.h * in.w / ((double)p->input.h * p->input.w);

	return p->accumulate * (one->forward + one->backward) * pixels + one->update;
}

static void add_up(const struct ct__time_request *r, const struct parts *one, struct ct_plan_time *t)
{
	const struct ct_run_plan *p = r->plan;
	uint64_t left = p->total_steps;

	t->step_s = step_seconds(p, one, 0);
	t->n_evaluations = count_evaluations(r->cfg, p);
	if (p->has_val)
		t->evaluation_s =
			ceil((double)p->val.n / p->world) * one->forward / t->rows * (r->val_flops / fmax(1, r->flops));
	t->all_s = (double)t->n_evaluations * t->evaluation_s;
	for (uint32_t e = 0; left > 0; e++) {
		const uint64_t steps = left < p->steps_per_epoch ? left : p->steps_per_epoch;
		const double seconds = (double)steps * step_seconds(p, one, e);

		if (e == 0)
			t->epoch_s = seconds;
		t->all_s += seconds;
		left -= steps;
	}
}

static void fail(struct ct_plan_time *t, const char *why)
{
	t->source = CT__TIME_UNKNOWN;
	snprintf(t->why, sizeof(t->why), "%s", why);
}

enum ct_status ct_plan_time(const struct ct__time_request *r, struct ct_plan_time *out)
{
	struct parts one;
	double ms[3];

	*out = (struct ct_plan_time){.threads = ct_plan_threads(r->cfg, r->local)};
	choose_rows(r, out);
	if (r->step_ms)
		CT_TRY(ct_parse_step_ms(r->step_ms, ms));
	if (r->cfg->launch.pipeline > 1) {
		fail(out, "the step of a pipeline cannot be predicted from that of one rank");
		return CT_OK;
	} else if (r->step_ms) {
		one = (struct parts){.forward = ms[0] * 1e-3, .backward = ms[1] * 1e-3, .update = ms[2] * 1e-3};
		out->source = CT__TIME_GIVEN;
	} else if (!r->measure) {
		fail(out, "not measured, because of --no-measure");
		return CT_OK;
	} else if (measure(r, out, &one) < 0) {
		fail(out, ct_error_message());
		ct_error_clear();
		return CT_OK;
	}
	add_up(r, &one, out);
	return CT_OK;
}

static bool may_end_early(const struct ct_config *c)
{
	return c->train.target_top1 > 0 || c->train.early_stop.patience > 0;
}

/* Where the time of a step comes from, and what it does not include. */
static void print_source(const struct ct__time_request *r, const struct ct_plan_time *t)
{
	if (t->source == CT__TIME_GIVEN) {
		printf("             step: predicted from --step-ms");
	} else {
		printf("             step: %s %lld step%s of one rank with %d thread%s",
		       t->source == CT__TIME_MEASURED ? "measured here, in" : "predicted from",
		       (long long)t->measured_steps, ct_plural(t->measured_steps), t->threads, ct_plural(t->threads));
		if (t->measured_rows != t->rows)
			printf(" and %u samples instead of %u", t->measured_rows, t->rows);
		if (t->synthetic)
			printf(" and synthetic samples");
	}
	if (t->n_evaluations > 0)
		printf("; evaluation: predicted from the forward pass");
	printf("\n             not included: checkpoints%s%s\n", r->world > 1 ? ", communication between ranks" : "",
	       t->synthetic || t->source == CT__TIME_GIVEN ? ", reading and decoding of samples" : "");
}

void ct_plan_time_print(const struct ct__time_request *r, const struct ct_plan_time *t)
{
	char all[16], epoch[16], step[16], evaluation[16];

	if (t->source == CT__TIME_UNKNOWN) {
		printf("time         unknown: %s\n", t->why);
		return;
	}
	ct_console_span(t->all_s, all, sizeof(all));
	ct_console_span(t->epoch_s, epoch, sizeof(epoch));
	ct_console_span(t->evaluation_s, evaluation, sizeof(evaluation));
	if (t->step_s < 1)
		snprintf(step, sizeof(step), "%.3g ms", t->step_s * 1e3);
	else
		snprintf(step, sizeof(step), "%.1f s", t->step_s);
	printf("time         %s %s: %llu steps of %s (%s for the first epoch)",
	       may_end_early(r->cfg) ? "at most" : "about", all, (unsigned long long)r->plan->total_steps, step, epoch);
	if (t->n_evaluations > 0)
		printf(", and %llu evaluation%s of %s", (unsigned long long)t->n_evaluations,
		       ct_plural((int64_t)t->n_evaluations), evaluation);
	printf("\n");
	print_source(r, t);
}

ct_json *ct_plan_time_json(const struct ct_plan_time *t)
{
	static const char *const names[] = {"unknown", "measured", "predicted", "given"};
	ct_json *j = ct_json_object();

	ct_json_set_str(j, "step_source", names[t->source]);
	if (t->source == CT__TIME_UNKNOWN) {
		ct_json_set_str(j, "why", t->why);
		return j;
	}
	ct_json_set_f64(j, "step_ms", t->step_s * 1e3);
	ct_json_set_f64(j, "first_epoch_seconds", t->epoch_s);
	ct_json_set_i64(j, "evaluations", (int64_t)t->n_evaluations);
	ct_json_set_f64(j, "evaluation_seconds", t->evaluation_s);
	ct_json_set_f64(j, "total_seconds", t->all_s);
	if (t->source != CT__TIME_GIVEN) {
		ct_json_set_i64(j, "measured_steps", t->measured_steps);
		ct_json_set_i64(j, "measured_rows", t->measured_rows);
		ct_json_set_bool(j, "synthetic", t->synthetic);
	}
	return j;
}
