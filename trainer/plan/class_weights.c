/* The class weights of the loss (train.class_weights). */
#include <math.h>
#include <string.h>

#include "trainer/plan/run_plan.h"

static enum ct_status count(const ct_dataset *d, uint32_t *n_of)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);

	for (uint32_t i = 0; i < info->n; i++) {
		int32_t label;

		CT_TRY(ct_dataset_label(d, i, &label));
		if (label < 0 || label >= info->n_classes)
			return CT_FAIL(CT_BUG, "label %d of %d classes", label, info->n_classes);
		n_of[label]++;
	}
	return CT_OK;
}

/* auto: inversely proportional to the number of samples of the class. */
static void set_balanced(const uint32_t *n_of, int n_classes, float *w)
{
	for (int k = 0; k < n_classes; k++)
		w[k] = n_of[k] ? 1.0f / (float)n_of[k] : 1.0f;
}

static enum ct_status set_listed(const struct ct_config *c, int n_classes, float *w)
{
	const struct ct_str_list *l = &c->train.class_weights;
	const char *where = ct_config_origin(c, "train.class_weights");

	if (l->n != n_classes) {
		CT_FAIL(CT_CONFIG, "%s: error: train.class_weights has %d entries, but there are %d classes", where,
			l->n, n_classes);
		ct_error_hint("write one number for each class, in the order of the class names, or auto");
		return ct_error_because(CT_REASON_PROBLEMS);
	}
	for (int k = 0; k < n_classes; k++) {
		double v;

		if (ct_parse_f64(l->v[k], &v) != CT_OK || !(v > 0) || v > 1e6) {
			CT_FAIL(CT_CONFIG,
				"%s: error: train.class_weights: \"%s\" is not a number above 0 and up to 1000000",
				where, l->v[k]);
			return ct_error_because(CT_REASON_PROBLEMS);
		}
		w[k] = (float)v;
	}
	return CT_OK;
}

/* Scales the weights so that their mean over the training samples is 1, and the learning rate keeps its meaning. */
static void scale(const uint32_t *n_of, int n_classes, float *w)
{
	double sum = 0, n = 0;

	for (int k = 0; k < n_classes; k++) {
		sum += (double)n_of[k] * (double)w[k];
		n += n_of[k];
	}
	for (int k = 0; k < n_classes && sum > 0; k++)
		w[k] = (float)((double)w[k] * n / sum);
}

enum ct_status ct_plan_class_weights(const struct ct_config *c, const ct_dataset *train, float **out)
{
	const struct ct_str_list *l = &c->train.class_weights;
	const int n_classes = ct_dataset_info(train)->n_classes;
	uint32_t *n_of;
	enum ct_status st;

	*out = NULL;
	if (l->n == 0)
		return CT_OK;
	if (n_classes == 0) {
		CT_FAIL(CT_CONFIG, "%s: error: train.class_weights requires class labels",
			ct_config_origin(c, "train.class_weights"));
		return ct_error_because(CT_REASON_PROBLEMS);
	}
	CT_TRY_ALLOC(*out = CT_NEW_ARRAY(float, (size_t)n_classes));
	n_of = CT_NEW_ARRAY(uint32_t, (size_t)n_classes);
	st = n_of ? count(train, n_of) : CT_NOMEM;
	if (st == CT_OK) {
		if (l->n == 1 && strcmp(l->v[0], "auto") == 0)
			set_balanced(n_of, n_classes, *out);
		else
			st = set_listed(c, n_classes, *out);
	}
	if (st == CT_OK)
		scale(n_of, n_classes, *out);
	ct_free(n_of);
	if (st < 0) {
		ct_free(*out);
		*out = NULL;
	}
	return st;
}
