/* Augmentation of one uint8 HWC image. Random numbers are keyed by (seed, epoch, sample), so results do not depend
 * on ranks, threads or order. */
#ifndef CT_DATA_TRANSFORM_AUGMENT_H
#define CT_DATA_TRANSFORM_AUGMENT_H

#include <stdint.h>

#include "base/image_row.h"
#include "base/status.h"

struct ct_augment {
	int crop_padding;           /* zero-pad each side by this many pixels, then crop at a random position; 0: off */
	bool flip;                  /* horizontal, with probability 0.5 */
	float degrees;              /* rotation angle, uniform in [-degrees, degrees] */
	float translate;            /* shift along each axis, uniform within +- this fraction of the size */
	float scale_min, scale_max; /* zoom factor, uniform between the two; 1,1 (or 0,0): off */
	float shear;                /* horizontal shear angle in degrees, uniform in [-shear, shear] */
	/* Color images, as in torchvision.transforms.v2: */
	float brightness, contrast, saturation; /* factor, uniform in 1 +- this, at least 0; applied in random order */
	float hue;                              /* rotation of the hue, uniform in +- this, at most 0.5 */
	int rand_augment;                       /* RandAugment (Cubuk et al. 2020): number of operations; 0: off */
	int rand_magnitude;                     /* 0..30; usually 9 */
	/* probability of RandomErasing (Zhong et al. 2020); area 0.02..0.33, ratio 0.3..3.3, filled with the mean,
	 * which is zero after normalization */
	float erasing;
	float mean[4]; /* for each channel, the pixel value (0..1) that normalization maps to zero */
};
bool ct_augment_active(const struct ct_augment *a);
/* Returns whether augmenting small images is enough work to justify a loader thread. A crop, a flip or erasing alone is
 * not. */
bool ct_augment_is_costly(const struct ct_augment *a);
/* Fails with CT_CONFIG if a value is out of range; the message names the value. Call ct_augment_apply only after this
 * has succeeded. */
enum ct_status ct_augment_check(const struct ct_augment *a) CT_MUST_CHECK;
/* Augments src [h,w,c], c 1..4, into dst, which must not overlap; scratch has the same size. The steps are, in this
 * order: affine map (bilinear, zeros outside), crop, flip, RandAugment (nearest, zeros outside), color jitter, erasing.
 * RandAugment and the later steps need c to be 1 or 3; hue needs 3. */
void ct_augment_apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src, uint8_t *dst, uint8_t *scratch);
/* Returns whether ct_augment_describe can describe this augmentation: crop, flip and erasing. */
bool ct_augment_describable(const struct ct_augment *a);
/* Describes the result of ct_augment_apply for an image [h,w,c], which is computed from the same random numbers. */
void ct_augment_describe(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w,
			 struct ct_image_view *out);
/* Sets value [c] to the value of erased pixels. */
void ct_augment_fill(const struct ct_augment *a, int c, uint8_t *value);

#endif
