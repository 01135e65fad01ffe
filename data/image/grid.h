/* An image that shows cells of the same size in rows and columns. */
#ifndef CT_DATA_IMAGE_GRID_H
#define CT_DATA_IMAGE_GRID_H

#include "base/status.h"
#include "data/image/text.h"

/* The caller sets all members but the last. Lengths are in pixels. */
struct ct_image_grid {
	int n, columns;      /* cells */
	int cell_w, cell_h;  /* of each cell */
	int gap, margin;     /* between the cells, and around all of them */
	int header, caption; /* space above all cells, and below each cell */
	struct ct_rgb image; /* owned */
};

/* Returns the size of the image, which may be too large to be created. */
void ct_image_grid_size(const struct ct_image_grid *g, int64_t *w, int64_t *h);
/* Creates the image; all bytes of its pixels are `background`. */
enum ct_status ct_image_grid_create(struct ct_image_grid *g, uint8_t background) CT_MUST_CHECK;
void ct_image_grid_release(struct ct_image_grid *g); /* may be called again */
/* Returns the position of cell i, and its pixel (x, y). */
int ct_image_grid_x(const struct ct_image_grid *g, int i);
int ct_image_grid_y(const struct ct_image_grid *g, int i);
uint8_t *ct_image_grid_at(const struct ct_image_grid *g, int i, int x, int y);

#endif
