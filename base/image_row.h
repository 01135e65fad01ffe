/* Describes how to compute the rows of a batch from uint8 images [h,w,c] in device memory. The loader writes these
 * structs instead of pixels (data/loader/loader.h), and the engine computes the pixels (ct_net_bind_data, nn/engine.h).
 */
#ifndef CT_BASE_IMAGE_ROW_H
#define CT_BASE_IMAGE_ROW_H

#include <stdint.h>

/* An image after its augmentation. Its pixel (x,y) is pixel (x' + dx, y + dy) of the sample, or zero if that is outside
 * of the sample, where x' is w - 1 - x if `flip` is set, and x otherwise. Pixels in the rectangle from (left,top) up to
 * (right,bottom) (exclusive) have a constant value instead. */
struct ct_image_view {
	uint32_t sample;
	int16_t dx, dy;
	uint16_t left, top, right, bottom;
	uint8_t flip, unused[3];
};

/* A row: an image, mixed with another one. Outside of the rectangle, a pixel is (weight * own + (256 - weight) * other
 * + 128) / 256, rounded down. Inside of it, the two images are exchanged. For a row that is not mixed, the weight is
 * 256, the rectangle is empty, label_b is `label`, and mix is 1. */
struct ct_image_row {
	struct ct_image_view own, other;
	uint16_t weight;
	uint16_t left, top, right, bottom;
	uint16_t unused;
	int32_t label, label_b;
	float mix; /* share of `label`; that of label_b is 1 - mix */
};

#ifdef __cplusplus
static_assert(sizeof(struct ct_image_row) == 64, "the rows of a batch are copied to the device");
#else
_Static_assert(sizeof(struct ct_image_row) == 64, "the rows of a batch are copied to the device");
#endif

#endif
