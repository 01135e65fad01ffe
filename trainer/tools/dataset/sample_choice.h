/* Chooses the images that `ctrain data show` shows. */
#ifndef CT_TRAINER_TOOLS_DATASET_SAMPLE_CHOICE_H
#define CT_TRAINER_TOOLS_DATASET_SAMPLE_CHOICE_H

#include "data/dataset.h"

#define CT_NO_SAMPLE UINT32_MAX

struct ct__choice {
	uint32_t *ids; /* [n], row by row; CT_NO_SAMPLE: the class of this column has no more images */
	int n, columns;
};

/* Chooses `count` random samples (0: four rows). If there are at most max_columns classes, each column has images of
 * one class, in the order of the classes; otherwise, each image is of another random class. The choice depends only on
 * the seed and on the labels. A data set without classes is treated as one class. out->ids is owned by the caller. */
enum ct_status ct_choose_samples(const ct_dataset *d, uint64_t seed, int count, int max_columns,
				 struct ct__choice *out) CT_MUST_CHECK;

#endif
