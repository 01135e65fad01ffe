/* Bilinear resize with antialiasing: a triangle filter as wide as the scale, horizontal first, as Pillow's
 * Image.resize(BILINEAR) and torchvision's transforms on Pillow images; every value within 1 of theirs.
 *
 * A request names a box of the source in real coordinates and the size it becomes. `limits` is where the source ends
 * for the filter: the box itself for crop-then-resize (RandomResizedCrop), the whole image for resize-then-crop
 * (Resize(256) + CenterCrop(224) as one request whose box is the part that stays). */
#ifndef CT_DATA_TRANSFORM_RESIZE_H
#define CT_DATA_TRANSFORM_RESIZE_H

#include "data/image/image.h"

struct ct_resize {
	double x, y, w, h;    /* source box */
	struct ct_box limits; /* pixels outside have no weight; holds the box */
	int out_w, out_h;
	bool flip; /* mirror left to right */
};

typedef struct ct_resizer ct_resizer; /* one thread's tables and scratch; grows, never shrinks */

enum ct_status ct_resizer_create(ct_resizer **out) CT_MUST_CHECK;
void ct_resizer_destroy(ct_resizer *r);
/* The pixels that a request reads: what to decode. */
struct ct_box ct_resize_window(const struct ct_resize *req);
/* dst [out_h,out_w,3]. `src` covers the request's window; its scale is taken into account. CT_NOMEM. */
enum ct_status ct_resize_run(ct_resizer *r, const struct ct_resize *req, const struct ct_pixels *src,
			     uint8_t *dst) CT_MUST_CHECK;

#endif
