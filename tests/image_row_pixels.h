/* The pixels of a described row (base/image_row.h), computed by a plain loop. */
#ifndef CT_TESTS_IMAGE_ROW_PIXELS_H
#define CT_TESTS_IMAGE_ROW_PIXELS_H

#include <stddef.h>

#include "base/image_row.h"

static inline int image_view_pixel(const struct ct_image_view *v, const uint8_t *samples, const uint8_t *fill, int h,
				   int w, int c, int x, int y, int k)
{
	int sx = (v->flip ? w - 1 - x : x) + v->dx, sy = y + v->dy;

	if (x >= v->left && x < v->right && y >= v->top && y < v->bottom)
		return fill[k];
	if (sx < 0 || sx >= w || sy < 0 || sy >= h)
		return 0;
	return samples[(((size_t)v->sample * (size_t)h + (size_t)sy) * (size_t)w + (size_t)sx) * (size_t)c + (size_t)k];
}

/* out [h,w,c] */
static inline void image_row_pixels(const struct ct_image_row *r, const uint8_t *samples, const uint8_t *fill, int h,
				    int w, int c, uint8_t *out)
{
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++)
			for (int k = 0; k < c; k++) {
				int own = image_view_pixel(&r->own, samples, fill, h, w, c, x, y, k),
				    other = image_view_pixel(&r->other, samples, fill, h, w, c, x, y, k);
				int weight = r->weight;

				if (x >= r->left && x < r->right && y >= r->top && y < r->bottom)
					weight = 256 - weight;
				*out++ = (uint8_t)((weight * own + (256 - weight) * other + 128) >> 8);
			}
}

#endif
