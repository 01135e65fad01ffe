/* The image files that a command line names. */
#ifndef CT_TRAINER_TOOLS_PREDICT_IMAGE_LIST_H
#define CT_TRAINER_TOOLS_PREDICT_IMAGE_LIST_H

#include <stdint.h>

#include "base/mem.h"

struct ct_image_list {
	char **paths; /* [n] owned */
	uint32_t n, cap;
};

/* Adds a file, whether it exists or not, or all .jpg, .jpeg and .png files in a directory and the directories in it, in
 * bytewise order of their names; names that begin with a dot are skipped. "-" adds the paths on the lines of standard
 * input. Fails with CT_DATA if a directory contains no image, or if directories are nested too deeply. */
enum ct_status ct_image_list_add(struct ct_image_list *l, const char *what) CT_MUST_CHECK;
void ct_image_list_release(struct ct_image_list *l);

#endif
