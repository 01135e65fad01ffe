/* The operations and their ranges are those of torchvision's RandAugment with 31 magnitude bins. Geometric operations
 * sample the nearest neighbor through an inverse affine map. Source positions are stepped with integers, in fixed point
 * with 32 bits of fraction. Operation and sign are drawn for each step from one generator keyed by (seed, epoch,
 * sample), also for operations without a direction, so that the draws of later steps do not depend on earlier ones. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment_impl.h"

#define TOP_BIN 30

/* The affine map from a destination pixel (x, y) to its source position, both relative to pixel centers: (xx*x + xy*y +
 * x0, yx*x + yy*y + y0). */
struct map {
	double xx, xy, x0, yx, yy, y0;
};

static int64_t fixed(double v)
{
	return llrint(v * 0x1p32);
}

/* Samples the nearest neighbor, black outside. Positions are computed step by step in 32-bit fixed point. */
static void warp(const struct map *m, const struct ct_raster *p, uint8_t *scratch)
{
	const int64_t xx = fixed(m->xx), yx = fixed(m->yx), half = (int64_t)1 << 31;
	const uint64_t h = (uint64_t)p->h, w = (uint64_t)p->w;
	size_t c = (size_t)p->c;
	uint8_t *x = p->x;

	memcpy(scratch, p->x, ct__raster_bytes(p));
	for (int row = 0; row < p->h; row++) {
		int64_t at_x = fixed(m->xy * row + m->x0) + half, at_y = fixed(m->yy * row + m->y0) + half;

		for (int column = 0; column < p->w; column++, at_x += xx, at_y += yx, x += c) {
			/* The comparison is unsigned, so negative values are too large as well. */
			uint64_t from_x = (uint64_t)(at_x >> 32), from_y = (uint64_t)(at_y >> 32);

			if (from_x < w && from_y < h) {
				const uint8_t *from = scratch + (from_y * w + from_x) * c;

				for (size_t k = 0; k < c; k++)
					x[k] = from[k];
			} else {
				for (size_t k = 0; k < c; k++)
					x[k] = 0;
			}
		}
	}
}

/* Shears around the corner of the image: x becomes x + level * y, or the same for y. Here and below, half a pixel is
 * added or subtracted to convert between positions relative to the corner and positions relative to pixel centers. */
static void shear(const struct ct_raster *p, double level, bool along_y, uint8_t *scratch)
{
	struct map m = {.xx = 1, .yy = 1};

	if (along_y) {
		m.yx = level;
		m.y0 = level * 0.5;
	} else {
		m.xy = level;
		m.x0 = level * 0.5;
	}
	warp(&m, p, scratch);
}

static void translate(const struct ct_raster *p, int dx, int dy, uint8_t *scratch)
{
	warp(&(struct map){.xx = 1, .yy = 1, .x0 = -dx, .y0 = -dy}, p, scratch);
}

/* Rotates counter-clockwise around the center. */
static void rotate(const struct ct_raster *p, double degrees, uint8_t *scratch)
{
	double angle = degrees * 0.017453292519943295, c = cos(angle), s = sin(angle);
	double cx = 0.5 * (p->w - 1), cy = 0.5 * (p->h - 1);
	struct map m = {.xx = c, .xy = -s, .yx = s, .yy = c};

	m.x0 = cx - c * cx + s * cy;
	m.y0 = cy - s * cx - c * cy;
	warp(&m, p, scratch);
}

void ct__rand_apply(enum ct_rand_op op, int magnitude, bool negative, const struct ct_raster *p, uint8_t *scratch)
{
	double part = (double)magnitude / TOP_BIN, sign = negative ? -1 : 1;
	float factor = (float)(1 + sign * 0.9 * part);

	switch (op) {
	case CT_RAND_SHEAR_X:
	case CT_RAND_SHEAR_Y:
		shear(p, sign * 0.3 * part, op == CT_RAND_SHEAR_Y, scratch);
		break;
	case CT_RAND_TRANSLATE_X:
		translate(p, (int)(sign * 150 / 331 * p->w * part), 0, scratch);
		break;
	case CT_RAND_TRANSLATE_Y:
		translate(p, 0, (int)(sign * 150 / 331 * p->h * part), scratch);
		break;
	case CT_RAND_ROTATE:
		rotate(p, sign * 30 * part, scratch);
		break;
	case CT_RAND_BRIGHTNESS:
		ct__color_brightness(p, factor);
		break;
	case CT_RAND_COLOR:
		ct__color_saturation(p, factor);
		break;
	case CT_RAND_CONTRAST:
		ct__color_contrast(p, factor);
		break;
	case CT_RAND_SHARPNESS:
		ct__color_sharpness(p, factor, scratch);
		break;
	case CT_RAND_POSTERIZE:
		ct__color_posterize(p, (int)rint(8 - 4 * part));
		break;
	case CT_RAND_SOLARIZE:
		ct__color_solarize(p, (float)(255 * (1 - part)));
		break;
	case CT_RAND_AUTOCONTRAST:
		ct__color_autocontrast(p);
		break;
	case CT_RAND_EQUALIZE:
		ct__color_equalize(p);
		break;
	case CT_RAND_IDENTITY:
	case CT_RAND_OPS:
		break;
	}
}

static bool active(const struct ct_augment *a)
{
	return a->rand_augment > 0;
}

static enum ct_status check(const struct ct_augment *a)
{
	if (a->rand_augment < 0 || a->rand_augment > 16)
		return CT_FAIL(CT_CONFIG, "augmentation: the number of RandAugment operations, %d, is not in 0..16",
			       a->rand_augment);
	if (a->rand_magnitude < 0 || a->rand_magnitude > 30)
		return CT_FAIL(CT_CONFIG, "augmentation: the RandAugment magnitude %d is not in 0..30",
			       a->rand_magnitude);
	return CT_OK;
}

static void apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, const struct ct_raster *p,
		  uint8_t *scratch)
{
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_RAND_AUGMENT, epoch, sample);
	for (int i = 0; i < a->rand_augment; i++) {
		enum ct_rand_op op = (enum ct_rand_op)ct_rng_below(&r, CT_RAND_OPS);
		bool negative = ct_rng_u32(&r) & 1;

		ct__rand_apply(op, a->rand_magnitude, negative, p, scratch);
	}
}

const struct ct_augment_op ct__augment_rand = {.active = active, .check = check, .apply = apply};
