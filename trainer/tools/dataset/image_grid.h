/* An image that shows other images in rows and columns, with captions. */
#ifndef CT_TRAINER_TOOLS_DATASET_IMAGE_GRID_H
#define CT_TRAINER_TOOLS_DATASET_IMAGE_GRID_H

#include "base/status.h"
#include "data/image/text.h"

struct ct__grid {
	int n, columns;      /* cells */
	int cell_w, cell_h;  /* pixels of a cell, without its caption */
	int lines;           /* of each caption */
	const char *title;   /* NULL: none; borrowed */
	struct ct_rgb image; /* the result */
	int dot;             /* size of a pixel of the font */
};

/* Sets image and dot; the other fields are set by the caller. longest: the length of the longest caption line. Fails
 * with CT_USAGE if the image would be too large. */
enum ct_status ct_grid_create(struct ct__grid *g, int longest) CT_MUST_CHECK;
void ct_grid_release(struct ct__grid *g);
/* Draws the image x [h,w,c] at (left, top) of cell i, enlarged or reduced to out_w x out_h pixels without
 * interpolation. c is 1, or at least 3 for color. */
void ct_grid_draw(struct ct__grid *g, int i, int left, int top, int out_w, int out_h, const uint8_t *x, int h, int w,
		  int c);
/* Centers a string in a line of the caption of cell i. Long ones are cut off. */
void ct_grid_caption(struct ct__grid *g, int i, int line, const char *text);

#endif
