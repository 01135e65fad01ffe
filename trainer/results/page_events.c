/* What happened in the runs: starts, restarts, checkpoints, unreadable samples, stragglers and the end. */
#include <math.h>
#include <string.h>

#include "trainer/results/page_impl.h"

enum { MAX_EVENTS = 200 };

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
		ct_str_addf(out, "Restart %.0f of %.0f: %s", ct_line_f64(line, "restart"), ct_line_f64(line, "restarts"),
			    ct_line_str(line, "message", ""));
	} else if (strcmp(kind, "straggler") == 0) {
		*class = "bad";
		ct_str_addf(out, "Rank %.0f on %s was late by %.3g ms per step (%s)", ct_line_f64(line, "rank"),
			    ct_line_str(line, "host", "?"), ct_line_f64(line, "late_ms"),
			    ct_line_str(line, "phase", "?"));
	} else if (strcmp(kind, "checkpoint") == 0) {
		ct_str_addf(out, "Checkpoint of %.4g MB in %.2g s, of which training waited for %.2g s",
			    ct_line_f64(line, "bytes") * 1e-6, ct_line_f64(line, "seconds"),
			    ct_line_f64(line, "exposed_seconds"));
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

static void events_of(struct ct__page *p, const struct ct_run_files *r)
{
	struct ct_str text = {0};
	const char *class;
	size_t n = 0, i = r->n_lines;
	while (i > 0 && n < MAX_EVENTS)
		n += describe(r->lines[--i], &text, &class);
	if (n == MAX_EVENTS)
		ct_str_addf(&p->html.out, "<p class=\"note\">The last %d events:</p>", MAX_EVENTS);
	ct__page_table(p, "#step|event");
	for (; i < r->n_lines; i++) {
		double step = ct_line_f64(r->lines[i], "step");
		if (!describe(r->lines[i], &text, &class))
			continue;
		if (!isfinite(step))
			step = ct_line_f64(r->lines[i], "resumed_step");
		ct_str_add(&p->html.out, "<tr>");
		ct__page_number(p, step, 15);
		ct_str_addf(&p->html.out, "<td class=\"%s\">", class);
		ct__html_text(&p->html.out, ct_str_text(&text));
		ct_str_add(&p->html.out, "</td></tr>\n");
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
