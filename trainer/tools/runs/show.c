/* The table has a column for the best accuracy or, if no run has one, for the best loss. Settings that are the same in
 * all runs are omitted, so the last column shows what was tried. In a comparison, differences of time and speed are
 * relative to the first run, others are absolute. Two runs are the same if no setting differs and the digests of their
 * weights are equal. */
#include "trainer/tools/runs/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/run/metrics/console.h"
#include "trainer/tools/cli/text_table.h"
#include "trainer/tools/runs/run_plans.h"

#define SILENT_S 300 /* from then on, the table shows for how long a running run has written nothing */
#define UNKNOWN "-"

static const char *const state_colors[CT_RUN_STATES] = {"\033[36m", "\033[32m", "\033[33m", "\033[31m", "\033[31m"};

/* Returns the number of a field with this many digits, or "-". */
static const char *number(double v, int digits, char buf[32])
{
	if (!isfinite(v))
		return UNKNOWN;
	snprintf(buf, 32, "%.*f", digits, v);
	return buf;
}

static const char *span(double seconds, char buf[32])
{
	if (!isfinite(seconds))
		return UNKNOWN;
	ct_console_span(seconds, buf, 32);
	return buf;
}

static const char *rate(double v, char buf[32])
{
	if (!(v > 0))
		return UNKNOWN;
	ct_console_rate(v, buf, 32);
	return buf;
}

/* "3/90", or the steps if the length is given in steps. */
static void add_epochs(struct ct_text_table *t, const struct ct_run_info *r)
{
	if (r->epochs_total > 0)
		ct_text_table_add(t, NULL, "%.0f/%.0f", isnan(r->epochs) ? 0 : r->epochs, r->epochs_total);
	else if (r->step >= 0)
		ct_text_table_add(t, NULL, "%.0f/%.0f steps", r->step, r->steps_total);
	else
		ct_text_table_add(t, NULL, UNKNOWN);
}

static void add_state(struct ct_text_table *t, const struct ct_run_info *r)
{
	char buf[32];

	if (r->state == CT_RUN_RUNNING && r->silent > SILENT_S)
		ct_text_table_add(t, state_colors[r->state], "running, silent %s", span(r->silent, buf));
	else
		ct_text_table_add(t, state_colors[r->state], "%s", ct_run_state_name(r->state));
}

/* "optim.lr=0.1 model.name=resnet18", after the message of a run that has failed. */
static void add_differences(struct ct_text_table *t, const struct ct_run_info *r, const struct ct_run_keys *keys)
{
	struct ct_str text = {0};

	ct_str_add(&text, r->message);
	for (size_t i = 0; i < keys->n; i++) {
		const char *value = ct_run_setting(r, keys->keys[i]);

		if (value)
			ct_str_addf(&text, "%s%s=%s", text.len > 0 ? " " : "", keys->keys[i], value);
	}
	ct_text_table_add(t, NULL, "%s", ct_str_text(&text));
	t->failed |= text.failed;
	ct_str_release(&text);
}

static enum ct_status keys_of(const struct ct_run_list *l, struct ct_run_keys *out)
{
	const struct ct_run_info **all;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(const struct ct_run_info *, l->n));
	size_t n = 0;
	for (size_t i = 0; i < l->n; i++)
		if (l->runs[i].files.n_settings > 0) /* it may have failed before it wrote its config */
			all[n++] = &l->runs[i];
	const enum ct_status st = ct_run_keys_that_differ(all, n, out);
	ct_free((void *)all);
	return st;
}

enum ct_status ct_runs_table(const struct ct_run_list *l, int width, bool colors, struct ct_str *out)
{
	static const char *const titles[] = {"name",   "state", "best top1", "best loss",
					     "epochs", "time",  "images/s",  "differs in"};
	struct ct_text_table t = {.n_columns = CT_ARRAY_LEN(titles), .right = 0x7C};
	struct ct_run_keys keys = {0};
	enum ct_status st = keys_of(l, &keys);
	bool has_top1 = false;
	char a[32];

	for (size_t i = 0; i < CT_ARRAY_LEN(titles); i++)
		ct_text_table_add(&t, NULL, "%s", titles[i]);
	for (size_t i = 0; i < l->n; i++)
		has_top1 |= !isnan(l->runs[i].best_top1);
	for (size_t i = 0; i < l->n && st == CT_OK; i++) {
		const struct ct_run_info *r = &l->runs[i];

		ct_text_table_add(&t, NULL, "%s", r->name);
		add_state(&t, r);
		ct_text_table_add(&t, NULL, "%s", has_top1 ? number(r->best_top1, 4, a) : "");
		/* The loss only matters for models that have no accuracy. */
		ct_text_table_add(&t, NULL, "%s", has_top1 ? "" : number(r->best_loss, 4, a));
		add_epochs(&t, r);
		ct_text_table_add(&t, NULL, "%s", span(r->seconds, a));
		ct_text_table_add(&t, NULL, "%s", rate(r->images_per_sec, a));
		add_differences(&t, r, &keys);
	}
	if (st == CT_OK)
		st = ct_text_table_format(&t, width, colors, out);
	ct_run_keys_release(&keys);
	ct_text_table_release(&t);
	return st;
}

static ct_json *run_json(const struct ct_run_info *r)
{
	ct_json *j = ct_json_object();

	ct_json_set_str(j, "name", r->name);
	ct_json_set_str(j, "dir", r->dir);
	ct_json_set_str(j, "state", ct_run_state_name(r->state));
	ct_json_set_f64(j, "best_top1", r->best_top1);
	ct_json_set_f64(j, "best_loss", r->best_loss);
	ct_json_set_f64(j, "epochs", r->epochs);
	ct_json_set_f64(j, "total_epochs", r->epochs_total);
	ct_json_set_f64(j, "step", r->step);
	ct_json_set_f64(j, "total_steps", r->steps_total);
	ct_json_set_f64(j, "seconds", r->seconds);
	ct_json_set_f64(j, "images_per_sec", r->images_per_sec);
	ct_json_set_f64(j, "started", r->started);
	ct_json_set_f64(j, "silent_seconds", r->silent);
	ct_json_set_str(j, "message", r->message);
	return j;
}

static ct_json *settings_json(const struct ct_run_info *r, const struct ct_run_keys *keys)
{
	ct_json *j = ct_json_object();

	for (size_t i = 0; i < keys->n; i++) {
		const char *value = ct_run_setting(r, keys->keys[i]);

		if (value)
			ct_json_set_str(j, keys->keys[i], value);
	}
	return j;
}

enum ct_status ct_runs_json(const struct ct_run_list *l, ct_json **out)
{
	struct ct_run_keys keys = {0};
	const enum ct_status st = keys_of(l, &keys);

	*out = ct_json_array();
	for (size_t i = 0; i < l->n && st == CT_OK; i++) {
		ct_json *j = run_json(&l->runs[i]);

		ct_json_set(j, "differs", settings_json(&l->runs[i], &keys));
		ct_json_push(*out, j);
	}
	ct_run_keys_release(&keys);
	return st;
}

static const char *digest_of(const struct ct_run_info *r)
{
	return ct_line_str(r->files.end, "weights_digest", "");
}

static bool same_weights(const struct ct_run_info *a, const struct ct_run_info *b)
{
	return digest_of(a)[0] && strcmp(digest_of(a), digest_of(b)) == 0;
}

static void add_row(struct ct_text_table *t, const char *label, const char *a, const char *b, const char *difference)
{
	ct_text_table_add(t, NULL, "%s", label);
	ct_text_table_add(t, NULL, "%s", a);
	ct_text_table_add(t, NULL, "%s", b);
	ct_text_table_add(t, NULL, "%s", difference);
}

static void add_numbers(struct ct_text_table *t, const char *label, double a, double b, int digits)
{
	char x[32], y[32], d[32] = "";

	if (!isfinite(a) && !isfinite(b))
		return;
	if (isfinite(a) && isfinite(b) && fabs(b - a) > 0)
		snprintf(d, sizeof(d), "%+.*f", digits, b - a);
	add_row(t, label, number(a, digits, x), number(b, digits, y), d);
}

static void add_results(struct ct_text_table *t, const struct ct_run_info *a, const struct ct_run_info *b)
{
	char x[32], y[32], d[32] = "";

	/* Percentages are relative to the first run. */
	add_row(t, "state", ct_run_state_name(a->state), ct_run_state_name(b->state), "");
	add_numbers(t, "best top1", a->best_top1, b->best_top1, 4);
	add_numbers(t, "best evaluation loss", a->best_loss, b->best_loss, 4);
	add_numbers(t, "epochs", a->epochs, b->epochs, 0);
	add_numbers(t, "steps", a->step, b->step, 0);
	if (a->seconds > 0 && b->seconds > 0)
		snprintf(d, sizeof(d), "%+.1f %%", 100 * (b->seconds / a->seconds - 1));
	add_row(t, "time", span(a->seconds, x), span(b->seconds, y), d);
	d[0] = '\0';
	if (a->images_per_sec > 0 && b->images_per_sec > 0)
		snprintf(d, sizeof(d), "%+.1f %%", 100 * (b->images_per_sec / a->images_per_sec - 1));
	add_row(t, "images/s", rate(a->images_per_sec, x), rate(b->images_per_sec, y), d);
	add_row(t, "host", ct_line_str(a->files.run, "host", UNKNOWN), ct_line_str(b->files.run, "host", UNKNOWN), "");
	add_numbers(t, "ranks", ct_line_f64(a->files.run, "world_size"), ct_line_f64(b->files.run, "world_size"), 0);
	snprintf(x, sizeof(x), "%.12s", digest_of(a)[0] ? digest_of(a) : UNKNOWN);
	snprintf(y, sizeof(y), "%.12s", digest_of(b)[0] ? digest_of(b) : UNKNOWN);
	add_row(t, "weights", x, y, same_weights(a, b) ? "the same" : "");
}

static enum ct_status keys_of_two(const struct ct_run_info *a, const struct ct_run_info *b, struct ct_run_keys *out)
{
	return ct_run_keys_that_differ((const struct ct_run_info *const[]){a, b}, 2, out);
}

enum ct_status ct_runs_compare(const struct ct_run_info *a, const struct ct_run_info *b, int width, bool colors,
			       bool *same, struct ct_str *out)
{
	struct ct_text_table results = {.n_columns = 4}, config = {.n_columns = 3};
	struct ct_run_plans plans;
	struct ct_run_keys keys = {0};
	enum ct_status st = ct_run_plans_load(a->dir, b->dir, &plans);

	if (st == CT_OK)
		st = keys_of_two(a, b, &keys);
	add_row(&results, "result", a->name, b->name, "difference");
	add_results(&results, a, b);
	ct_text_table_add(&config, NULL, "config key");
	ct_text_table_add(&config, NULL, "%s", a->name);
	ct_text_table_add(&config, NULL, "%s", b->name);
	for (size_t i = 0; i < keys.n; i++) {
		const char *x = ct_run_setting(a, keys.keys[i]), *y = ct_run_setting(b, keys.keys[i]);

		ct_text_table_add(&config, NULL, "%s", keys.keys[i]);
		ct_text_table_add(&config, NULL, "%s", x ? x : UNKNOWN);
		ct_text_table_add(&config, NULL, "%s", y ? y : UNKNOWN);
	}
	if (st == CT_OK)
		st = ct_text_table_format(&results, width, colors, out);
	ct_str_add(out, "\n");
	ct_run_plans_describe(&plans, a->name, b->name, out);
	if (st == CT_OK && keys.n > 0)
		st = ct_text_table_format(&config, width, colors, out);
	else
		ct_str_add(out, "The configs are the same.\n");
	*same = keys.n == 0 && same_weights(a, b);
	ct_run_keys_release(&keys);
	ct_run_plans_release(&plans);
	ct_text_table_release(&config);
	ct_text_table_release(&results);
	return st == CT_OK ? ct_str_status(out) : st;
}

enum ct_status ct_runs_compare_json(const struct ct_run_info *a, const struct ct_run_info *b, bool *same, ct_json **out)
{
	const struct ct_run_info *const runs[] = {a, b};
	struct ct_run_plans plans;
	struct ct_run_keys keys = {0};
	enum ct_status st = ct_run_plans_load(a->dir, b->dir, &plans);
	ct_json *list = ct_json_array();

	if (st == CT_OK)
		st = keys_of_two(a, b, &keys);
	for (int i = 0; i < 2; i++) {
		ct_json *j = run_json(runs[i]);

		ct_json_set_str(j, "weights_digest", digest_of(runs[i]));
		ct_json_set(j, "differs", settings_json(runs[i], &keys));
		ct_json_push(list, j);
	}
	*out = ct_json_object();
	ct_json_set(*out, "runs", list);
	ct_json_set_bool(*out, "same_config", keys.n == 0);
	ct_json_set_bool(*out, "same_weights", same_weights(a, b));
	ct_run_plans_set_json(&plans, *out);
	*same = keys.n == 0 && same_weights(a, b);
	ct_run_keys_release(&keys);
	ct_run_plans_release(&plans);
	return st;
}
