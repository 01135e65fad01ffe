/* The text shows the first 20 of each kind, and JSON has all of them; both come from the same surveys and duplicates.
 * Quantiles are computed when they are shown. */
#include "trainer/tools/init/stats.h"

#include <stdio.h>

#include "base/mem.h"

#define SHOWN 20 /* classes, damaged images and duplicates in the text; JSON has all of them */

static const char *class_of(const struct ct_stats_set *s, int label, char number[16])
{
	const char *name = ct_dataset_class_name(s->data, label);

	snprintf(number, 16, "%d", label);
	return name ? name : number;
}

/* Stores minimum, median and maximum. */
static enum ct_status quantiles(const struct ct_stats_set *s, enum ct_survey_measure m, double out[3])
{
	for (int i = 0; i < 3; i++)
		CT_TRY(ct_survey_quantile(&s->survey, m, 0.5 * i, &out[i]));
	return CT_OK;
}

static void add_classes(const struct ct_stats_set *s, struct ct_str *out)
{
	const struct ct_survey *v = &s->survey;
	const uint32_t n = ct_dataset_info(s->data)->n;
	char number[16];

	for (int k = 0; k < v->n_classes && k < SHOWN; k++)
		ct_str_addf(out, "  %-24s %8u images  %5.1f %%%s\n", class_of(s, k, number), v->per_class[k],
			    n ? 100.0 * v->per_class[k] / n : 0, v->per_class[k] ? "" : "  no images");
	if (v->n_classes > SHOWN)
		ct_str_addf(out, "  and %d more classes (--json lists all)\n", v->n_classes - SHOWN);
}

static void add_damaged(const struct ct_stats_set *s, struct ct_str *out)
{
	const struct ct_survey *v = &s->survey;
	uint32_t shown = 0;
	char where[512];

	if (v->n_damaged)
		ct_str_addf(out, "  damaged: %u image%s\n", v->n_damaged, ct_plural(v->n_damaged));
	for (uint32_t i = 0; i < v->n && shown < v->n_damaged; i++) {
		if (!v->images[i].damage)
			continue;
		if (shown++ == SHOWN) {
			ct_str_addf(out, "    and %u more (--json lists all)\n", v->n_damaged - SHOWN);
			return;
		}
		ct_dataset_describe(s->data, v->images[i].sample, where, sizeof(where));
		ct_str_addf(out, "    %s: %s\n", where, v->images[i].damage);
	}
}

static enum ct_status add_set(const struct ct_stats_set *s, struct ct_str *out)
{
	const struct ct_survey *v = &s->survey;
	double w[3], h[3], a[3];

	CT_TRY(quantiles(s, CT_SURVEY_WIDTH, w));
	CT_TRY(quantiles(s, CT_SURVEY_HEIGHT, h));
	CT_TRY(quantiles(s, CT_SURVEY_ASPECT, a));
	ct_str_addf(out, "%s: %u images, %d classes\n", s->name, ct_dataset_info(s->data)->n, v->n_classes);
	ct_str_addf(out, "  width   %.0f to %.0f pixels, median %.0f\n  height  %.0f to %.0f pixels, median %.0f\n",
		    w[0], w[2], w[1], h[0], h[2], h[1]);
	ct_str_addf(out, "  width / height  %.2f to %.2f, median %.2f\n", a[0], a[2], a[1]);
	ct_str_addf(out, "  color   mean %.4f %.4f %.4f, standard deviation %.4f %.4f %.4f\n", v->mean[0], v->mean[1],
		    v->mean[2], v->std[0], v->std[1], v->std[2]);
	add_classes(s, out);
	add_damaged(s, out);
	return CT_OK;
}

static const struct ct_survey_image *image_at(const struct ct_stats_set *sets, const struct ct_stats_image *at)
{
	return &sets[at->set].survey.images[at->image];
}

static void add_duplicates(const struct ct_stats_set *sets, const struct ct_duplicates *d, struct ct_str *out)
{
	char key[512], number[16];

	ct_str_addf(out, "duplicates: %u group%s of images with the same content", d->n_groups, ct_plural(d->n_groups));
	if (d->n_groups)
		ct_str_addf(out, ", %u of them with different labels", d->n_labels);
	ct_str_add(out, "\n");
	if (d->n_across)
		ct_str_addf(
			out,
			"  %u image%s of %s %s also in %s, so the accuracy is too high: remove them from one of the two\n",
			d->n_across, ct_plural(d->n_across), sets[1].name, d->n_across == 1 ? "is" : "are",
			sets[0].name);
	for (uint32_t g = 0; g < d->n_groups && g < SHOWN; g++) {
		for (uint32_t i = d->first[g]; i < d->first[g + 1]; i++) {
			const struct ct_stats_set *s = &sets[d->images[i].set];
			const struct ct_survey_image *im = image_at(sets, &d->images[i]);

			ct_dataset_key(s->data, im->sample, key, sizeof(key));
			ct_str_addf(out, "%s%s %s (%s)", i == d->first[g] ? "  " : " = ", s->name, key,
				    class_of(s, im->label, number));
		}
		ct_str_add(out, "\n");
	}
	if (d->n_groups > SHOWN)
		ct_str_addf(out, "  and %u more groups (--json lists all)\n", d->n_groups - SHOWN);
}

enum ct_status ct_stats_text(const struct ct_stats_set *sets, int n, const struct ct_duplicates *d, struct ct_str *out)
{
	for (int i = 0; i < n; i++)
		CT_TRY(add_set(&sets[i], out));
	add_duplicates(sets, d, out);
	return ct_str_status(out);
}

static void set_triple(ct_json *o, const char *key, const double v[3])
{
	ct_json *t = ct_json_object();

	ct_json_set_f64(t, "min", v[0]);
	ct_json_set_f64(t, "median", v[1]);
	ct_json_set_f64(t, "max", v[2]);
	ct_json_set(o, key, t);
}

static enum ct_status set_measure(ct_json *o, const char *key, const struct ct_stats_set *s, enum ct_survey_measure m)
{
	double v[3];

	CT_TRY(quantiles(s, m, v));
	set_triple(o, key, v);
	return CT_OK;
}

static ct_json *numbers(const double v[3])
{
	ct_json *a = ct_json_array();

	for (int k = 0; k < 3; k++)
		ct_json_push_f64(a, v[k]);
	return a;
}

static ct_json *image_json(const struct ct_stats_set *s, const struct ct_survey_image *im)
{
	ct_json *o = ct_json_object();
	char key[512];

	ct_dataset_key(s->data, im->sample, key, sizeof(key));
	ct_json_set_str(o, "set", s->name);
	ct_json_set_i64(o, "sample", im->sample);
	ct_json_set_str(o, "key", key);
	if (im->damage)
		ct_json_set_str(o, "reason", im->damage);
	else
		ct_json_set_i64(o, "label", im->label);
	return o;
}

static enum ct_status set_json(const struct ct_stats_set *s, ct_json *o)
{
	const struct ct_survey *v = &s->survey;
	ct_json *classes = ct_json_array(), *damaged = ct_json_array();
	char number[16];

	ct_json_set_str(o, "set", s->name);
	ct_json_set_i64(o, "images", ct_dataset_info(s->data)->n);
	for (int k = 0; k < v->n_classes; k++) {
		ct_json *c = ct_json_object();

		ct_json_set_str(c, "name", class_of(s, k, number));
		ct_json_set_i64(c, "images", v->per_class[k]);
		ct_json_push(classes, c);
	}
	ct_json_set(o, "classes", classes);
	for (uint32_t i = 0; i < v->n; i++) {
		if (v->images[i].damage)
			ct_json_push(damaged, image_json(s, &v->images[i]));
	}
	ct_json_set(o, "damaged", damaged);
	ct_json_set(o, "mean", numbers(v->mean));
	ct_json_set(o, "std", numbers(v->std));
	CT_TRY(set_measure(o, "width", s, CT_SURVEY_WIDTH));
	CT_TRY(set_measure(o, "height", s, CT_SURVEY_HEIGHT));
	return set_measure(o, "aspect", s, CT_SURVEY_ASPECT);
}

static ct_json *duplicates_json(const struct ct_stats_set *sets, const struct ct_duplicates *d)
{
	ct_json *o = ct_json_object(), *groups = ct_json_array();

	for (uint32_t g = 0; g < d->n_groups; g++) {
		ct_json *group = ct_json_array();

		for (uint32_t i = d->first[g]; i < d->first[g + 1]; i++)
			ct_json_push(group, image_json(&sets[d->images[i].set], image_at(sets, &d->images[i])));
		ct_json_push(groups, group);
	}
	ct_json_set_i64(o, "across_sets", d->n_across);
	ct_json_set_i64(o, "different_labels", d->n_labels);
	ct_json_set(o, "groups", groups);
	return o;
}

enum ct_status ct_stats_json(const struct ct_stats_set *sets, int n, const struct ct_duplicates *d, ct_json **out)
{
	ct_json *j = ct_json_object(), *list = ct_json_array();
	enum ct_status st = CT_OK;

	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "data_stats");
	for (int i = 0; i < n && st == CT_OK; i++) {
		ct_json *o = ct_json_object();

		st = set_json(&sets[i], o);
		ct_json_push(list, o);
	}
	ct_json_set(j, "sets", list);
	ct_json_set(j, "duplicates", duplicates_json(sets, d));
	if (st < 0)
		ct_json_destroy(j);
	else
		*out = j;
	return st;
}
