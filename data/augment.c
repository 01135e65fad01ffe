#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

#define ONE 65536 /* fixed point: 16 bits of fraction */
#define HALF (ONE / 2)

/* Source place of destination pixel (x,y), in fixed point: (xx*x + xy*y + x0, yx*x + yy*y + y0). Rounding the matrix to
 * fixed point makes the pixels independent of the last bits of libm. */
struct inverse_map {
	int64_t xx, xy, x0, yx, yy, y0;
};

static bool affine_active(const struct ct_augment *a)
{
	bool zooms = a->scale_max > 0 && (a->scale_min != 1.0f || a->scale_max != 1.0f);

	return a->degrees > 0 || a->translate > 0 || a->shear > 0 || zooms;
}

bool ct_augment_active(const struct ct_augment *a)
{
	return a->crop_padding > 0 || a->flip || affine_active(a);
}

enum ct_status ct_augment_check(const struct ct_augment *a)
{
	if (a->crop_padding < 0 || a->crop_padding > 1024)
		return CT_FAIL(CT_CONFIG, "augmentation: crop padding %d is not in 0..1024", a->crop_padding);
	if (!(a->degrees >= 0 && a->degrees <= 180))
		return CT_FAIL(CT_CONFIG, "augmentation: rotation by %g degrees is not in 0..180", (double)a->degrees);
	if (!(a->translate >= 0 && a->translate <= 1))
		return CT_FAIL(CT_CONFIG, "augmentation: shift by %g of the size is not in 0..1", (double)a->translate);
	if (!(a->shear >= 0 && a->shear <= 80))
		return CT_FAIL(CT_CONFIG, "augmentation: shear by %g degrees is not in 0..80", (double)a->shear);
	if (a->scale_min == 0 && a->scale_max == 0)
		return CT_OK;
	if (!(a->scale_min >= 0.05f && a->scale_min <= a->scale_max && a->scale_max <= 20))
		return CT_FAIL(CT_CONFIG, "augmentation: zoom from %g to %g is not inside 0.05..20",
			       (double)a->scale_min, (double)a->scale_max);
	return CT_OK;
}

static double between(struct ct_rng *r, double low, double high)
{
	return low + (high - low) * (double)ct_rng_uniform(r);
}

static int64_t fixed(double v)
{
	return llrint(v * ONE);
}

/* Forward: about the centre, zoom, shear along x, rotate, then shift. Here its inverse. */
static void draw_map(const struct ct_augment *a, struct ct_rng *r, int h, int w, struct inverse_map *m)
{
	const double radian = 0.017453292519943295;
	double angle = between(r, -a->degrees, a->degrees) * radian, dx = between(r, -a->translate, a->translate) * w,
	       dy = between(r, -a->translate, a->translate) * h, shear = tan(between(r, -a->shear, a->shear) * radian);
	double zoom = a->scale_max > 0 ? between(r, a->scale_min, a->scale_max) : 1.0, c = cos(angle), s = sin(angle);
	double cx = 0.5 * (w - 1), cy = 0.5 * (h - 1);

	m->xx = fixed((c + shear * s) / zoom);
	m->xy = fixed((s - shear * c) / zoom);
	m->yx = fixed(-s / zoom);
	m->yy = fixed(c / zoom);
	m->x0 = fixed(cx) - (m->xx * fixed(cx + dx) + m->xy * fixed(cy + dy)) / ONE;
	m->y0 = fixed(cy) - (m->yx * fixed(cx + dx) + m->yy * fixed(cy + dy)) / ONE;
}

/* Weights of the four neighbours (8 bits of fraction each way) of a place that may lie partly outside: neighbours there
 * are zero. Their weight goes to 0 and their address is not formed. */
static void sample_edge(int64_t x0, int64_t y0, int fx, int fy, int h, int w, int c, const uint8_t *src, uint8_t *dst)
{
	int left = x0 >= 0 ? 256 - fx : 0, right = x0 + 1 < w ? fx : 0, top = y0 >= 0 ? 256 - fy : 0,
	    bottom = y0 + 1 < h ? fy : 0;
	const uint8_t *p = src + ((y0 < 0 ? 0 : y0) * w + (x0 < 0 ? 0 : x0)) * c;
	int64_t dx = x0 >= 0 && right ? c : 0, dy = y0 >= 0 && bottom ? (int64_t)w * c : 0;

	for (int k = 0; k < c; k++) {
		int upper = left * p[k] + right * p[k + dx], lower = left * p[k + dy] + right * p[k + dy + dx];

		dst[k] = (uint8_t)((top * upper + bottom * lower + HALF) >> 16);
	}
}

static void warp(const struct inverse_map *m, int h, int w, int c, const uint8_t *src, uint8_t *dst)
{
	ptrdiff_t row_bytes = (ptrdiff_t)w * c;

	for (int y = 0; y < h; y++) {
		int64_t sx = m->xy * y + m->x0, sy = m->yy * y + m->y0;

		for (int x = 0; x < w; x++, sx += m->xx, sy += m->yx, dst += c) {
			int64_t x0 = sx >> 16, y0 = sy >> 16;
			int fx = (int)(sx & (ONE - 1)) >> 8, fy = (int)(sy & (ONE - 1)) >> 8;

			if (x0 >= 0 && x0 < w - 1 && y0 >= 0 && y0 < h - 1) {
				const uint8_t *p = src + y0 * row_bytes + x0 * c, *q = p + row_bytes;

				for (int k = 0; k < c; k++) {
					int upper = 256 * p[k] + fx * (p[k + c] - p[k]),
					    lower = 256 * q[k] + fx * (q[k + c] - q[k]);

					dst[k] = (uint8_t)((256 * upper + fy * (lower - upper) + HALF) >> 16);
				}
			} else if (x0 < -1 || x0 >= w || y0 < -1 || y0 >= h) {
				memset(dst, 0, (size_t)c);
			} else {
				sample_edge(x0, y0, fx, fy, h, w, c, src, dst);
			}
		}
	}
}

/* dst(x,y) = src(x + dx, y + dy), zero outside; mirrored when flip. */
static void crop_flip(int dx, int dy, bool flip, int h, int w, int c, const uint8_t *src, uint8_t *dst)
{
	int first = dx < 0 ? -dx : 0, last = dx > 0 ? w - dx : w;

	for (int y = 0; y < h; y++, dst += w * c) {
		int64_t row = ((int64_t)(y + dy) * w + dx) * c; /* offset of column 0, which may lie outside */

		if (y + dy < 0 || y + dy >= h || last <= first) {
			memset(dst, 0, (size_t)w * (size_t)c);
			continue;
		}
		if (!flip) {
			memset(dst, 0, (size_t)first * (size_t)c);
			memcpy(dst + first * c, src + row + first * c, (size_t)(last - first) * (size_t)c);
			memset(dst + last * c, 0, (size_t)(w - last) * (size_t)c);
			continue;
		}
		for (int x = 0; x < w; x++) {
			int from = w - 1 - x;

			if (from < first || from >= last)
				memset(dst + x * c, 0, (size_t)c);
			else
				memcpy(dst + x * c, src + row + from * c, (size_t)c);
		}
	}
}

void ct_augment_apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src, uint8_t *dst, uint8_t *scratch)
{
	bool moves = a->crop_padding > 0 || a->flip;
	struct inverse_map map;
	struct ct_rng r;
	int dx, dy;
	bool flip;

	/* All numbers are drawn in any case: switching one part on does not change what the others do. */
	ct_rng_init(&r, seed, CT_RNG_AUGMENT, epoch, sample);
	draw_map(a, &r, h, w, &map);
	dx = (int)ct_rng_below(&r, 2 * (uint32_t)a->crop_padding + 1) - a->crop_padding;
	dy = (int)ct_rng_below(&r, 2 * (uint32_t)a->crop_padding + 1) - a->crop_padding;
	flip = (ct_rng_u32(&r) & 1) && a->flip;
	if (affine_active(a)) {
		warp(&map, h, w, c, src, moves ? scratch : dst);
		src = scratch;
	}
	if (moves)
		crop_flip(dx, dy, flip, h, w, c, src, dst);
	else if (!affine_active(a))
		memcpy(dst, src, (size_t)h * (size_t)w * (size_t)c);
}
