/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of two uint8 images. Random numbers are keyed by (seed,
 * epoch, position of the pair's first image in the epoch). */
#ifndef CT_DATA_TRANSFORM_MIX_H
#define CT_DATA_TRANSFORM_MIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/image_row.h"
#include "base/status.h"

struct ct_mix {
	float share; /* share of its own pixels that each image keeps, after rounding to a multiple of 1/256 (mixup) or
		      * to a rectangle of pixels (CutMix) */
	bool cut;
	int weight;         /* mixup: share * 256 */
	int x0, y0, x1, y1; /* CutMix: the rectangle that is swapped, up to x1, y1 (exclusive) */
};

/* Draws the parameters for a pair of images [h,w,c]. mixup and cutmix are the values of alpha in Beta(alpha, alpha); 0:
 * off. If both are on, one of them is chosen at random. */
void ct_mix_draw(float mixup, float cutmix, uint64_t seed, uint32_t epoch, uint32_t place, int h, int w,
		 struct ct_mix *out);
/* Mixes a and b [h,w,c] in place: each image keeps `share` of its own pixels and takes the rest from the other
 * image. */
void ct_mix_apply(const struct ct_mix *m, int h, int w, int c, uint8_t *a, uint8_t *b);
/* Describes the same for two rows whose own images are already described. Does not change their labels. */
void ct_mix_describe(const struct ct_mix *m, struct ct_image_row *a, struct ct_image_row *b);

#endif
