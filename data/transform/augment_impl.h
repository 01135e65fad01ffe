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

/* Returns whether this sample is flipped, using the same random draw as ct_augment_apply. */
bool ct__augment_flips(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample);
/* Returns whether the affine map, crop or (if `flip`) flip is enabled. */
bool ct__augment_moves(const struct ct_augment *a, bool flip);

/* An operation on pixel values. It runs after the geometric steps, in place. To add an operation, define a constant of
 * this type in a separate file, declare it below and add it to the table in augment.c. */
struct ct_augment_op {
	bool (*active)(const struct ct_augment *a);
	enum ct_status (*check)(const struct ct_augment *a); /* fails with CT_CONFIG and names the option that is out of
							      * range */
	/* scratch [h,w,c] */
	void (*apply)(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		      const struct ct_raster *p, uint8_t *scratch);
	bool (*needs_color)(const struct ct_augment *a); /* (optional) [false] requires 3 channels instead of 1 or 3 */
	/* (optional) [the operation cannot be described] Adds what `apply` does to *out. */
	void (*describe)(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w,
			 struct ct_image_view *out);
	bool cheap; /* this operation alone does not justify a loader thread */
};
extern const struct ct_augment_op ct__augment_rand, ct__augment_jitter, ct__augment_erase;
bool ct__augment_is_photometric(const struct ct_augment *a);
bool ct__augment_needs_color(const struct ct_augment *a);
/* Applies the active operations of the table. scratch has the size of the image [h,w,c]. */
void ct__augment_photometric(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
			     const struct ct_raster *p, uint8_t *scratch);

/* Factor 1 leaves the image unchanged. Factor 0 makes it black (brightness), gray (saturation), uniform (contrast) or
 * blurred (sharpness). */
void ct__color_brightness(const struct ct_raster *p, float factor);
void ct__color_saturation(const struct ct_raster *p, float factor);
void ct__color_contrast(const struct ct_raster *p, float factor);
void ct__color_sharpness(const struct ct_raster *p, float factor, uint8_t *scratch);
void ct__color_hue(const struct ct_raster *p, float turn); /* turn = 1 is a full rotation; requires 3 channels */
void ct__color_posterize(const struct ct_raster *p, int bits);
void ct__color_solarize(const struct ct_raster *p, float threshold); /* 0..255 */
void ct__color_autocontrast(const struct ct_raster *p);
void ct__color_equalize(const struct ct_raster *p);

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
/* Applies one operation with magnitude 0..30. If `negative` is set and the operation has a direction, applies it in the
 * opposite direction. */
void ct__rand_apply(enum ct_rand_op op, int magnitude, bool negative, const struct ct_raster *p, uint8_t *scratch);

#endif
