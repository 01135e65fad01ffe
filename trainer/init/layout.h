/* Finds out how a directory of images is organised. */
#ifndef CT_TRAINER_INIT_LAYOUT_H
#define CT_TRAINER_INIT_LAYOUT_H

#include "data/dataset.h"

struct ct_layout {
	char dir[4096];    /* absolute */
	const char *train; /* directory below dir that contains the class directories, or "." */
	const char *val;   /* the same for evaluation images; NULL: there are none */
};

/* Accepts DIR/CLASS/IMAGE, and DIR/train/CLASS/IMAGE with or without DIR/val/CLASS/IMAGE. The directories may also be
 * called training, and valid, validation or test. Fails with CT_DATA or CT_NOT_FOUND; the message names the directory, and
 * the hint says what to change. */
enum ct_status ct_layout_find(const char *dir, struct ct_layout *out) CT_MUST_CHECK;
/* Opens the training or the evaluation data of the layout, which must have them. */
enum ct_status ct_layout_open(const struct ct_layout *l, bool train, ct_dataset **out) CT_MUST_CHECK;

#endif
