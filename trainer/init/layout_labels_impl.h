/* Finds the CSV files that contain the labels of a directory of images. */
#ifndef CT_TRAINER_INIT_LAYOUT_LABELS_IMPL_H
#define CT_TRAINER_INIT_LAYOUT_LABELS_IMPL_H

#include "trainer/init/layout.h"

/* Uses this file, whose images are in l->dir or in a directory in it. */
enum ct_status ct__layout_use_labels(const char *path, struct ct_layout *l) CT_MUST_CHECK;
/* Looks for such files in l->dir. If there are none, l->labels stays empty; *why is then the reason why a CSV file is not a
 * list of labels, or its status is CT_OK if there is no CSV file. Fails with CT_DATA if it is not clear which file to use. */
enum ct_status ct__layout_find_labels(struct ct_layout *l, struct ct_error *why) CT_MUST_CHECK;
/* Looks for files beside l->dir that list images in it. If there are any, l->dir becomes its parent directory. */
enum ct_status ct__layout_find_labels_beside(struct ct_layout *l) CT_MUST_CHECK;

#endif
