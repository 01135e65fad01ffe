/* The head of a report: the most important numbers; and the tables of runs and of epochs. A value that a run does not
 * have is NaN, and its tile or the text in its cell is omitted. The duration is the sum over all processes of the run,
 * so time between restarts does not count. Epochs and evaluations come in the order of their steps, as in
 * metrics.jsonl, so one pass over the evaluations finds those of each epoch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/tools/report/chart_impl.h"
#include "trainer/tools/report/page_impl.h"

double ct__run_best_top1(const struct ct_run_files *r)
{
	double best = NAN;

	for (size_t i = 0; i < r->evals.n; i++)
		best = fmax(best, ct_table_at(&r->evals, i, CT_EVAL_TOP1)); /* fmax ignores NaN */
	return best;
}

static double best_loss(const struct ct_run_files *r)
{
	double best = NAN;

	for (size_t i = 0; i < r->evals.n; i++)
		best = fmin(best, ct_table_at(&r->evals, i, CT_EVAL_LOSS));
	return best;
}

double ct__run_seconds(const struct ct_run_files *r)
{
	double sum = 0;

	for (size_t i = 0; i < r->n_lines; i++) {
		const double s = ct_line_f64(r->lines[i], "seconds");

		if (strcmp(ct_line_str(r->lines[i], "kind", ""), "end") == 0 && isfinite(s))
			sum += s;
	}
	return sum;
}

void ct__page_table(struct ct__page *p, const char *titles)
{
	ct_str_add(&p->html.out, "<table><thead><tr>");
	for (const char *at = titles; *at;) {
		const size_t n = strcspn(at, "|");
		char *title = ct_strndup(at, n);

		ct_str_add(&p->html.out, *at == '#' ? "<th class=\"n\">" : "<th>");
		ct__html_text(&p->html.out, title ? title + (*at == '#') : "");
		ct_str_add(&p->html.out, "</th>");
		ct_free(title);
		at += n + (at[n] == '|');
	}
	ct_str_add(&p->html.out, "</tr></thead><tbody>\n");
}

void ct__page_number(struct ct__page *p, double v, int digits)
{
	ct_str_add(&p->html.out, "<td class=\"n\">");
	if (isfinite(v))
		ct_str_addf(&p->html.out, "%.*g", digits, v);
	ct_str_add(&p->html.out, "</td>");
}

static void add_percent(struct ct__page *p, double v)
{
	ct_str_add(&p->html.out, "<td class=\"n\">");
	if (isfinite(v))
		ct_str_addf(&p->html.out, "%.2f%%", 100 * v);
	ct_str_add(&p->html.out, "</td>");
}

static void span(double seconds, char *out, size_t size)
{
	const long long s = llround(seconds);

	if (seconds < 60)
		snprintf(out, size, "%.1f s", seconds);
	else
		snprintf(out, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

static void tile(struct ct__page *p, const char *value, const char *label)
{
	ct_str_add(&p->html.out, "<div class=\"tile\">");
	ct__html_element(&p->html, "b", value);
	ct__html_element(&p->html, "span", label);
	ct_str_add(&p->html.out, "</div>\n");
}

static void number_tile(struct ct__page *p, double v, bool share, const char *label)
{
	char text[32];

	if (!isfinite(v))
		return;
	ct__chart_number(v, share, text, sizeof(text));
	tile(p, text, label);
}

static const char *status_of(const struct ct_run_files *r)
{
	return ct_line_str(r->end, "status", "not finished");
}

static double steps_of(const struct ct_run_files *r)
{
	double last = ct_line_f64(r->end, "step");

	if (!isfinite(last) && r->steps.n > 0)
		last = ct_table_at(&r->steps, r->steps.n - 1, CT_STEP_STEP);
	return last;
}

static void overview_of_one(struct ct__page *p)
{
	const struct ct_run_files *r = &p->runs[0];
	const double top1 = ct__run_best_top1(r);
	char text[64];

	ct_str_add(&p->html.out, "<h1>");
	ct__html_text(&p->html.out, p->names[0]);
	snprintf(text, sizeof(text), "%.0f", ct_line_f64(r->run, "world_size"));
	ct_str_add(&p->html.out, "</h1>\n<p class=\"sub\">");
	ct__html_text(&p->html.out, ct_line_str(r->run, "model", "model"));
	ct_str_add(&p->html.out, " on ");
	ct__html_text(&p->html.out, ct_line_str(r->run, "data", "data"));
	if (r->run)
		ct_str_addf(&p->html.out, ", %s rank%s", text, strcmp(text, "1") == 0 ? "" : "s");
	ct_str_add(&p->html.out, ": ");
	ct__html_text(&p->html.out, status_of(r));
	ct_str_add(&p->html.out, "</p>\n<div class=\"tiles\">\n");
	number_tile(p, top1, true, "best top-1 accuracy");
	number_tile(p, best_loss(r), false, "lowest evaluation loss");
	number_tile(p, ct_line_f64(r->end, "last_loss"), false, "last training loss");
	number_tile(p, steps_of(r), false, "steps");
	number_tile(p, ct_line_f64(r->end, "epoch"), false, "epochs");
	if (r->end) {
		span(ct__run_seconds(r), text, sizeof(text));
		tile(p, text, "duration");
	}
	number_tile(p, ct_line_f64(r->end, "images_per_sec"), false, "images per second");
	number_tile(p, ct_line_f64(r->run, "params"), false, "parameters");
	ct_str_add(&p->html.out, "</div>\n");
	if (ct_line_str(r->end, "message", NULL)) {
		ct_str_add(&p->html.out, "<p class=\"bad\">");
		ct__html_text(&p->html.out, ct_line_str(r->end, "message", ""));
		ct_str_add(&p->html.out, "</p>\n");
	}
}

void ct__page_bottleneck(struct ct__page *p)
{
	const char *text = p->n == 1 ? ct_line_str(p->runs[0].epoch, "verdict", "") : "";

	if (!text[0])
		return;
	ct_str_add(&p->html.out, "<div class=\"card pad wide\"><h3>Bottleneck in the last epoch</h3>");
	ct__html_element(&p->html, "p", text);
	ct_str_add(&p->html.out, "</div>\n");
}

static void overview_of_several(struct ct__page *p)
{
	char text[64];

	ct_str_addf(&p->html.out, "<h1>%d runs</h1>\n<p class=\"sub\"></p>\n<div class=\"card pad scroll\">", p->n);
	ct__page_table(p, "run|state|model|data|#best top-1|#lowest loss|#steps|#epochs|#duration|#images/s");
	for (int i = 0; i < p->n; i++) {
		const struct ct_run_files *r = &p->runs[i];

		ct_str_addf(&p->html.out, "<tr><td><i class=\"chip b%d\"></i>", INK_SERIES + i % N_SERIES_INKS);
		ct__html_text(&p->html.out, p->names[i]);
		ct_str_add(&p->html.out, "</td>");
		ct__html_element(&p->html, "td", status_of(r));
		ct__html_element(&p->html, "td", ct_line_str(r->run, "model", ""));
		ct__html_element(&p->html, "td", ct_line_str(r->run, "data", ""));
		add_percent(p, ct__run_best_top1(r));
		ct__page_number(p, best_loss(r), 4);
		ct__page_number(p, steps_of(r), 12);
		ct__page_number(p, ct_line_f64(r->end, "epoch"), 12);
		span(ct__run_seconds(r), text, sizeof(text));
		ct_str_addf(&p->html.out, "<td class=\"n\">%s</td>", r->end ? text : "");
		ct__page_number(p, ct_line_f64(r->end, "images_per_sec"), 4);
		ct_str_add(&p->html.out, "</tr>\n");
	}
	ct_str_add(&p->html.out, "</tbody></table></div>\n");
}

void ct__page_overview(struct ct__page *p)
{
	ct_str_add(&p->html.out, "<header>\n");
	if (p->n == 1)
		overview_of_one(p);
	else
		overview_of_several(p);
	ct_str_add(&p->html.out, "</header>\n");
}

/* The evaluations of the last step of an epoch, or of an earlier step. */
static void add_epoch(struct ct__page *p, const struct ct_run_files *r, size_t i, size_t *eval)
{
	const struct ct_table *t = &r->epochs, *e = &r->evals;
	const double step = ct_table_at(t, i, CT_EPOCH_STEP);
	const double seconds = ct_table_at(t, i, CT_EPOCH_SECONDS);
	bool found = false;

	while (*eval < e->n && ct_table_at(e, *eval, CT_EVAL_STEP) <= step) {
		found = ct_table_at(e, *eval, CT_EVAL_STEP) == step;
		(*eval)++;
	}
	ct_str_add(&p->html.out, "<tr>");
	ct__page_number(p, ct_table_at(t, i, CT_EPOCH_EPOCH) + 1, 12);
	ct__page_number(p, step, 12);
	ct__page_number(p, ct_table_at(t, i, CT_EPOCH_LOSS), 5);
	ct__page_number(p, found ? ct_table_at(e, *eval - 1, CT_EVAL_LOSS) : NAN, 5);
	add_percent(p, found ? ct_table_at(e, *eval - 1, CT_EVAL_TOP1) : NAN);
	add_percent(p, found ? ct_table_at(e, *eval - 1, CT_EVAL_TOP5) : NAN);
	ct__page_number(p, ct_table_at(t, i, CT_EPOCH_IMAGES), 12);
	ct__page_number(p, ct_table_at(t, i, CT_EPOCH_TIMED) / seconds, 4);
	ct__page_number(p, seconds, 4);
	ct_str_add(&p->html.out, "</tr>\n");
}

void ct__page_epochs(struct ct__page *p)
{
	enum { MAX_ROWS = 1000 };

	for (int k = 0; k < p->n; k++) {
		const struct ct_run_files *r = &p->runs[k];
		const size_t skip = r->epochs.n > MAX_ROWS ? r->epochs.n - MAX_ROWS : 0;
		size_t eval = 0;

		if (r->epochs.n == 0)
			continue;
		ct_str_add(&p->html.out, "<details><summary>Table of epochs");
		if (p->n > 1) {
			ct_str_add(&p->html.out, ": ");
			ct__html_text(&p->html.out, p->names[k]);
		}
		ct_str_add(&p->html.out, "</summary><div class=\"card pad scroll\">");
		ct__page_table(p,
			       "#epoch|#step|#training loss|#evaluation loss|#top-1|#top-5|#images|#images/s|#seconds");
		for (size_t i = skip; i < r->epochs.n; i++)
			add_epoch(p, r, i, &eval);
		ct_str_add(&p->html.out, "</tbody></table></div></details>\n");
	}
}
