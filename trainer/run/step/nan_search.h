/* The search for the first value that is not finite, on one rank. Private to trainer/run/diagnose/nan_report.c. */
#ifndef CT_TRAINER_RUN_STEP_NAN_SEARCH_H
#define CT_TRAINER_RUN_STEP_NAN_SEARCH_H

#include "base/choice.h"
#include "base/json.h"
#include "trainer/run/step/step.h"

enum { CT__NAN_SAMPLES = 3 };

/* Values of ct__nan_place.order if there is no place. */
#define CT__NAN_FINITE INT64_MAX
#define CT__NAN_UNKNOWN (INT64_MAX - 1)

/* What contains them, and the names in the report. Statistics are those of a batch norm. */
#define CT__NAN_KINDS(X)                    \
	X(CT__NAN_WEIGHT, "weight")         \
	X(CT__NAN_STATISTICS, "statistics") \
	X(CT__NAN_ACTIVATION, "activation") \
	X(CT__NAN_LOSS, "loss")             \
	X(CT__NAN_GRADIENT, "gradient")
enum ct__nan_kind { CT__NAN_KINDS(CT_CHOICE_ID) };

/* Where values that are not finite were found first, in the order of a step. */
struct ct__nan_place {
	/* Smaller numbers are earlier: the number of the node or, for gradients, the number of nodes plus that of the
	 * slice. */
	int64_t order;
	enum ct__nan_kind kind;
	const char *layer, *op;
	const char *parameter; /* of a weight or a gradient; else NULL */
	uint64_t n_bad, n;     /* values that are not finite, and all values */
	/* Activations: the rows in which they are, and the samples of the first ones. */
	uint32_t n_bad_rows, n_rows, samples[CT__NAN_SAMPLES];
};

/* Repeats the forward and backward passes of this rank's micro-batches of r, the step that failed, and examines all
 * values that the engine has kept, until one is found that is not finite. Collective. Adds to *details the samples of
 * the batch ("samples"), the layers up to the first bad one ("layers") and the weights ("weights"). */
enum ct_status ct_nan_search(struct ct_session *s, ct_stepper *p, const struct ct_step_result *r,
			     struct ct__nan_place *out, ct_json *details) CT_MUST_CHECK;

#endif
