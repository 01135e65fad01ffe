/* What happened in the runs: starts, restarts, checkpoints, unreadable samples, stragglers and the end. Checkpoints
 * without another event between them share a row, otherwise a long run would show nothing else. Only the last 200 rows
 * are shown: a first pass from the end counts rows to find where to begin, and the second pass writes them. Both must
 * agree on what a row is, so both ask checkpoint_follows and describe. */
#include <math.h>
#include <string.h>

#include "trainer/tools/report/page_impl.h"

enum { MAX_EVENTS = 200 };

static bool is_checkpoint(const ct_json *line)
{
	return strcmp(ct_line_str(line, "kind", ""), "checkpoint") == 0;
}

static void add_seconds(struct ct_str *out, double s)
{
	ct_str_addf(out, s < 1 ? "%.3g ms" : "%.3g s", s < 1 ? 1e3 * s : s);
}

/* Describes a line of metrics.jsonl. Returns false if the report does not show it. */
static bool describe(const ct_json *line, struct ct_str *out, const char **class)
{
	const char *kind = ct_line_str(line, "kind", "");

	*class = "";
	ct_str_clear(out);
	if (strcmp(kind, "run") == 0) {
		const double step = ct_line_f64(line, "resumed_step");

		ct_str_addf(out, "%s with %.0f ranks on %s", step > 0 ? "Resumed from a checkpoint" : "Started",
			    ct_line_f64(line, "world_size"), ct_line_str(line, "host", "?"));
	} else if (strcmp(kind, "restart") == 0) {
		*class = "bad";
		ct_str_addf(out, "Restart %.0f of %.0f: %s", ct_line_f64(line, "restart"),
			    ct_line_f64(line, "restarts"), ct_line_str(line, "message", ""));
	} else if (strcmp(kind, "straggler") == 0) {
		*class = "bad";
		ct_str_addf(out, "Rank %.0f on %s was late by %.3g ms per step (%s)", ct_line_f64(line, "rank"),
			    ct_line_str(line, "host", "?"), ct_line_f64(line, "late_ms"),
			    ct_line_str(line, "phase", "?"));
	} else if (strcmp(kind, "nan") == 0) {
		*class = "bad";
		ct_str_addf(out, "The loss or the gradient is not finite%s%s (nan.json has details)",
			    ct_line_str(line, "message", NULL) ? ": " : "", ct_line_str(line, "message", ""));
	} else if (strcmp(kind, "checkpoint") == 0) {
		ct_str_addf(out, "Checkpoint of %.4g MB in ", ct_line_f64(line, "bytes") * 1e-6);
		add_seconds(out, ct_line_f64(line, "seconds"));
		ct_str_add(out, "; training waited for ");
		add_seconds(out, ct_line_f64(line, "exposed_seconds"));
	} else if (strcmp(kind, "epoch") == 0) {
		const double bad = ct_line_f64(line, "bad_samples"), damaged = ct_line_f64(line, "damaged_images");

		*class = "bad";
		if (!(bad > 0) && !(damaged > 0))
			return false;
		ct_str_addf(out, "Epoch %.0f: %.0f unreadable samples were replaced, and %.0f damaged images were used",
			    ct_line_f64(line, "epoch") + 1, bad, damaged);
	} else if (strcmp(kind, "end") == 0) {
		const char *message = ct_line_str(line, "message", NULL);

		*class = message ? "bad" : "";
		ct_str_addf(out, "End: %s%s%s", ct_line_str(line, "status", "?"), message ? ": " : "",
			    message ? message : "");
	} else {
		return false;
	}
	return true;
}

/* Checkpoints without another event between them, which share a row. */
struct checkpoints {
	int n;
	double first, waited; /* step of the first one; seconds that training waited for all of them */
};

/* Is this line a checkpoint, and the next event, too? */
static bool checkpoint_follows(const struct ct_run_files *r, size_t i, struct ct_str *text)
{
	const char *class;

	for (size_t k = i + 1; is_checkpoint(r->lines[i]) && k < r->n_lines; k++) {
		if (describe(r->lines[k], text, &class))
			return is_checkpoint(r->lines[k]);
	}
	return false;
}

/* Describes the row that ends with this checkpoint, if it has several. */
static void end_checkpoints(struct checkpoints *c, const ct_json *line, struct ct_str *out)
{
	if (c->n > 1) {
		ct_str_clear(out);
		ct_str_addf(out, "%d checkpoints since step %.0f, the last of %.4g MB; training waited for ", c->n,
			    c->first, ct_line_f64(line, "bytes") * 1e-6);
		add_seconds(out, c->waited);
		ct_str_add(out, " in all");
	}
	*c = (struct checkpoints){0};
}

static void add_event(struct ct__page *p, const ct_json *line, const char *text, const char *class)
{
	const double step = ct_line_f64(line, "step");

	ct_str_add(&p->html.out, "<tr>");
	ct__page_number(p, isfinite(step) ? step : ct_line_f64(line, "resumed_step"), 15);
	ct_str_addf(&p->html.out, "<td class=\"%s\">", class);
	ct__html_text(&p->html.out, text);
	ct_str_add(&p->html.out, "</td></tr>\n");
}

static void events_of(struct ct__page *p, const struct ct_run_files *r)
{
	struct checkpoints saved = {0};
	struct ct_str text = {0};
	const char *class;
	size_t n = 0, i = r->n_lines;

	for (; i > 0 && n < MAX_EVENTS; i--)
		n += !checkpoint_follows(r, i - 1, &text) && describe(r->lines[i - 1], &text, &class);
	if (n == MAX_EVENTS)
		ct_str_addf(&p->html.out, "<p class=\"note\">The last %d events:</p>", MAX_EVENTS);
	ct__page_table(p, "#step|event");
	for (; i < r->n_lines; i++) {
		const ct_json *line = r->lines[i];
		const bool more = checkpoint_follows(r, i, &text);

		if (is_checkpoint(line)) {
			saved.first = saved.n == 0 ? ct_line_f64(line, "step") : saved.first;
			saved.waited += ct_line_f64(line, "exposed_seconds");
			saved.n++;
		}
		if (more || !describe(line, &text, &class))
			continue;
		if (is_checkpoint(line))
			end_checkpoints(&saved, line, &text);
		add_event(p, line, ct_str_text(&text), class);
	}
	ct_str_add(&p->html.out, "</tbody></table>\n");
	p->html.out.failed |= text.failed;
	ct_str_release(&text);
}

void ct__page_events(struct ct__page *p)
{
	ct__html_element(&p->html, "h2", "Events");
	for (int i = 0; i < p->n; i++) {
		ct_str_add(&p->html.out, "<div class=\"card pad scroll\">");
		if (p->n > 1)
			ct__html_element(&p->html, "h3", p->names[i]);
		events_of(p, &p->runs[i]);
		ct_str_add(&p->html.out, "</div>\n");
	}
}
