/* Image files of a list as a data set: what `ctrain predict` reads. Compressed samples without labels (0), treated as
 * those of the named data set are: its normalisation, and its size where it has one. */
#ifndef CT_DATA_FORMATS_DATASET_FILES_H
#define CT_DATA_FORMATS_DATASET_FILES_H

#include "data/dataset.h"

/* Borrows paths [n]. A file that is missing or too large is a bad sample when it is fetched. CT_CONFIG: no data set of
 * this name. */
enum ct_status ct_dataset_open_files(const char *like, char *const *paths, uint32_t n, ct_dataset **out) CT_MUST_CHECK;

#endif
