/* Each file is built in memory and then replaces the old one as a whole. evaluation.json is written last; it has the
 * step and the sizes that the other files belong to, and readers begin with it. Names and keys come from the user's
 * data, so they are written by ct_str_add_csv. For the same reason a reader trusts nothing: sizes are limited before
 * memory is allocated, and samples, classes and probabilities must be in range; a probability may be NaN after a
 * divergence. */
#include "trainer/run/evaluation/eval_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define MAX_FILE ((size_t)1 << 30)
#define MAX_CLASSES (1 << 20)

static const char title[] = "sample,label,predicted,confidence,label_probability,key\n";

static enum ct_status write_file(const char *dir, const char *name, struct ct_str *text)
{
	char *path = ct_path_join(dir, name);
	enum ct_status st = path ? ct_str_status(text) : CT_NOMEM;

	if (st == CT_OK)
		st = ct_file_replace(path, text->s, text->len);
	ct_str_release(text);
	ct_free(path);
	return st;
}

static const char *class_name(const ct_dataset *d, int k, char *buf, size_t size)
{
	const char *name = ct_dataset_class_name(d, k);

	snprintf(buf, size, "%d", k);
	return name ? name : buf;
}

static enum ct_status write_predictions(const char *dir, const struct ct_predictions *p, const ct_dataset *d)
{
	struct ct_str text = {0};
	char key[512];

	ct_str_add(&text, title);
	for (uint32_t i = 0; i < p->n; i++) {
		const float *row = ct_predictions_row(p, i);

		if (row[CT_PREDICTION_COUNT] == 0)
			continue;
		ct_dataset_key(d, i, key, sizeof(key));
		ct_str_addf(&text, "%u,%d,%d,%.6g,%.6g,", i, (int)row[CT_PREDICTION_LABEL],
			    (int)row[CT_PREDICTION_CLASS], row[CT_PREDICTION_CONFIDENCE],
			    row[CT_PREDICTION_PROBABILITY]);
		ct_str_add_csv(&text, key);
		ct_str_add(&text, "\n");
	}
	return write_file(dir, "predictions.csv", &text);
}

static enum ct_status write_classes(const char *dir, const struct ct_scores *s, const ct_dataset *d)
{
	struct ct_str text = {0};
	char buf[16];

	ct_str_add(&text, "class,name,samples,predicted,correct,precision,recall,f1\n");
	for (int k = 0; k < s->n_classes; k++) {
		const struct ct_class_score *c = &s->classes[k];

		ct_str_addf(&text, "%d,", k);
		ct_str_add_csv(&text, class_name(d, k, buf, sizeof(buf)));
		ct_str_addf(&text, ",%u,%u,%u,%.6f,%.6f,%.6f\n", c->n, c->predicted, c->correct, c->precision,
			    c->recall, c->f1);
	}
	return write_file(dir, "classes.csv", &text);
}

static enum ct_status write_confusion(const char *dir, const struct ct_scores *s, const ct_dataset *d)
{
	struct ct_str text = {0};
	char buf[16];

	if (!s->confusion)
		return CT_OK;
	ct_str_add(&text, "label");
	for (int k = 0; k < s->n_classes; k++) {
		ct_str_add(&text, ",");
		ct_str_add_csv(&text, class_name(d, k, buf, sizeof(buf)));
	}
	for (int k = 0; k < s->n_classes; k++) {
		ct_str_add(&text, "\n");
		ct_str_add_csv(&text, class_name(d, k, buf, sizeof(buf)));
		for (int j = 0; j < s->n_classes; j++)
			ct_str_addf(&text, ",%u", s->confusion[(size_t)k * (size_t)s->n_classes + (size_t)j]);
	}
	ct_str_add(&text, "\n");
	return write_file(dir, "confusion.csv", &text);
}

static enum ct_status write_summary(const char *dir, const struct ct_predictions *p, const struct ct_scores *s,
				    const char *checkpoint)
{
	struct ct_str text = {0};
	ct_json *j = ct_json_object(), *bins = ct_json_array();

	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "evaluation");
	if (checkpoint)
		ct_json_set_str(j, "checkpoint", checkpoint);
	ct_json_set_i64(j, "step", (int64_t)p->step);
	ct_json_set_i64(j, "samples", p->n);
	ct_json_set_i64(j, "classes", p->n_classes);
	ct_json_set_i64(j, "count", s->n);
	ct_json_set_f64(j, "top1", s->n > 0 ? (double)s->correct / s->n : 0);
	ct_json_set_f64(j, "precision", s->precision);
	ct_json_set_f64(j, "recall", s->recall);
	ct_json_set_f64(j, "f1", s->f1);
	ct_json_set_f64(j, "calibration_error", s->calibration_error);
	for (int i = 0; i < CT_CALIBRATION_BINS; i++) {
		ct_json *b = ct_json_object();

		ct_json_set_f64(b, "from", (double)i / CT_CALIBRATION_BINS);
		ct_json_set_f64(b, "to", (double)(i + 1) / CT_CALIBRATION_BINS);
		ct_json_set_i64(b, "count", s->bins[i].n);
		ct_json_set_f64(b, "confidence", s->bins[i].confidence);
		ct_json_set_f64(b, "accuracy", s->bins[i].accuracy);
		ct_json_push(bins, b);
	}
	ct_json_set(j, "bins", bins);
	enum ct_status st = ct_json_dump(j, true, &text);
	ct_json_destroy(j);
	ct_str_add(&text, "\n");
	if (st == CT_OK)
		return write_file(dir, "evaluation.json", &text);
	ct_str_release(&text);
	return st;
}

enum ct_status ct_eval_files_write(const char *dir, const struct ct_predictions *p, const ct_dataset *data,
				   const char *checkpoint)
{
	struct ct_scores s;
	enum ct_status st = ct_scores_create(p, &s);

	if (st == CT_OK)
		st = ct_dir_make(dir);
	if (st == CT_OK)
		st = write_predictions(dir, p, data);
	if (st == CT_OK)
		st = write_classes(dir, &s, data);
	if (st == CT_OK)
		st = write_confusion(dir, &s, data);
	if (st == CT_OK)
		st = write_summary(dir, p, &s, checkpoint);
	ct_scores_release(&s);
	return st;
}

/* Parses a line of predictions.csv without its key. */
static enum ct_status load_row(const char *line, struct ct_predictions *p)
{
	double v[5];

	for (int i = 0; i < 5; i++) {
		char *end;

		v[i] = strtod(line, &end);
		if (end == line || *end != ',')
			return CT_FAIL(CT_DATA, "not a line of predictions");
		line = end + 1;
	}
	const bool classes = v[1] >= 0 && v[1] < p->n_classes && v[2] >= 0 && v[2] < p->n_classes;
	if (!(v[0] >= 0 && v[0] < p->n) || !classes)
		return CT_FAIL(CT_DATA, "the sample or a class is out of range");
	/* They are NaN if the model has diverged. */
	if (v[3] < 0 || v[3] > 1 || v[4] < 0 || v[4] > 1)
		return CT_FAIL(CT_DATA, "a probability is not between 0 and 1");
	float *row = ct_predictions_row(p, (uint32_t)v[0]);
	row[CT_PREDICTION_COUNT] = 1;
	for (int i = 1; i < 5; i++)
		row[i] = (float)v[i];
	return CT_OK;
}

static enum ct_status load_summary(const char *path, int64_t *step, int64_t *samples, int64_t *classes)
{
	char *text;
	size_t len;
	ct_json *j;

	CT_TRY(ct_file_read(path, MAX_FILE, &text, &len));
	enum ct_status st = ct_json_parse(text, len, path, &j);
	ct_free(text);
	CT_TRY(st);
	st = ct_json_get_i64(j, "step", step);
	if (st == CT_OK)
		st = ct_json_get_i64(j, "samples", samples);
	if (st == CT_OK)
		st = ct_json_get_i64(j, "classes", classes);
	ct_json_destroy(j);
	if (st == CT_OK && (*samples < 1 || *samples > CT_PREDICTIONS_MAX || *classes < 1 || *classes > MAX_CLASSES))
		st = CT_FAIL(CT_DATA, "%s: the number of samples or classes is out of range", path);
	return st;
}

enum ct_status ct_eval_files_load(const char *dir, struct ct_predictions *out)
{
	char *summary = ct_path_join(dir, "evaluation.json"), *path = ct_path_join(dir, "predictions.csv"),
	     *text = NULL;
	int64_t step = 0, samples = 0, classes = 0;
	size_t len, line = 1;
	*out = (struct ct_predictions){0};
	enum ct_status st = summary && path ? load_summary(summary, &step, &samples, &classes) : CT_NOMEM;

	if (st == CT_OK)
		st = ct_file_read(path, MAX_FILE, &text, &len);
	if (st == CT_OK)
		st = ct_predictions_create((uint32_t)samples, (int)classes, out);
	out->step = (uint64_t)step;
	for (char *at = text ? strchr(text, '\n') : NULL; st == CT_OK && at && at[1]; at = strchr(at + 1, '\n')) {
		line++;
		st = load_row(at + 1, out);
		if (st < 0)
			ct_error_wrap("%s:%zu", path, line);
	}
	ct_free(text);
	ct_free(path);
	ct_free(summary);
	return st;
}
