/* What a weights file says about its model: how to build the graph, how to prepare images, and the names of the
 * classes. A safetensors file that ctrain writes contains this description as JSON in its metadata, under the key
 * "ctrain" (docs/FORMATS.md), so that the file alone is enough to predict. */
#ifndef CT_INFER_DESCRIPTION_H
#define CT_INFER_DESCRIPTION_H

#include "base/json.h"
#include "data/transform/transform.h"
#include "infer/safetensors.h"
#include "nn/models/model.h"

#define CT_DESCRIPTION_KEY "ctrain"

struct ct_description {
	/* The strings and arrays are owned, except the name, which is a string literal. The fields that have no effect
	 * on a trained model (label_smoothing, zero_gamma) are not stored. */
	struct ct_model_spec model;
	/* Image files become RGB, and are resized so that the short side has `resize` pixels. Of the result, the center
	 * is used, in the size of model.input. If the model has one channel, RGB is converted to gray. 0: the input is
	 * not an image. */
	int resize;
	bool exif, fast; /* as in struct ct_image_opts */
	/* Per channel: x = (pixel / 255 - mean) / std. 0 and 1 if there are more than 4 channels. */
	float mean[4], std[4];
	int n_classes;  /* number of names: 0 or model.n_outputs */
	char **classes; /* [n_classes] owned */
};

/* Copies the model, including what `spec` borrows. *out must have no model yet. */
enum ct_status ct_description_set_model(struct ct_description *out, const struct ct_model_spec *spec) CT_MUST_CHECK;
/* Copies n class names. *out must have none yet. */
enum ct_status ct_description_set_classes(struct ct_description *out, const char *const *names, int n) CT_MUST_CHECK;
void ct_description_release(struct ct_description *d);
/* Appends the JSON text. */
enum ct_status ct_description_write(const struct ct_description *d, struct ct_str *out) CT_MUST_CHECK;
/* Fails with CT_DATA; the message contains `where`. Does not check that the model can be built. */
enum ct_status ct_description_parse(const char *text, const char *where, struct ct_description *out) CT_MUST_CHECK;
/* Reads the description of an open file. `where` is the path, for messages. Fails with CT_NOT_FOUND if the file has
 * none. */
enum ct_status ct_description_load(const ct_safetensors *s, const char *where,
				   struct ct_description *out) CT_MUST_CHECK;
/* Returns how image files are prepared. Only if d->resize is not 0. */
struct ct_transform ct_description_transform(const struct ct_description *d);
/* Converts n RGB pixels to gray values: ITU-R 601 luma, rounded as in Pillow's convert("L"). */
void ct_description_gray(const uint8_t *rgb, size_t n, uint8_t *gray);

#endif
