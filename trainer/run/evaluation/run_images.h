/* Images of a run, for its report and for TensorBoard: samples, mistakes and filters. */
#ifndef CT_TRAINER_RUN_EVALUATION_RUN_IMAGES_H
#define CT_TRAINER_RUN_EVALUATION_RUN_IMAGES_H

#include "trainer/plan/run_plan.h"
#include "trainer/run/evaluation/predictions.h"

/* The data of a run, from which images are shown. Everything is borrowed. */
struct ct_image_source {
	const ct_dataset *train, *val; /* NULL: none, or not images */
	struct ct_transform transform, val_transform;
	struct ct_sampler sampler;
	int h, w, val_h, val_w; /* size of the images that the model gets in epoch 0, and in evaluations */
	int64_t seed;
	bool mixed; /* mixup or CutMix is on */
};
void ct_image_source_set(struct ct_image_source *d, const struct ct_config *c, const struct ct_run_plan *p,
			 const ct_dataset *train, const ct_dataset *val);

struct ct_run_image {
	const uint8_t *rgb; /* [h,w,3] */
	int h, w;
	const ct_dataset *set;
	char key[512]; /* of the sample (ct_dataset_key) */
	int32_t label;
	const float *prediction; /* row of the predictions (trainer/run/evaluation/predictions.h); NULL: none */
};

/* Called for each image. If it fails, no more images follow. */
typedef enum ct_status (*ct_run_image_fn)(void *user, const struct ct_run_image *image);

/* The first 24 samples of epoch 0 after augmentation, and the 24 samples that were predicted wrongly with the highest
 * probabilities, the worst first. Samples that cannot be read are skipped. */
enum ct_status ct_run_images_samples(const struct ct_image_source *data, ct_run_image_fn fn, void *user) CT_MUST_CHECK;
enum ct_status ct_run_images_mistakes(const struct ct_image_source *data, const struct ct_predictions *e,
				      ct_run_image_fn fn, void *user) CT_MUST_CHECK;
/* Returns the name of class k, or writes "class K" to buf if it has none. */
const char *ct_run_image_class(const ct_dataset *d, int k, char *buf, size_t size);

/* The first n of `total` filters [total,c,h,w] of a layer. */
struct ct_filters {
	int n, c, h, w;
	int64_t total;
};

/* Returns the number of dimensions of tensor i, and writes up to 4 of them; -1: there is no tensor i. */
typedef int (*ct_tensor_dims_fn)(const void *user, int i, int64_t dims[4]);
/* Finds weights [K,C,R,S] of a convolution, or [K,C*H*W] of a linear layer, that read images. Returns the index of the
 * tensor, or -1 if there are none or if the filters are so large that an image of them would have megabytes. */
int ct_run_images_find_filters(const struct ct_image_source *data, ct_tensor_dims_fn dims_of, const void *user,
			       struct ct_filters *out);
/* Draws the filters v [n,c,h,w] side by side, each with its own range of values, and appends the PNG file to *png. */
void ct_run_images_filters_size(const struct ct_filters *l, int *width, int *height); /* in pixels, of this file */
enum ct_status ct_run_images_draw_filters(const struct ct_filters *l, const float *v, struct ct_str *png) CT_MUST_CHECK;

#endif
