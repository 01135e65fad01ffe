/* metrics.jsonl is read line by line; lines for steps and evaluations become rows of numbers, because there may be many
 * of them, and the others remain JSON. A run that was continued has several `run` and `end` lines. If a finished run is
 * started again, it trains nothing; the two lines of such a start are removed, so that the result is that of the
 * training. config.yaml is read in the exact form in which ctrain writes it, without a YAML parser, because the origin
 * of each value is in a comment. */
#define CT_LOG_COMPONENT "report"
#include "trainer/tools/report/run_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/config/config.h"
#include "trainer/run/metrics/metrics.h"

#define MAX_METRICS ((size_t)1 << 30)
#define MAX_CONFIG ((size_t)1 << 20)
#define MAX_DEPTH 8 /* of sections in config.yaml */

static const char *const step_names[CT_STEP_COLUMNS] = {"step",           "loss",        "lr",
							"images_per_sec", "grad_norm",   "data_ms",
							"forward_ms",     "backward_ms", "exposed_comm_ms",
							"optim_ms",       "other_ms"};
static const char *const epoch_names[CT_EPOCH_COLUMNS] = {"epoch",  "step",         "train_loss",
							  "images", "timed_images", "seconds"};
static const char *const eval_names[CT_EVAL_COLUMNS] = {"epoch", "step", "loss", "top1", "top5"};

double ct_table_at(const struct ct_table *t, size_t row, int column)
{
	return t->values[row * (size_t)t->n_columns + (size_t)column];
}

static enum ct_status add_row(struct ct_table *t, const ct_json *line)
{
	const size_t width = (size_t)t->n_columns;

	CT_TRY_GROW(t->values, (t->n + 1) * width - 1, t->cap);
	for (size_t i = 0; i < width; i++)
		t->values[t->n * width + i] = ct_line_f64(line, t->names[i]);
	t->n++;
	return CT_OK;
}

const char *ct_line_str(const ct_json *line, const char *key, const char *fallback)
{
	const char *s = line ? ct_json_as_str(ct_json_get(line, key)) : NULL;

	return s ? s : fallback;
}

double ct_line_f64(const ct_json *line, const char *key)
{
	double v = NAN;
	const ct_json *j = line ? ct_json_get(line, key) : NULL;

	return j && ct_json_as_f64(j, &v) ? v : NAN;
}

static const ct_json *find_last(const struct ct_run_files *r, const char *kind)
{
	for (size_t i = r->n_lines; i-- > 0;) {
		if (strcmp(ct_line_str(r->lines[i], "kind", ""), kind) == 0)
			return r->lines[i];
	}
	return NULL;
}

/* Takes `line`. */
static enum ct_status add_line(struct ct_run_files *r, ct_json *line)
{
	const char *kind = ct_json_is_object(line) ? ct_line_str(line, "kind", "") : "";
	enum ct_status st = CT_OK;

	if (strcmp(kind, "step") == 0)
		st = add_row(&r->steps, line);
	else if (strcmp(kind, "eval") == 0)
		st = add_row(&r->evals, line);
	else if (strcmp(kind, "epoch") == 0)
		st = add_row(&r->epochs, line);
	if (st < 0 || strcmp(kind, "step") == 0 || strcmp(kind, "eval") == 0 || !kind[0]) {
		ct_json_destroy(line);
		return st;
	}
	/* A start of a finished run trains nothing: the result of the run is that of the earlier starts. */
	if (r->end && strcmp(kind, "end") == 0 && ct_run_end_of(ct_line_str(line, "status", "")) == CT_END_BEFORE) {
		ct_json_destroy(line);
		if (r->n_lines > 0 && r->lines[r->n_lines - 1] == r->run) {
			ct_json_destroy(r->lines[--r->n_lines]);
			r->run = find_last(r, "run");
		}
		return CT_OK;
	}
	if (r->n_lines == r->cap_lines) {
		ct_json **lines = ct_array_grow(r->lines, r->n_lines, &r->cap_lines, sizeof(*lines));

		if (!lines) {
			ct_json_destroy(line);
			return CT_NOMEM;
		}
		r->lines = lines;
	}
	r->lines[r->n_lines++] = line;
	if (strcmp(kind, "run") == 0)
		r->run = line;
	else if (strcmp(kind, "epoch") == 0)
		r->epoch = line;
	else if (strcmp(kind, "end") == 0)
		r->end = line;
	return CT_OK;
}

static enum ct_status load_metrics(struct ct_run_files *r)
{
	char *path, *data = NULL;
	size_t len, bad = 0;

	CT_TRY_ALLOC(path = ct_path_join(r->dir, "metrics.jsonl"));
	enum ct_status st = ct_file_read(path, MAX_METRICS, &data, &len);
	for (char *at = data, *end; st == CT_OK && (end = memchr(at, '\n', len - (size_t)(at - data))); at = end + 1) {
		ct_json *line;

		if (ct_json_parse(at, (size_t)(end - at), path, &line) == CT_OK) {
			st = add_line(r, line);
			continue;
		}
		if (ct_error_status() == CT_NOMEM)
			st = CT_NOMEM;
		ct_error_clear();
		bad++;
	}
	if (bad > 0)
		CT_WARN("%s: %zu line%s not valid JSON, skipped", path, bad, bad == 1 ? " is" : "s are");
	ct_free(data);
	ct_free(path);
	return st;
}

/* Removes the quotes of a YAML string in place. */
static void unquote(char *s)
{
	const size_t n = strlen(s);
	char *to = s;

	if (n < 2 || s[0] != '"' || s[n - 1] != '"')
		return;
	for (const char *from = s + 1; from < s + n - 1; from++) {
		from += *from == '\\' && (from[1] == '"' || from[1] == '\\');
		*to++ = *from;
	}
	*to = '\0';
}

static enum ct_status add_setting(struct ct_run_files *r, const char *key, const char *value, size_t n_value,
				  const char *origin)
{
	CT_TRY_GROW(r->settings, r->n_settings, r->cap_settings);
	struct ct_run_setting *s = &r->settings[r->n_settings++];
	*s = (struct ct_run_setting){.key = ct_strdup(key),
				     .value = ct_strndup(value, n_value),
				     .origin = ct_strdup(origin),
				     .is_default = strcmp(origin, CT_CONFIG_DEFAULT) == 0};
	if (s->value)
		unquote(s->value);
	return s->key && s->value && s->origin ? CT_OK : CT_NOMEM;
}

/* Reads the form that ct_config_dump writes: "key: value  # origin", indented by two spaces for each section. */
static enum ct_status add_config_line(struct ct_run_files *r, char *line, char *prefix[MAX_DEPTH + 1])
{
	char *text = line + strspn(line, " "), *colon = strchr(text, ':'), *comment = NULL;
	const size_t depth = (size_t)(text - line) / 2;
	char key[256];

	if (!colon || *text == '#' || depth >= MAX_DEPTH)
		return CT_OK;
	*colon = '\0';
	snprintf(key, sizeof(key), "%s%s", depth > 0 && prefix[depth] ? prefix[depth] : "", text);
	char *value = colon + 1;
	if (!*value) { /* a section */
		ct_free(prefix[depth + 1]);
		CT_TRY_ALLOC(prefix[depth + 1] = ct_strfmt("%s.", key));
		return CT_OK;
	}
	value += strspn(value, " ");
	for (char *at = value; (at = strstr(at, CT_CONFIG_ORIGIN_MARK)); at++)
		comment = at;
	const size_t n = comment ? (size_t)(comment - value) : strlen(value);
	return add_setting(r, key, value, n, comment ? comment + strlen(CT_CONFIG_ORIGIN_MARK) : "");
}

static enum ct_status load_config(struct ct_run_files *r)
{
	char *path, *text = NULL, *prefix[MAX_DEPTH + 1] = {0}, *save = NULL;
	size_t len;

	CT_TRY_ALLOC(path = ct_path_join(r->dir, "config.yaml"));
	enum ct_status st = ct_file_exists(path) ? ct_file_read(path, MAX_CONFIG, &text, &len) : CT_OK;
	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && st == CT_OK;
	     line = strtok_r(NULL, "\n", &save))
		st = add_config_line(r, line, prefix);
	for (int i = 0; i <= MAX_DEPTH; i++)
		ct_free(prefix[i]);
	ct_free(text);
	ct_free(path);
	return st;
}

static enum ct_status load_classes(struct ct_run_files *r)
{
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(r->dir, "classes.txt"));
	enum ct_status st = ct_file_exists(path) ? ct_class_list_load(path, &r->classes) : CT_OK;
	ct_free(path);
	return st;
}

enum ct_status ct_run_files_load(const char *dir, struct ct_run_files *out)
{
	*out = (struct ct_run_files){
		.steps = {.names = step_names, .n_columns = CT_STEP_COLUMNS},
		.epochs = {.names = epoch_names, .n_columns = CT_EPOCH_COLUMNS},
		.evals = {.names = eval_names, .n_columns = CT_EVAL_COLUMNS},
	};
	CT_TRY_ALLOC(out->dir = ct_strdup(dir));
	CT_TRY(load_metrics(out));
	CT_TRY(load_config(out));
	return load_classes(out);
}

void ct_run_files_release(struct ct_run_files *r)
{
	ct_free(r->steps.values);
	ct_free(r->epochs.values);
	ct_free(r->evals.values);
	for (size_t i = 0; i < r->n_lines; i++)
		ct_json_destroy(r->lines[i]);
	ct_free(r->lines);
	for (size_t i = 0; i < r->n_settings; i++) {
		ct_free(r->settings[i].key);
		ct_free(r->settings[i].value);
		ct_free(r->settings[i].origin);
	}
	ct_free(r->settings);
	ct_class_list_release(&r->classes);
	ct_free(r->dir);
	memset(r, 0, sizeof(*r));
}

const struct ct_run_setting *ct_run_setting_find(const struct ct_run_files *r, const char *key)
{
	for (size_t i = 0; i < r->n_settings; i++) {
		if (strcmp(r->settings[i].key, key) == 0)
			return &r->settings[i];
	}
	return NULL;
}
