/* Applies a trained model to image files, for `ctrain predict`. */
#ifndef CT_TRAINER_TOOLS_PREDICT_PREDICTOR_H
#define CT_TRAINER_TOOLS_PREDICT_PREDICTOR_H

#include "nn/engine.h"
#include "trainer/tools/export/source.h"

struct ct_predictor {
	struct ct_model_source source;
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *program;
	int rows; /* batch size of the program */
};

struct ct_prediction {
	int n;              /* length of the arrays below, which begin with the most likely class */
	int *label;         /* [n] class numbers, borrowed */
	float *probability; /* [n] */
};

/* Test-time augmentation: the probabilities are the means over several views of each image. */
struct ct_views {
	bool flip;  /* each view and its mirror image */
	bool crops; /* the center and the four corners of the resized image, instead of the center only */
};
struct ct_predict_opts {
	int top; /* largest number of classes per image */
	struct ct_views views;
};
/* Parses "flip", "crops" or "flip,crops". */
enum ct_status ct_views_parse(const char *text, struct ct_views *out) CT_MUST_CHECK;

/* Opens a model. Borrows the request until the release. Release *out even if this function fails. */
enum ct_status ct_predictor_open(const struct ct_model_request *q, int max_rows,
				 struct ct_predictor *out) CT_MUST_CHECK;
void ct_predictor_release(struct ct_predictor *p);
/* Classifies the files in batches. Calls `tell` once for each file, in the order of the list. If the file was read, `r`
 * contains its most likely classes. Otherwise `r` is NULL, and `error` is the reason. An unreadable
 * file does not make this function fail. Fails with CT_USAGE if crops are requested, but the model's input is the
 * complete image. */
enum ct_status ct_predictor_run(struct ct_predictor *p, char *const *paths, uint32_t n,
				const struct ct_predict_opts *opts,
				void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error),
				void *user) CT_MUST_CHECK;

#endif
