/* The configuration and the environment of the runs. A single run shows the keys that were set, and all keys in a part
 * that can be opened. Several runs are compared: keys that differ come first. The keys are the union over all runs,
 * since versions of ctrain may have different ones; a key is handled at the first run that has it, so it appears once,
 * and a run without it counts as different. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/tools/report/page_impl.h"

static void begin_section(struct ct__page *p, const char *title, const char *class)
{
	ct__html_element(&p->html, "h2", title);
	ct_str_addf(&p->html.out, "<div class=\"card pad %s\">", class);
}

static void mono_cell(struct ct__page *p, const char *text)
{
	ct_str_add(&p->html.out, "<td class=\"mono\">");
	ct__html_text(&p->html.out, text);
	ct_str_add(&p->html.out, "</td>");
}

static void config_of_one(struct ct__page *p)
{
	const struct ct_run_files *r = &p->runs[0];

	begin_section(p, "Configuration", "config");
	for (int all = 0; all < 2; all++) {
		if (all)
			ct_str_addf(&p->html.out, "<details><summary>All %zu keys</summary>", r->n_settings);
		ct__page_table(p, "key|value|set by");
		for (size_t i = 0; i < r->n_settings; i++) {
			const struct ct_run_setting *s = &r->settings[i];

			if (!all && s->is_default)
				continue;
			ct_str_add(&p->html.out, all && !s->is_default ? "<tr class=\"changed\">" : "<tr>");
			mono_cell(p, s->key);
			mono_cell(p, s->value);
			ct__html_element(&p->html, "td", s->origin);
			ct_str_add(&p->html.out, "</tr>\n");
		}
		ct_str_add(&p->html.out, all ? "</tbody></table></details>" : "</tbody></table>");
	}
	ct_str_add(&p->html.out, "</div>\n");
}

static void run_titles(struct ct__page *p, const char *first)
{
	ct_str_add(&p->html.out, "<table><thead><tr>");
	ct__html_element(&p->html, "th", first);
	for (int i = 0; i < p->n; i++)
		ct__html_element(&p->html, "th", p->names[i]);
	ct_str_add(&p->html.out, "</tr></thead><tbody>\n");
}

/* Adds the row of a key, if the runs have different values and `differing` is set, or if they are equal and it is not.
 */
static void compare_key(struct ct__page *p, const char *key, bool differing)
{
	const struct ct_run_setting *first = ct_run_setting_find(&p->runs[0], key);
	bool differs = false;

	for (int i = 1; i < p->n; i++) {
		const struct ct_run_setting *s = ct_run_setting_find(&p->runs[i], key);

		differs |= !s != !first || (s && strcmp(s->value, first->value) != 0);
	}
	if (differs != differing)
		return;
	ct_str_add(&p->html.out, "<tr>");
	mono_cell(p, key);
	for (int i = 0; i < p->n; i++) {
		const struct ct_run_setting *s = ct_run_setting_find(&p->runs[i], key);

		mono_cell(p, s ? s->value : "");
	}
	ct_str_add(&p->html.out, "</tr>\n");
}

static void config_of_several(struct ct__page *p)
{
	for (int equal = 0; equal < 2; equal++) {
		if (equal)
			ct_str_add(&p->html.out, "<details><summary>Keys with the same value in all runs</summary>");
		else
			begin_section(p, "Differences in the configuration", "wider");
		run_titles(p, "key");
		for (int k = 0; k < p->n; k++) {
			for (size_t i = 0; i < p->runs[k].n_settings; i++) {
				const char *key = p->runs[k].settings[i].key;
				bool seen = false;

				for (int j = 0; j < k; j++)
					seen |= ct_run_setting_find(&p->runs[j], key) != NULL;
				if (!seen)
					compare_key(p, key, !equal);
			}
		}
		ct_str_add(&p->html.out, equal ? "</tbody></table></details></div>\n" : "</tbody></table>\n");
	}
}

void ct__page_config(struct ct__page *p)
{
	size_t n = 0;

	for (int i = 0; i < p->n; i++)
		n += p->runs[i].n_settings;
	if (n > 0 && p->n == 1)
		config_of_one(p);
	else if (n > 0)
		config_of_several(p);
}

static void add_member(struct ct__page *p, const ct_json *line, const char *key)
{
	const ct_json *v = line ? ct_json_get(line, key) : NULL;
	double number;
	int64_t integer;

	if (v && ct_json_as_str(v)) {
		mono_cell(p, ct_json_as_str(v));
		return;
	}
	ct_str_add(&p->html.out, "<td class=\"mono\">");
	if (v && ct_json_as_i64(v, &integer))
		ct_str_addf(&p->html.out, "%lld", (long long)integer);
	else if (v && ct_json_as_f64(v, &number))
		ct_str_addf(&p->html.out, fabs(number) < 1000 ? "%.4g" : "%.10g", number);
	ct_str_add(&p->html.out, "</td>");
}

static void member_row(struct ct__page *p, const char *title, const char *key, bool end)
{
	ct_str_add(&p->html.out, "<tr>");
	ct__html_element(&p->html, "td", title);
	for (int i = 0; i < p->n; i++)
		add_member(p, end ? p->runs[i].end : p->runs[i].run, key);
	ct_str_add(&p->html.out, "</tr>\n");
}

void ct__page_environment(struct ct__page *p)
{
	static const struct {
		const char *title, *key;
		bool end; /* in the line `end`, not `run` */
	} rows[] = {
		{"ctrain", "version", false},
		{"host of rank 0", "host", false},
		{"ranks", "world_size", false},
		{"ranks per node", "ranks_per_node", false},
		{"nodes", "nodes", false},
		{"stages of the pipeline", "stages", false},
		{"launcher", "launcher", false},
		{"engine", "engine", false},
		{"communicator", "backend", false},
		{"precision", "precision", false},
		{"compute threads per rank", "threads", false},
		{"loader threads per rank", "loader_threads", false},
		{"model", "model", false},
		{"parameters", "params", false},
		{"forward FLOP per image", "forward_flops", false},
		{"data", "data", false},
		{"global batch", "global_batch", false},
		{"learning rate", "lr", false},
		{"seed", "seed", false},
		{"steps per epoch", "steps_per_epoch", false},
		{"seconds until the first step was done", "startup_seconds", true},
		{"digest of the configuration", "config_digest", false},
		{"digest of the plan", "plan_digest", false},
		{"digest of the weights", "weights_digest", true},
	};

	begin_section(p, "Environment", p->n > 1 ? "wider" : "");
	run_titles(p, "");
	for (size_t i = 0; i < CT_ARRAY_LEN(rows); i++)
		member_row(p, rows[i].title, rows[i].key, rows[i].end);
	ct_str_add(&p->html.out, "</tbody></table></div>\n");
}
