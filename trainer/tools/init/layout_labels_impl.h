/* Finds the CSV files that contain the labels of a directory of images. */
#ifndef CT_TRAINER_TOOLS_INIT_LAYOUT_LABELS_IMPL_H
#define CT_TRAINER_TOOLS_INIT_LAYOUT_LABELS_IMPL_H

#include "trainer/tools/init/image_layout.h"

/* Uses this file, whose images are in l->dir or in a directory in it. */
enum ct_status ct__layout_use_labels(const char *path, struct ct_layout *l) CT_MUST_CHECK;
/* Why a CSV file cannot be used as the list of labels. */
struct ct__no_labels {
	struct ct_error error; /* its status is CT_OK if there is no CSV file */
	bool is_list;          /* but it has the columns of such a list */
};

/* Looks for such files in l->dir. If there are none, l->labels stays empty; *why is then about the first file with the
 * columns of a list or, if there is none, about the first file. Fails with CT_DATA if it is not clear which file to
 * use; *why is then the same error. */
enum ct_status ct__layout_find_labels(struct ct_layout *l, struct ct__no_labels *why) CT_MUST_CHECK;
/* The same for files beside l->dir that list images in it. If there are any, l->dir becomes its parent directory. */
enum ct_status ct__layout_find_labels_beside(struct ct_layout *l, struct ct__no_labels *why) CT_MUST_CHECK;

#endif
