/* Finds out how a directory of images is organised. */
#ifndef CT_TRAINER_TOOLS_INIT_IMAGE_LAYOUT_H
#define CT_TRAINER_TOOLS_INIT_IMAGE_LAYOUT_H

#include "data/dataset.h"

#define CT_LAYOUT_PATH 4096

struct ct_layout {
	char dir[CT_LAYOUT_PATH]; /* absolute */
	char train[256];          /* directory below dir that contains the class directories or the images, or "." */
	char val[256];            /* the same for evaluation images; "": there are none, or the same directory */
	/* CSV files with the labels of the training and of the evaluation images, relative to dir; "": the classes are
	 * directories */
	char labels[CT_LAYOUT_PATH], val_labels[CT_LAYOUT_PATH];
	char image_column[64], class_column[64]; /* of `labels` */
	char split_column[64];                   /* the same; "": it does not divide the images */
	bool has_val; /* there are separate evaluation images: a directory, val_labels, or a split column in `labels` */
};

/* Accepts DIR/CLASS/IMAGE, and DIR/train/CLASS/IMAGE with or without DIR/val/CLASS/IMAGE. The directories may also be
 * called training, and valid, validation or test. Before that, looks for CSV files with labels
 * (data/files/label_list.h) in DIR, whose images are in DIR or in a directory in it, and, if DIR contains no class
 * directories, beside DIR.
 *
 * labels: the file to use; "none": do not look for such files; NULL: find them. Fails with CT_DATA or CT_NOT_FOUND; the
 * message names the directory or the file, and the hint says what to change. */
enum ct_status ct_layout_find(const char *dir, const char *labels, struct ct_layout *out) CT_MUST_CHECK;
/* Finds the list of labels that ct_layout_find(dir, NULL, out) uses. If there is none, out->labels is empty; *unused is
 * then the reason why a CSV file that appears to be such a list cannot be used, or its status is CT_OK. */
void ct_layout_find_list(const char *dir, struct ct_layout *out, struct ct_error *unused);
/* Opens the training or the evaluation data of the layout, which must have them. */
enum ct_status ct_layout_open(const struct ct_layout *l, bool train, ct_dataset **out) CT_MUST_CHECK;

#endif
