#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/augment_impl.h"

#define TOP_BIN 30

/* Source place of destination pixel (x, y), both counted from the centres of pixels:
 * (xx*x + xy*y + x0, yx*x + yy*y + y0). */
struct map {
	double xx, xy, x0, yx, yy, y0;
};

/* Nearest neighbour, black outside. */
static void warp(const struct map *m, const struct ct_picture *p, uint8_t *scratch)
{
	size_t c = (size_t)p->c;
	uint8_t *x = p->x;

	memcpy(scratch, p->x, ct_picture_bytes(p));
	for (int row = 0; row < p->h; row++) {
		for (int column = 0; column < p->w; column++, x += c) {
			double from_x = rint(m->xx * column + m->xy * row + m->x0);
			double from_y = rint(m->yx * column + m->yy * row + m->y0);

			if (from_x >= 0 && from_x < p->w && from_y >= 0 && from_y < p->h)
				memcpy(x, scratch + ((size_t)from_y * (size_t)p->w + (size_t)from_x) * c, c);
			else
				memset(x, 0, c);
		}
	}
}

/* x' = x + level * y about the corner of the image, and the same of y. Here and below the half pixels come from
 * counting places from the corner but pixels from their centres. */
static void shear(const struct ct_picture *p, double level, bool along_y, uint8_t *scratch)
{
	struct map m = {.xx = 1, .yy = 1};

	if (along_y) {
		m.yx = -level;
		m.y0 = -level * 0.5;
	} else {
		m.xy = -level;
		m.x0 = -level * 0.5;
	}
	warp(&m, p, scratch);
}

static void translate(const struct ct_picture *p, int dx, int dy, uint8_t *scratch)
{
	warp(&(struct map){.xx = 1, .yy = 1, .x0 = -dx, .y0 = -dy}, p, scratch);
}

/* Counter-clockwise about the middle. */
static void rotate(const struct ct_picture *p, double degrees, uint8_t *scratch)
{
	double angle = degrees * 0.017453292519943295, c = cos(angle), s = sin(angle);
	double cx = 0.5 * (p->w - 1), cy = 0.5 * (p->h - 1);
	struct map m = {.xx = c, .xy = -s, .yx = s, .yy = c};

	m.x0 = cx - c * cx + s * cy;
	m.y0 = cy - s * cx - c * cy;
	warp(&m, p, scratch);
}

void ct_rand_apply(enum ct_rand_op op, int magnitude, bool negative, const struct ct_picture *p, uint8_t *scratch)
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
		ct_colour_brightness(p, factor);
		break;
	case CT_RAND_COLOUR:
		ct_colour_saturation(p, factor);
		break;
	case CT_RAND_CONTRAST:
		ct_colour_contrast(p, factor);
		break;
	case CT_RAND_SHARPNESS:
		ct_colour_sharpness(p, factor, scratch);
		break;
	case CT_RAND_POSTERIZE:
		ct_colour_posterize(p, (int)rint(8 - 4 * part));
		break;
	case CT_RAND_SOLARIZE:
		ct_colour_solarize(p, (float)(255 * (1 - part)));
		break;
	case CT_RAND_AUTOCONTRAST:
		ct_colour_autocontrast(p);
		break;
	case CT_RAND_EQUALIZE:
		ct_colour_equalize(p);
		break;
	case CT_RAND_IDENTITY:
	case CT_RAND_OPS:
		break;
	}
}

void ct_rand_augment(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		     const struct ct_picture *p, uint8_t *scratch)
{
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_RAND_AUGMENT, epoch, sample);
	for (int i = 0; i < a->rand_augment; i++) {
		enum ct_rand_op op = (enum ct_rand_op)ct_rng_below(&r, CT_RAND_OPS);
		bool negative = ct_rng_u32(&r) & 1;

		ct_rand_apply(op, a->rand_magnitude, negative, p, scratch);
	}
}
