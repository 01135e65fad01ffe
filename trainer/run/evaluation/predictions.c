/* The scores are computed in one pass over the rows. Mistakes are first stored as one entry for each sample, then
 * sorted by their pair of classes, joined, and sorted again by frequency, with ties in the order of the classes: the
 * list thus needs memory for the samples, not for all pairs of classes, and equal predictions always give the same
 * list. The logits of a model that has diverged may be NaN. Such samples count as mistakes or hits like others, but
 * with confidence 0, because a NaN has no bin. */
#include "trainer/run/evaluation/predictions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "infer/ranking.h"

enum ct_status ct_predictions_create(uint32_t n, int n_classes, struct ct_predictions *out)
{
	*out = (struct ct_predictions){.n = n, .n_classes = n_classes};
	CT_TRY_ALLOC(out->rows = CT_NEW_ARRAY(float, (size_t)n *CT_PREDICTION_COLUMNS));
	return CT_OK;
}

void ct_predictions_release(struct ct_predictions *p)
{
	ct_free(p->rows);
	memset(p, 0, sizeof(*p));
}

void ct_predictions_add(struct ct_predictions *p, const uint32_t *samples, const int32_t *labels, float *logits,
			uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		float *row = ct_predictions_row(p, samples[i]), *x = logits + (size_t)i * (size_t)p->n_classes;
		int best;

		ct_softmax(x, p->n_classes);
		ct_top_k(x, p->n_classes, 1, &best, &row[CT_PREDICTION_CONFIDENCE]);
		row[CT_PREDICTION_COUNT]++;
		row[CT_PREDICTION_LABEL] = (float)labels[i];
		row[CT_PREDICTION_CLASS] = (float)best;
		row[CT_PREDICTION_PROBABILITY] = x[labels[i]];
	}
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static void score_classes(struct ct_scores *s)
{
	int occur = 0;

	for (int k = 0; k < s->n_classes; k++) {
		struct ct_class_score *c = &s->classes[k];

		c->precision = ratio(c->correct, c->predicted);
		c->recall = ratio(c->correct, c->n);
		c->f1 = ratio(2 * c->precision * c->recall, c->precision + c->recall);
		if (c->n == 0)
			continue;
		s->precision += c->precision;
		s->recall += c->recall;
		s->f1 += c->f1;
		occur++;
	}
	s->precision = ratio(s->precision, occur);
	s->recall = ratio(s->recall, occur);
	s->f1 = ratio(s->f1, occur);
}

static void score_bins(struct ct_scores *s)
{
	for (int i = 0; i < CT_CALIBRATION_BINS; i++) {
		struct ct_calibration_bin *b = &s->bins[i];

		b->confidence = ratio(b->confidence, b->n);
		b->accuracy = ratio(b->accuracy, b->n);
		s->calibration_error += ratio(b->n, s->n) * fabs(b->accuracy - b->confidence);
	}
}

static int by_classes(const void *a, const void *b)
{
	const struct ct_confused *x = a, *y = b;

	return x->label != y->label ? (x->label > y->label) - (x->label < y->label)
				    : (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

static int by_number(const void *a, const void *b)
{
	const struct ct_confused *x = a, *y = b;

	return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : by_classes(a, b);
}

/* Joins equal pairs of the n mistakes in s->confused. */
static void count_mistakes(struct ct_scores *s, uint32_t n)
{
	qsort(s->confused, n, sizeof(*s->confused), by_classes);
	for (uint32_t i = 0; i < n; i++) {
		struct ct_confused *last = s->n_confused > 0 ? &s->confused[s->n_confused - 1] : NULL;

		if (last && by_classes(last, &s->confused[i]) == 0)
			last->n++;
		else
			s->confused[s->n_confused++] = s->confused[i];
	}
	qsort(s->confused, s->n_confused, sizeof(*s->confused), by_number);
}

enum ct_status ct_scores_create(const struct ct_predictions *p, struct ct_scores *out)
{
	const size_t classes = (size_t)p->n_classes;
	uint32_t n_wrong = 0;

	*out = (struct ct_scores){.n_classes = p->n_classes};
	CT_TRY_ALLOC(out->classes = CT_NEW_ARRAY(struct ct_class_score, classes));
	CT_TRY_ALLOC(out->confused = CT_NEW_ARRAY(struct ct_confused, p->n));
	if (p->n_classes <= CT_CONFUSION_MAX)
		CT_TRY_ALLOC(out->confusion = CT_NEW_ARRAY(uint32_t, classes *classes));
	for (uint32_t i = 0; i < p->n; i++) {
		const float *row = ct_predictions_row(p, i);
		const int label = (int)row[CT_PREDICTION_LABEL], class = (int)row[CT_PREDICTION_CLASS];
		/* The logits of a model that has diverged may be NaN. */
		const double confidence = isfinite(row[CT_PREDICTION_CONFIDENCE]) ? row[CT_PREDICTION_CONFIDENCE] : 0;

		if (row[CT_PREDICTION_COUNT] == 0)
			continue;
		const int bin = confidence >= 1 ? CT_CALIBRATION_BINS - 1 : (int)(confidence * CT_CALIBRATION_BINS);
		out->bins[bin].n++;
		out->bins[bin].confidence += confidence;
		out->bins[bin].accuracy += label == class;
		out->n++;
		out->correct += label == class;
		out->classes[label].n++;
		out->classes[class].predicted++;
		out->classes[class].correct += label == class;
		if (label != class)
			out->confused[n_wrong++] = (struct ct_confused){label, class, 1};
		if (out->confusion)
			out->confusion[(size_t)label * classes + (size_t)class]++;
	}
	count_mistakes(out, n_wrong);
	score_classes(out);
	score_bins(out);
	return CT_OK;
}

void ct_scores_release(struct ct_scores *s)
{
	ct_free(s->classes);
	ct_free(s->confusion);
	ct_free(s->confused);
	memset(s, 0, sizeof(*s));
}
