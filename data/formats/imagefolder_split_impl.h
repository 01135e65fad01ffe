/* Splits the samples of an image directory into training and evaluation data. */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_SPLIT_IMPL_H
#define CT_DATA_FORMATS_IMAGEFOLDER_SPLIT_IMPL_H

#include <stdint.h>

#include "base/status.h"

struct ct_folder_split {
	double fraction; /* of the samples of each class that are evaluation data; above 0 and below 1 */
	uint64_t seed;
	bool train; /* which part to keep */
};

/* Removes the samples of the other part from at [*n] and labels [*n], and keeps the order. Each class with n samples
 * has round(fraction * n) evaluation samples, but at least one sample in each part; the only sample of a class is
 * training data. Which samples are evaluation data depends only on the seed and on the paths of the class, so it is the
 * same on every rank and in every run. A path is the string at offset at[i] of `paths`. *n_single is set to the number
 * of classes with a single sample. */
enum ct_status ct__folder_split(const struct ct_folder_split *split, const char *paths, uint64_t *at, int32_t *labels,
				uint32_t *n, uint32_t *n_single) CT_MUST_CHECK;

#endif
