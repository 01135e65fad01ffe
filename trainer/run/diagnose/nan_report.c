/* All ranks search, and agree on one report: they exchange the order number of what they have found, the smallest one
 * wins, and its rank broadcasts its report as JSON. A rank that could not search takes part with CT__NAN_UNKNOWN,
 * because the others would wait for it. If several ranks find only finite values, the sum of their gradients was not.
 * The run has failed already, so nothing here may replace that error: problems are warnings, and the error only gets a
 * longer message. If all rows of a batch are bad, no sample is suspicious. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/diagnose/nan_report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/run/step/nan_search.h"

void ct_nan_note(struct ct_nan_history *h, const struct ct_step_result *r)
{
	h->steps[h->n++ % CT_NAN_STEPS] = (struct ct_nan_step){.step = r->request.step + 1,
							       .loss = r->loss_sum / (double)r->n_global,
							       .lr = r->request.lr,
							       .grad_norm = r->grad_norm,
							       .weight_norm = r->weight_norm};
}

/* ---- JSON */

static ct_json *last_steps(const struct ct_nan_history *h)
{
	ct_json *list = ct_json_array();

	for (uint64_t i = h->n > CT_NAN_STEPS ? h->n - CT_NAN_STEPS : 0; i < h->n; i++) {
		const struct ct_nan_step *s = &h->steps[i % CT_NAN_STEPS];
		ct_json *o = ct_json_object();

		ct_json_set_i64(o, "step", (int64_t)s->step);
		ct_json_set_f64(o, "loss", s->loss);
		ct_json_set_f64(o, "lr", s->lr);
		if (!(s->grad_norm < 0))
			ct_json_set_f64(o, "grad_norm", s->grad_norm);
		if (!(s->weight_norm < 0))
			ct_json_set_f64(o, "weight_norm", s->weight_norm);
		ct_json_push(list, o);
	}
	return list;
}

/* Returns the number of samples that are suspicious: if all rows of the batch are affected, none is. */
static uint32_t n_suspicious(const struct ct__nan_place *p)
{
	if (p->n_bad_rows == p->n_rows)
		return 0;
	return p->n_bad_rows < CT__NAN_SAMPLES ? p->n_bad_rows : CT__NAN_SAMPLES;
}

static void describe_samples(const struct ct_session *s, const struct ct__nan_place *p, struct ct_str *out)
{
	char number[16], key[128];

	if (n_suspicious(p) == 0)
		return;
	ct_str_addf(out, ", in %u of %u samples: ", p->n_bad_rows, p->n_rows);
	for (uint32_t i = 0; i < n_suspicious(p); i++) {
		snprintf(number, sizeof(number), "%u", p->samples[i]);
		ct_dataset_key(s->data.train, p->samples[i], key, sizeof(key));
		ct_str_addf(out, "%s%s", i > 0 ? ", " : "", number);
		if (strcmp(key, number) != 0) /* the format has names */
			ct_str_addf(out, " (%s)", key);
	}
	ct_str_add(out, p->n_bad_rows > n_suspicious(p) ? " and others" : "");
}

/* Describes the place in a sentence that follows a semicolon. */
static void describe(const struct ct_session *s, const struct ct__nan_place *p, struct ct_str *out)
{
	ct_str_add(out, "the first values that are not finite are in ");
	switch (p->kind) {
	case CT__NAN_WEIGHT:
		ct_str_addf(out, "the weights %s", p->parameter);
		break;
	case CT__NAN_STATISTICS:
		ct_str_addf(out, "the batch statistics of layer %s", p->layer);
		break;
	case CT__NAN_ACTIVATION:
		ct_str_addf(out, "the output of layer %s (%s)", p->layer, p->op);
		break;
	case CT__NAN_LOSS:
		ct_str_add(out, "the loss, although the outputs of the model are finite");
		break;
	case CT__NAN_GRADIENT:
		ct_str_addf(out, "the gradient of %s", p->parameter);
		break;
	}
	if (s->world.id.world > 1)
		ct_str_addf(out, " on rank %d", s->world.id.rank);
	if (p->n > 0)
		ct_str_addf(out, ": %llu of %llu values", (unsigned long long)p->n_bad, (unsigned long long)p->n);
	describe_samples(s, p, out);
}

static void set_place(const struct ct_session *s, const struct ct__nan_place *p, ct_json *j)
{
	ct_json *suspicious = ct_json_array();
	static const char *const kinds[] = {CT__NAN_KINDS(CT_CHOICE_NAME) NULL};
	struct ct_str text = {0};

	describe(s, p, &text);
	ct_json_set_i64(j, "rank", s->world.id.rank);
	ct_json_set_str(j, "layer", p->layer);
	ct_json_set_str(j, "op", p->op);
	ct_json_set_str(j, "first", ct_choice_name(kinds, (int)p->kind));
	if (p->parameter)
		ct_json_set_str(j, "parameter", p->parameter);
	ct_json_set_i64(j, "not_finite", (int64_t)p->n_bad);
	ct_json_set_i64(j, "values", (int64_t)p->n);
	for (uint32_t i = 0; i < n_suspicious(p); i++)
		ct_json_push_i64(suspicious, p->samples[i]);
	ct_json_set(j, "suspicious_samples", suspicious);
	ct_json_set_str(j, "message", ct_str_text(&text));
	ct_str_release(&text);
}

/* ---- agreement */

/* The rank with the earliest place sends its report to all ranks. If there is none, the report says so. */
static enum ct_status share(struct ct_session *s, int64_t order, const ct_json *mine, ct_json **out)
{
	const int world = s->world.id.world;
	struct ct_str text = {0};
	int64_t own[2] = {order, 0}, *all = CT_NEW_ARRAY(int64_t, 2 * (size_t)world);
	ct_work *w = NULL;
	char *bytes = NULL;
	int first = 0;
	enum ct_status st = all ? ct_json_dump(mine, false, &text) : CT_NOMEM;

	CT_TRY_GOTO(st, st, out);
	own[1] = (int64_t)text.len;
	CT_TRY_GOTO(ct_comm_allgather(s->comm, own, all, 2, CT_I64, &w), st, out);
	CT_TRY_GOTO(ct_work_wait(w), st, out);
	for (int i = 1; i < world; i++)
		first = all[2 * i] < all[2 * first] ? i : first;
	if (all[2 * first] >= CT__NAN_UNKNOWN) {
		*out = ct_json_object();
		if (world > 1 && all[2 * first] == CT__NAN_FINITE)
			ct_json_set_str(*out, "message",
					"all values of each rank are finite, but the sum of their gradients is not");
		goto out;
	}
	const size_t n = (size_t)all[2 * first + 1];
	CT_TRY_GOTO((bytes = ct_calloc(n, 1)) ? CT_OK : CT_NOMEM, st, out);
	if (first == s->world.id.rank)
		memcpy(bytes, text.s, n);
	CT_TRY_GOTO(ct_comm_broadcast(s->comm, bytes, n, CT_U8, first, &w), st, out);
	CT_TRY_GOTO(ct_work_wait(w), st, out);
	st = ct_json_parse(bytes, n, "the report of another rank", out);
out:
	ct_free(bytes);
	ct_free(all);
	ct_str_release(&text);
	return st;
}

/* Searches on all ranks. *out is the report of the rank with the earliest place. */
static enum ct_status find(struct ct_session *s, ct_stepper *p, const struct ct_step_result *r, ct_json **out)
{
	struct ct__nan_place place = {.order = CT__NAN_UNKNOWN};
	ct_json *mine = ct_json_object();

	ct_session_phase(s, CT_RANK_SEARCHING, r->request.step);
	/* A rank that cannot search must still take part in what follows. */
	if (!s->pipe && ct_nan_search(s, p, r, &place, mine) < 0) {
		CT_WARN("this rank cannot find the first value that is not finite: %s", ct_error_message());
		ct_error_clear();
		place.order = CT__NAN_UNKNOWN;
	}
	if (place.order < CT__NAN_UNKNOWN)
		set_place(s, &place, mine);
	const enum ct_status st = share(s, place.order, mine, out);
	ct_json_destroy(mine);
	return st;
}

/* ---- output */

static enum ct_status write_file(const struct ct_session *s, const ct_json *report)
{
	struct ct_str text = {0};
	char *path;

	CT_TRY(ct_json_dump(report, true, &text));
	CT_TRY_ALLOC(path = ct_path_join(s->run.dir, "nan.json"));
	ct_str_add(&text, "\n");
	enum ct_status st = ct_str_status(&text);
	if (st == CT_OK)
		st = ct_file_replace(path, text.s, text.len);
	ct_free(path);
	ct_str_release(&text);
	return st;
}

/* The line of metrics.jsonl has what fits into a line. */
static enum ct_status write_line(ct_metrics_log *metrics, const ct_json *report)
{
	static const char *const texts[] = {"layer", "op", "first", "parameter", "message"};
	static const char *const numbers[] = {"step", "epoch", "rank", "not_finite", "values"};
	ct_json *line = ct_json_object();
	const char *text;
	int64_t n;

	for (size_t i = 0; i < CT_ARRAY_LEN(numbers); i++)
		if (ct_json_get(report, numbers[i]) && ct_json_get_i64(report, numbers[i], &n) == CT_OK)
			ct_json_set_i64(line, numbers[i], n);
	for (size_t i = 0; i < CT_ARRAY_LEN(texts); i++)
		if (ct_json_get(report, texts[i]) && ct_json_get_str(report, texts[i], &text) == CT_OK)
			ct_json_set_str(line, texts[i], text);
	return ct_metrics_nan(metrics, line);
}

static enum ct_status record(const struct ct_session *s, const struct ct_nan_history *h, const struct ct_step_result *r,
			     ct_json *report, ct_metrics_log *metrics)
{
	ct_json_set_i64(report, "v", 1);
	ct_json_set_i64(report, "step", (int64_t)r->request.step + 1);
	ct_json_set_i64(report, "epoch", s->state.epoch);
	ct_json_set_f64(report, "lr", r->request.lr);
	ct_json_set(report, "last_steps", last_steps(h));
	CT_TRY(write_file(s, report));
	return write_line(metrics, report);
}

/* Completes the error. */
static enum ct_status explain(const struct ct_session *s, const struct ct_error *error, const ct_json *report)
{
	const ct_json *samples = ct_json_get(report, "suspicious_samples");
	const char *message = NULL;
	struct ct_str ids = {0};
	int64_t id;

	if (ct_json_get(report, "message"))
		CT_TRY(ct_json_get_str(report, "message", &message));
	for (size_t i = 0; samples && i < ct_json_len(samples); i++)
		if (ct_json_as_i64(ct_json_at(samples, i), &id))
			ct_str_addf(&ids, " %lld", (long long)id);
	CT_FAIL(error->status, "%s%s%s", error->message, message ? "; " : "", message ? message : "");
	if (ids.len > 0 && ct_dataset_info(s->data.train)->kind != CT_SAMPLE_F32)
		ct_error_hint(
			"%s; %s/nan.json describes the failure; `ctrain data show %s/config.yaml%s` shows the samples",
			error->hint, s->run.dir, s->run.dir, ct_str_text(&ids));
	else
		ct_error_hint("%s; %s/nan.json describes the failure", error->hint, s->run.dir);
	ct_str_release(&ids);
	return error->status;
}

enum ct_status ct_nan_report(struct ct_session *s, ct_stepper *p, const struct ct_nan_history *h,
			     const struct ct_step_result *r, ct_metrics_log *metrics)
{
	struct ct_error error;
	ct_json *report = NULL;

	ct_error_save(&error);
	ct_error_clear();
	if (find(s, p, r, &report) < 0) {
		CT_WARN("cannot find the first value that is not finite: %s", ct_error_message());
		return ct_error_restore(&error);
	}
	if (metrics && record(s, h, r, report, metrics) < 0)
		CT_WARN("cannot write nan.json: %s", ct_error_message());
	ct_error_clear();
	if (explain(s, &error, report) != error.status)
		(void)ct_error_restore(&error);
	ct_json_destroy(report);
	return error.status;
}

enum ct_status ct_nan_report_remove(const char *run_dir)
{
	enum ct_status st = CT_OK;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(run_dir, "nan.json"));
	if (unlink(path) != 0 && errno != ENOENT)
		st = CT_FAIL(CT_IO, "cannot remove %s: %s", path, strerror(errno));
	ct_free(path);
	return st;
}
