/* A list of image files as a data set, which `ctrain predict` reads. Samples are compressed and have label 0. They
 * are treated like those of the named data set: with its normalization, and its size if it has one. */
#ifndef CT_DATA_FORMATS_DATASET_FILES_H
#define CT_DATA_FORMATS_DATASET_FILES_H

#include "data/dataset.h"

/* Borrows paths [n]. Fetching a missing or too large file is CT_DATA. CT_CONFIG if no data set has this name. */
enum ct_status ct_dataset_open_files(const char *like, char *const *paths, uint32_t n, ct_dataset **out) CT_MUST_CHECK;

#endif
