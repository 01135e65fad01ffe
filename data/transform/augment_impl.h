/* The parts of ct_augment_apply. Images are uint8 [h,w,c], c 1 or 3. Semantics are those of
 * torchvision.transforms.v2 for uint8 tensors. */
#ifndef CT_DATA_TRANSFORM_AUGMENT_IMPL_H
#define CT_DATA_TRANSFORM_AUGMENT_IMPL_H

#include "data/transform/augment.h"

struct ct_rng;

struct ct_raster {
	uint8_t *x;
	int h, w, c;
};
static inline size_t ct__raster_bytes(const struct ct_raster *p)
{
	return (size_t)p->h * (size_t)p->w * (size_t)p->c;
}

/* Returns whether this sample is flipped: the same draw as in ct_augment_apply. */
bool ct__augment_flips(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample);
/* Returns whether the affine map, crop or (if `flip`) flip is enabled. */
bool ct__augment_moves(const struct ct_augment *a, bool flip);
bool ct__augment_is_photometric(const struct ct_augment *a);
/* Applies the steps after the geometric ones in place: RandAugment, color jitter, erasing. scratch [h,w,c]. */
void ct__augment_photometric(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
			     const struct ct_raster *p, uint8_t *scratch);

/* Factor 1 leaves the image unchanged. Factor 0 makes it black (brightness), gray (saturation), uniform (contrast) or
 * blurred (sharpness). */
void ct__color_brightness(const struct ct_raster *p, float factor);
void ct__color_saturation(const struct ct_raster *p, float factor);
void ct__color_contrast(const struct ct_raster *p, float factor);
void ct__color_sharpness(const struct ct_raster *p, float factor, uint8_t *scratch);
void ct__color_hue(const struct ct_raster *p, float turn); /* 1 is a full turn; c 3 only */
void ct__color_posterize(const struct ct_raster *p, int bits);
void ct__color_solarize(const struct ct_raster *p, float threshold); /* 0..255 */
void ct__color_autocontrast(const struct ct_raster *p);
void ct__color_equalize(const struct ct_raster *p);
/* Applies brightness, contrast, saturation and hue with random factors in random order. */
void ct__color_jitter(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		      const struct ct_raster *p);

enum ct_rand_op {
	CT_RAND_IDENTITY,
	CT_RAND_SHEAR_X,
	CT_RAND_SHEAR_Y,
	CT_RAND_TRANSLATE_X,
	CT_RAND_TRANSLATE_Y,
	CT_RAND_ROTATE,
	CT_RAND_BRIGHTNESS,
	CT_RAND_COLOR,
	CT_RAND_CONTRAST,
	CT_RAND_SHARPNESS,
	CT_RAND_POSTERIZE,
	CT_RAND_SOLARIZE,
	CT_RAND_AUTOCONTRAST,
	CT_RAND_EQUALIZE,
	CT_RAND_OPS
};
/* Applies one operation with magnitude 0..30; if `negative` is set, in the opposite direction, if the operation has
 * one. */
void ct__rand_apply(enum ct_rand_op op, int magnitude, bool negative, const struct ct_raster *p, uint8_t *scratch);
void ct__rand_augment(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		      const struct ct_raster *p, uint8_t *scratch);

void ct__augment_erase(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		       const struct ct_raster *p);

#endif
