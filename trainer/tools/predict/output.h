/* The output of `ctrain predict` in its formats, and the accuracy where directories have the names of classes. */
#ifndef CT_TRAINER_TOOLS_PREDICT_OUTPUT_H
#define CT_TRAINER_TOOLS_PREDICT_OUTPUT_H

#include "base/json.h"
#include "trainer/tools/predict/predictor.h"

enum ct_predict_format { CT_PREDICT_TEXT, CT_PREDICT_JSON, CT_PREDICT_JSONL, CT_PREDICT_CSV };

struct ct_predict_output {
	enum ct_predict_format format;
	const struct ct_predictor *p; /* borrowed */
	char *const *paths;           /* [n] borrowed */
	uint32_t n, n_bad;
	/* Images in a directory that has the name of a class, and how many of them are classified as it: [classes],
	 * NULL if the names of the classes are unknown. */
	uint32_t *n_of_class, *right_of_class;
	ct_json *images; /* JSON only */
};

/* p must be open. */
enum ct_status ct_predict_output_init(struct ct_predict_output *o, enum ct_predict_format format,
				      const struct ct_predictor *p, char *const *paths, uint32_t n) CT_MUST_CHECK;
void ct_predict_output_release(struct ct_predict_output *o);
/* A callback for ct_predictor_run, with the output as `user`: prints the result of image i, except in JSON. */
void ct_predict_output_add(void *user, uint32_t i, const struct ct_prediction *r, const char *error);
/* Text: appends the accuracy, if there are images of which the class is known. JSON: returns the complete result in
 * *json, owned by the caller. */
void ct_predict_output_accuracy(const struct ct_predict_output *o, struct ct_str *text);
ct_json *ct_predict_output_json(struct ct_predict_output *o, double seconds);

#endif
