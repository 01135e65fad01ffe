/* The predictions of an evaluation for each sample, and what follows from them. */
#ifndef CT_TRAINER_RUN_EVALUATION_PREDICTIONS_H
#define CT_TRAINER_RUN_EVALUATION_PREDICTIONS_H

#include <stdint.h>

#include "base/status.h"

/* Columns of a row. All are 0 if the sample was not evaluated (by this rank). */
enum {
	CT_PREDICTION_COUNT, /* how often it was evaluated */
	CT_PREDICTION_LABEL,
	CT_PREDICTION_CLASS,       /* the most likely class */
	CT_PREDICTION_CONFIDENCE,  /* the probability of that class */
	CT_PREDICTION_PROBABILITY, /* the probability of the label */
	CT_PREDICTION_COLUMNS
};

struct ct_predictions {
	uint64_t step; /* of the weights */
	uint32_t n;    /* samples of the data set */
	int n_classes;
	float *rows; /* [n, CT_PREDICTION_COLUMNS]; ranks that evaluate different samples can add their rows */
};

enum { CT_PREDICTIONS_MAX = 1000000 }; /* samples, for which predictions are kept */

enum ct_status ct_predictions_create(uint32_t n, int n_classes, struct ct_predictions *out) CT_MUST_CHECK;
void ct_predictions_release(struct ct_predictions *p);
static inline float *ct_predictions_row(const struct ct_predictions *p, uint32_t sample)
{
	return p->rows + (uint64_t)sample * CT_PREDICTION_COLUMNS;
}
/* Adds a batch: samples [n], labels [n], logits [n, n_classes], which are overwritten. */
void ct_predictions_add(struct ct_predictions *p, const uint32_t *samples, const int32_t *labels, float *logits,
			uint32_t n);

enum { CT_CALIBRATION_BINS = 15, CT_CONFUSION_MAX = 1000 };

struct ct_class_score {
	uint32_t n, predicted, correct; /* samples of the class, samples that were predicted as it, and both */
	double precision, recall, f1;   /* 0 if the divisor is 0 */
};

struct ct_confused {
	int label, predicted;
	uint32_t n;
};

struct ct_calibration_bin {
	uint32_t n;
	double confidence, accuracy; /* means; 0 if n is 0 */
};

struct ct_scores {
	uint32_t n, correct; /* samples evaluated */
	int n_classes;
	struct ct_class_score *classes; /* [n_classes] */
	uint32_t *confusion;            /* [label, predicted]; NULL if there are more than CT_CONFUSION_MAX classes */
	struct ct_confused *confused;   /* [n_confused] most frequent mistakes first */
	uint32_t n_confused;
	double precision, recall, f1; /* means over the classes that occur ("macro") */
	/* Samples by their confidence, in bins of equal width, and the expected calibration error (Guo et al., "On
	 * calibration of modern neural networks", 2017): the mean of |accuracy - confidence| over the samples. */
	struct ct_calibration_bin bins[CT_CALIBRATION_BINS];
	double calibration_error;
};

enum ct_status ct_scores_create(const struct ct_predictions *p, struct ct_scores *out) CT_MUST_CHECK;
void ct_scores_release(struct ct_scores *s);

#endif
