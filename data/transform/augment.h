/* Augmentation of one uint8 HWC image, keyed by (seed, epoch, sample): independent of ranks, threads and order. */
#ifndef CT_DATA_TRANSFORM_AUGMENT_H
#define CT_DATA_TRANSFORM_AUGMENT_H

#include <stdint.h>

#include "base/status.h"

struct ct_augment {
	int crop_padding;           /* pad by so many zero pixels on each side, crop back at a random place; 0 off */
	bool flip;                  /* left-right with probability 1/2 */
	float degrees;              /* rotation uniform in +-degrees */
	float translate;            /* shift uniform in +- this fraction of the size, both axes */
	float scale_min, scale_max; /* zoom uniform; 1,1 (or 0,0) off */
	float shear;                /* degrees, horizontal */
	/* Colour images, as torchvision.transforms.v2: */
	float brightness, contrast, saturation; /* factor uniform in 1 +- this, not below 0; in random order */
	float hue;                              /* turn uniform in +- this, of 0..0.5 */
	int rand_augment;                       /* RandAugment (Cubuk et al. 2020): so many operations; 0 off */
	int rand_magnitude;                     /* 0..30 of 31 bins, usual 9 */
	float erasing;                          /* probability of RandomErasing (Zhong et al. 2020); area 0.02..0.33,
						 * ratio 0.3..3.3, filled with zero after normalising: the mean */
	float mean[4];                          /* pixel value of each channel in 0..1 that normalises to zero */
};
bool ct_augment_active(const struct ct_augment *a);
/* CT_CONFIG naming the value that is out of range. The functions here may be called only after this said yes. */
enum ct_status ct_augment_check(const struct ct_augment *a) CT_MUST_CHECK;
/* dst and src [h,w,c], c 1..4, distinct; scratch of the same size. Order: affine (bilinear, zeros outside), crop, flip,
 * RandAugment (nearest, zeros outside), colours, erasing. Those from RandAugment on want c 1 or 3; hue wants 3. */
void ct_augment_apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src, uint8_t *dst, uint8_t *scratch);

#endif
