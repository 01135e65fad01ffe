/* Geometry is computed as one inverse affine map, and crop and flip as copies of rows. The map is rounded to fixed
 * point once and then stepped with integers, so pixels do not depend on the last bits of sin, cos and tan. All random
 * numbers of the geometry are drawn in a fixed order, whatever is enabled: results of one part stay the same when
 * another is turned on, and a function that needs only the flip gets the same answer. Operations on pixel values follow
 * in the order of a table. The geometric steps alternate between dst and scratch, so that none reads and writes the
 * same image. */
#include "data/transform/augment.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment_impl.h"

#define ONE 65536 /* fixed point: 16 bits of fraction */
#define HALF (ONE / 2)

/* The affine map from a destination pixel (x,y) to its source position, in fixed point: (xx*x + xy*y + x0, yx*x + yy*y
 * + y0). Because the matrix is rounded to fixed point, pixels do not depend on the last bits of libm results. */
struct inverse_map {
	int64_t xx, xy, x0, yx, yy, y0;
};

/* The random numbers for the geometry of one sample. They are uniform in 0..1 or computed as below. All of them are
 * always drawn, so that enabling one part does not change the others. */
struct geometry {
	float angle, dx, dy, shear, zoom;
	int crop_x, crop_y;
	bool flip;
};

static bool affine_active(const struct ct_augment *a)
{
	bool zooms = a->scale_max > 0 && (a->scale_min != 1.0f || a->scale_max != 1.0f);

	return a->degrees > 0 || a->translate > 0 || a->shear > 0 || zooms;
}

bool ct__augment_moves(const struct ct_augment *a, bool flip)
{
	return a->crop_padding > 0 || (flip && a->flip) || affine_active(a);
}

/* In the order of execution. */
static const struct ct_augment_op *const ops[] = {&ct__augment_rand, &ct__augment_jitter, &ct__augment_erase};

bool ct__augment_is_photometric(const struct ct_augment *a)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->active(a))
			return true;
	}
	return false;
}

bool ct__augment_needs_color(const struct ct_augment *a)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->needs_color && ops[i]->needs_color(a))
			return true;
	}
	return false;
}

bool ct_augment_active(const struct ct_augment *a)
{
	return ct__augment_moves(a, true) || ct__augment_is_photometric(a);
}

bool ct_augment_is_costly(const struct ct_augment *a)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->active(a) && !ops[i]->cheap)
			return true;
	}
	return affine_active(a);
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
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++)
		CT_TRY(ops[i]->check(a));
	for (int i = 0; i < 4; i++) {
		if (!(a->mean[i] >= 0 && a->mean[i] <= 1))
			return CT_FAIL(CT_CONFIG, "augmentation: mean %g of channel %d is not in 0..1",
				       (double)a->mean[i], i);
	}
	if (a->scale_min == 0 && a->scale_max == 0)
		return CT_OK;
	if (!(a->scale_min >= 0.05f && a->scale_min <= a->scale_max && a->scale_max <= 20))
		return CT_FAIL(CT_CONFIG, "augmentation: zoom from %g to %g is not in 0.05..20", (double)a->scale_min,
			       (double)a->scale_max);
	return CT_OK;
}

static void draw_geometry(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
			  struct geometry *g)
{
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_AUGMENT, epoch, sample);
	g->angle = ct_rng_uniform(&r);
	g->dx = ct_rng_uniform(&r);
	g->dy = ct_rng_uniform(&r);
	g->shear = ct_rng_uniform(&r);
	g->zoom = ct_rng_uniform(&r);
	g->flip = ct_rng_u32(&r) & 1;
	g->crop_x = (int)ct_rng_below(&r, 2 * (uint32_t)a->crop_padding + 1) - a->crop_padding;
	g->crop_y = (int)ct_rng_below(&r, 2 * (uint32_t)a->crop_padding + 1) - a->crop_padding;
}

bool ct__augment_flips(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample)
{
	struct geometry g;

	if (!a->flip)
		return false;
	draw_geometry(a, seed, epoch, sample, &g);
	return g.flip;
}

static double between(float uniform, double low, double high)
{
	return low + (high - low) * (double)uniform;
}

static int64_t fixed(double v)
{
	return llrint(v * ONE);
}

/* The forward map zooms, shears along x and rotates around the center, and then shifts. This function computes its
 * inverse. */
static void make_map(const struct ct_augment *a, const struct geometry *g, int h, int w, struct inverse_map *m)
{
	const double radian = 0.017453292519943295;
	double angle = between(g->angle, -a->degrees, a->degrees) * radian,
	       dx = between(g->dx, -a->translate, a->translate) * w,
	       dy = between(g->dy, -a->translate, a->translate) * h,
	       shear = tan(between(g->shear, -a->shear, a->shear) * radian);
	double zoom = a->scale_max > 0 ? between(g->zoom, a->scale_min, a->scale_max) : 1.0, c = cos(angle),
	       s = sin(angle);
	double cx = 0.5 * (w - 1), cy = 0.5 * (h - 1);

	m->xx = fixed((c + shear * s) / zoom);
	m->xy = fixed((s - shear * c) / zoom);
	m->yx = fixed(-s / zoom);
	m->yy = fixed(c / zoom);
	m->x0 = fixed(cx) - (m->xx * fixed(cx + dx) + m->xy * fixed(cy + dy)) / ONE;
	m->y0 = fixed(cy) - (m->yx * fixed(cx + dx) + m->yy * fixed(cy + dy)) / ONE;
}

/* Interpolates at a position that may be partly outside, with the four neighbors (8 bits of fraction in each
 * direction). Neighbors outside count as zero: they get weight 0, and their address is not computed. */
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

/* Copies the pixels of src in reverse order. */
static void mirror(const uint8_t *src, int n, int c, uint8_t *dst)
{
	const uint8_t *from = src + (n - 1) * c;

	if (n <= 0)
		return;
	if (c == 1) {
		for (int i = 0; i < n; i++)
			dst[i] = from[-i];
	} else if (c == 3) {
		/* Copies four bytes at a time. The fourth byte belongs to the next pixel, which is written next.
		 * Nothing is read before the first pixel or written after the last one. */
		memcpy(dst, from, 3);
		for (int i = 1; i < n - 1; i++)
			memcpy(dst + 3 * i, from - 3 * i, 4);
		memcpy(dst + 3 * (n - 1), src, 3);
	} else {
		for (int i = 0; i < n; i++)
			memcpy(dst + i * c, from - i * c, (size_t)c);
	}
}

/* dst(x,y) = src(x + dx, y + dy), zero outside; mirrored if `flip` is set. */
static void crop_flip(int dx, int dy, bool flip, int h, int w, int c, const uint8_t *src, uint8_t *dst)
{
	int first = dx < 0 ? -dx : 0, last = dx > 0 ? w - dx : w, left = flip ? w - last : first;

	for (int y = 0; y < h; y++, dst += w * c) {
		int64_t row = ((int64_t)(y + dy) * w + dx) * c; /* offset of column 0, which may be outside */

		if (y + dy < 0 || y + dy >= h || last <= first) {
			memset(dst, 0, (size_t)w * (size_t)c);
			continue;
		}
		memset(dst, 0, (size_t)left * (size_t)c);
		memset(dst + (left + last - first) * c, 0, (size_t)(w - left - (last - first)) * (size_t)c);
		if (flip)
			mirror(src + row + first * c, last - first, c, dst + left * c);
		else
			memcpy(dst + left * c, src + row + first * c, (size_t)(last - first) * (size_t)c);
	}
}

void ct__augment_photometric(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
			     const struct ct_raster *p, uint8_t *scratch)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->active(a))
			ops[i]->apply(a, seed, epoch, sample, p, scratch);
	}
}

bool ct_augment_describable(const struct ct_augment *a)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->active(a) && !ops[i]->describe)
			return false;
	}
	return !affine_active(a);
}

void ct_augment_describe(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w,
			 struct ct_image_view *out)
{
	struct geometry g;

	*out = (struct ct_image_view){.sample = sample};
	if (a->crop_padding > 0 || a->flip) {
		draw_geometry(a, seed, epoch, sample, &g);
		out->dx = (int16_t)g.crop_x;
		out->dy = (int16_t)g.crop_y;
		out->flip = g.flip && a->flip;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		if (ops[i]->active(a))
			ops[i]->describe(a, seed, epoch, sample, h, w, out);
	}
}

void ct_augment_apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src, uint8_t *dst, uint8_t *scratch)
{
	bool warps = affine_active(a), shifts = a->crop_padding > 0 || a->flip;
	struct inverse_map map;
	struct geometry g;

	if (warps || shifts)
		draw_geometry(a, seed, epoch, sample, &g);
	if (warps) {
		make_map(a, &g, h, w, &map);
		warp(&map, h, w, c, src, shifts ? scratch : dst);
		src = scratch;
	}
	if (shifts)
		crop_flip(g.crop_x, g.crop_y, g.flip && a->flip, h, w, c, src, dst);
	else if (!warps)
		memcpy(dst, src, (size_t)h * (size_t)w * (size_t)c);
	if (ct__augment_is_photometric(a))
		ct__augment_photometric(a, seed, epoch, sample, &(struct ct_raster){dst, h, w, c}, scratch);
}
