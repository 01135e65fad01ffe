/* Reads the images of a data set and collects facts about them: sizes, pixel statistics, content hashes, damage. Used
 * by `ctrain init` and `ctrain data stats`. */
#ifndef CT_TRAINER_TOOLS_INIT_SURVEY_H
#define CT_TRAINER_TOOLS_INIT_SURVEY_H

#include "base/hash/sha256.h"
#include "data/dataset.h"
#include "data/image/image.h"

struct ct_survey_opts {
	const char *what; /* shown on the progress line, for example "reading train" */
	const ct_dataset *data;
	struct ct_image_opts image;
	uint32_t max_samples; /* images to read, evenly spaced over the data set; 0: all */
	int threads;
};

struct ct_survey_image {
	uint32_t sample; /* index in the data set */
	int32_t label;
	int w, h;                      /* 0 if the image is damaged */
	uint8_t hash[CT_SHA256_BYTES]; /* of the file's bytes, or of the pixels of a set without files */
	double sum[3], squares[3]; /* means over all pixels of the values and of their squares, for values in 0..1 */
	char *damage;              /* the reason why the image cannot be decoded; NULL: it is intact */
};

struct ct_survey {
	struct ct_survey_image *images; /* [n], in the order of their samples */
	uint32_t n;
	uint32_t n_damaged;
	uint32_t *per_class; /* [n_classes] number of samples of the data set, not only of those that were read */
	int n_classes;
	double mean[3], std[3]; /* over the intact images, each with the same weight */
};

/* Fails only for reasons that are not specific to a sample. *out is released by the caller on success. */
enum ct_status ct_survey_make(const struct ct_survey_opts *o, struct ct_survey *out) CT_MUST_CHECK;
void ct_survey_release(struct ct_survey *s);

enum ct_survey_measure { CT_SURVEY_WIDTH, CT_SURVEY_HEIGHT, CT_SURVEY_SHORT_SIDE, CT_SURVEY_ASPECT };
/* Returns the quantile q (0: minimum, 0.5: median, 1: maximum) of a measure over the intact images; 0 if there are
 * none. The aspect is width / height. */
enum ct_status ct_survey_quantile(const struct ct_survey *s, enum ct_survey_measure m, double q,
				  double *out) CT_MUST_CHECK;

#endif
