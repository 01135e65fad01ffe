/* Bilinear resize with antialiasing: a triangle filter whose width grows with the scale, horizontal first, as in
 * Pillow's Image.resize(BILINEAR) and in torchvision's transforms of Pillow images. Each resulting value differs from
 * that of Pillow or torchvision by at most 1.
 *
 * A request consists of a box in the source image, in real coordinates, and the size of the result. The filter reads
 * only pixels inside `limits`: the box itself for crop-then-resize (RandomResizedCrop), or the full image for
 * resize-then-crop (Resize(256) and CenterCrop(224) are one request, whose box is the part that remains). */
#ifndef CT_DATA_TRANSFORM_RESIZE_H
#define CT_DATA_TRANSFORM_RESIZE_H

#include "data/image/image.h"

struct ct_resize {
	double x, y, w, h;    /* source box */
	struct ct_box limits; /* contains the box; pixels outside the limits have no weight */
	int out_w, out_h;
	bool flip; /* flip horizontally */
};

/* Sets the box and the limits for an image of w x h pixels: Resize(short_side) and CenterCrop(out_h, out_w) with
 * torchvision's rounding. out_w and out_h must be set. */
void ct_resize_center(struct ct_resize *req, int w, int h, int short_side);

typedef struct ct_resizer ct_resizer; /* tables and scratch memory of one thread, which never shrink */

enum ct_status ct_resizer_create(ct_resizer **out) CT_MUST_CHECK;
void ct_resizer_destroy(ct_resizer *r);
/* Returns the box of pixels that a request reads, that is, the pixels that must be decoded. */
struct ct_box ct_resize_window(const struct ct_resize *req);
/* Resizes to dst [out_h,out_w,3]. `src` must contain the box of ct_resize_window; it may have a reduced scale. Fails
 * with CT_NOMEM. */
enum ct_status ct_resize_run(ct_resizer *r, const struct ct_resize *req, const struct ct_pixels *src,
			     uint8_t *dst) CT_MUST_CHECK;

#endif
