/* The classes of an image directory, and the labels of its class directories. */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_CLASSES_IMPL_H
#define CT_DATA_FORMATS_IMAGEFOLDER_CLASSES_IMPL_H

#include "data/dataset.h"
#include "data/files/class_list.h"

/* Loads the class list that the spec names, or else classes.txt if it exists and is valid. Otherwise the list stays
 * empty. */
enum ct_status ct__folder_classes_load(const struct ct_dataset_spec *spec, struct ct_class_list *classes) CT_MUST_CHECK;
/* Writes the label of each class directory [n] in root to labels [n]. If the list is empty, or is a classes.txt that
 * lacks one of the directories, it is replaced by the directories of the training data (spec->classes_of) or else by
 * these. Fails with CT_DATA if a directory is not in the list. */
enum ct_status ct__folder_classes_label(const char *root, const struct ct_dataset_spec *spec, char *const *directories,
					size_t n, struct ct_class_list *classes, int *labels) CT_MUST_CHECK;

#endif
