/* Image directories whose labels are in a CSV file (data/files/label_list.h). */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_LABELS_IMPL_H
#define CT_DATA_FORMATS_IMAGEFOLDER_LABELS_IMPL_H

#include "data/dataset.h"
#include "data/files/class_list.h"
#include "data/formats/imagefolder_scan.h"

/* Finds the images below root that spec->labels lists for this set, and their labels [images->n]. Only directories that
 * the list names are read. The images are in the order of ct_image_dir_scan, not in that of the list. If `classes` is
 * empty, it is filled with the classes of the training data; otherwise, labels may also be the numbers of its classes.
 * Both results are released by the caller, also on failure. Fails with CT_DATA and the message "PATH:LINE: ..." if an
 * image does not exist, or has two labels, or if its class is unknown. */
enum ct_status ct__folder_labels_load(const char *root, const struct ct_dataset_spec *spec,
				      struct ct_class_list *classes, struct ct_image_dir_images *images,
				      int32_t **labels) CT_MUST_CHECK;

#endif
