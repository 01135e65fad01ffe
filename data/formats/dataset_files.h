/* A data set made of a list of image files, for `ctrain predict`. Samples are compressed and have label 0. They are
 * normalized like the samples of another data set, `like`, and have its image size if that is fixed. */
#ifndef CT_DATA_FORMATS_DATASET_FILES_H
#define CT_DATA_FORMATS_DATASET_FILES_H

#include "data/dataset.h"

/* Borrows paths [n]. Fails with CT_CONFIG if no data set is named `like`. Fetching a file that is missing or too
 * large fails with CT_DATA. */
enum ct_status ct_dataset_open_files(const char *like, char *const *paths, uint32_t n, ct_dataset **out) CT_MUST_CHECK;

#endif
