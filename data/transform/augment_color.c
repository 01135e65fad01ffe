/* The operations follow torchvision for uint8 tensors, including its rounding toward zero. Those that treat each value
 * alone are computed as a table of 256 values. Sums over an image are sums of integers, so their order does not matter,
 * and results are the same with any vector width. Factors are always drawn for all four jitters, whether they are on or
 * not; so turning one on does not change the others. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment_impl.h"

#define BOUND 255.0f

static float clamp(float v, float low, float high)
{
	return v < low ? low : v > high ? high : v;
}

static float larger(float a, float b)
{
	return a > b ? a : b;
}

static float smaller(float a, float b)
{
	return a < b ? a : b;
}

static void look_up(const struct ct_raster *p, const uint8_t table[256])
{
	size_t n = ct__raster_bytes(p);

	for (size_t i = 0; i < n; i++)
		p->x[i] = table[p->x[i]];
}

/* floor(0.2989 r + 0.587 g + 0.114 b) in fixed point. */
static int gray(const uint8_t *x)
{
	return (x[0] * 313419 + x[1] * 615514 + x[2] * 119538) >> 20;
}

void ct__color_brightness(const struct ct_raster *p, float factor)
{
	uint8_t table[256];

	for (int v = 0; v < 256; v++)
		table[v] = (uint8_t)clamp((float)v * factor, 0, BOUND);
	look_up(p, table);
}

void ct__color_saturation(const struct ct_raster *p, float factor)
{
	size_t n = (size_t)p->h * (size_t)p->w;
	float rest = 1 - factor;
	uint8_t *x = p->x;

	if (p->c != 3)
		return;
	for (size_t i = 0; i < n; i++, x += 3) {
		float add = (float)gray(x) * rest;

		for (int k = 0; k < 3; k++)
			x[k] = (uint8_t)clamp((float)x[k] * factor + add, 0, BOUND);
	}
}

void ct__color_contrast(const struct ct_raster *p, float factor)
{
	size_t n = (size_t)p->h * (size_t)p->w;
	uint8_t table[256];
	uint64_t sum = 0; /* integers, so the order of summation does not matter */
	float add;

	for (size_t i = 0; i < n; i++)
		sum += p->c == 3 ? (unsigned)gray(p->x + 3 * i) : p->x[i];
	add = (float)((double)sum / (double)n) * (1 - factor);
	for (int v = 0; v < 256; v++)
		table[v] = (uint8_t)clamp((float)v * factor + add, 0, BOUND);
	look_up(p, table);
}

/* Blends each pixel with the mean of its 3 x 3 neighborhood, whose center has weight 5. The border does not change. */
void ct__color_sharpness(const struct ct_raster *p, float factor, uint8_t *scratch)
{
	size_t row = (size_t)p->w * (size_t)p->c, c = (size_t)p->c;

	if (p->h <= 2 || p->w <= 2)
		return;
	memcpy(scratch, p->x, ct__raster_bytes(p));
	for (int y = 1; y < p->h - 1; y++) {
		const uint8_t *s = scratch + (size_t)y * row;
		uint8_t *x = p->x + (size_t)y * row;

		for (size_t i = c; i < row - c; i++) {
			int sum = 4 * s[i];
			float v = (float)s[i];

			for (int k = -1; k <= 1; k++) {
				const uint8_t *q = s + (ptrdiff_t)row * k + i;

				sum += q[-(ptrdiff_t)c] + q[0] + q[c];
			}
			v += (rintf((float)sum / 13) - v) * (1 - factor);
			x[i] = (uint8_t)clamp(v, 0, BOUND);
		}
	}
}

/* Returns the hue in sixths of the color circle, 0..6. */
static float hue_of(const float rgb[3], float top, float range)
{
	float h;

	if (rgb[0] == top)
		h = (rgb[1] - rgb[2]) / range;
	else if (rgb[1] == top)
		h = 2 + (rgb[2] - rgb[0]) / range;
	else
		h = 4 + (rgb[0] - rgb[1]) / range;
	return h < 0 ? h + 6 : h;
}

/* turn in -0.5..0.5. */
void ct__color_hue(const struct ct_raster *p, float turn)
{
	/* Selects which of v, p, q, t is red, green and blue in each sixth of the circle (Smith 1978). */
	static const uint8_t select[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3}, {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
	size_t n = (size_t)p->h * (size_t)p->w;
	uint8_t *x = p->x;

	for (size_t i = 0; i < n; i++, x += 3) {
		float rgb[3] = {(float)x[0] / BOUND, (float)x[1] / BOUND, (float)x[2] / BOUND};
		float top = larger(larger(rgb[0], rgb[1]), rgb[2]);
		float range = top - smaller(smaller(rgb[0], rgb[1]), rgb[2]);
		float h, s, f, vpqt[4];
		int sixth; /* sector of the circle */

		if (range == 0)
			continue;
		s = range / top;
		h = hue_of(rgb, top, range) + 6 * turn;
		h += h < 0 ? 6.0f : h >= 6 ? -6.0f : 0.0f;
		sixth = (int)h;
		f = h - (float)sixth;
		sixth = sixth > 5 ? 0 : sixth;
		vpqt[0] = top;
		vpqt[1] = clamp(top * (1 - s), 0, 1);
		vpqt[2] = clamp(top * (1 - s * f), 0, 1);
		vpqt[3] = clamp(top * (1 - s + s * f), 0, 1);
		for (int k = 0; k < 3; k++)
			x[k] = (uint8_t)(vpqt[select[sixth][k]] * 255.999f);
	}
}

void ct__color_posterize(const struct ct_raster *p, int bits)
{
	uint8_t mask = (uint8_t)(0xff << (8 - bits));
	size_t n = ct__raster_bytes(p);

	for (size_t i = 0; i < n; i++)
		p->x[i] &= mask;
}

void ct__color_solarize(const struct ct_raster *p, float threshold)
{
	size_t n = ct__raster_bytes(p);
	int first = (int)ceilf(threshold);

	for (size_t i = 0; i < n; i++)
		p->x[i] = p->x[i] >= first ? (uint8_t)(255 - p->x[i]) : p->x[i];
}

static void count(const struct ct_raster *p, int channel, uint32_t histogram[256])
{
	size_t n = ct__raster_bytes(p);

	memset(histogram, 0, 256 * sizeof(*histogram));
	for (size_t i = (size_t)channel; i < n; i += (size_t)p->c)
		histogram[p->x[i]]++;
}

static void look_up_channel(const struct ct_raster *p, int channel, const uint8_t table[256])
{
	size_t n = ct__raster_bytes(p);

	for (size_t i = (size_t)channel; i < n; i += (size_t)p->c)
		p->x[i] = table[p->x[i]];
}

/* Stretches each channel to 0..255. */
void ct__color_autocontrast(const struct ct_raster *p)
{
	for (int k = 0; k < p->c; k++) {
		uint32_t histogram[256];
		uint8_t table[256];
		int low = 0, high = 255;
		float scale;

		count(p, k, histogram);
		while (histogram[low] == 0)
			low++;
		while (histogram[high] == 0)
			high--;
		if (low == high)
			continue;
		scale = (float)(high - low) * (1 / BOUND);
		for (int v = 0; v < 256; v++)
			table[v] = (uint8_t)clamp((float)(v - low) / scale, 0, BOUND);
		look_up_channel(p, k, table);
	}
}

/* Pillow's rule: each step has the same number of pixels, not counting those with the largest value. */
void ct__color_equalize(const struct ct_raster *p)
{
	uint32_t n = (uint32_t)p->h * (uint32_t)p->w;

	for (int k = 0; k < p->c; k++) {
		uint32_t histogram[256], step, sum = 0;
		uint8_t table[256];
		int high = 255;

		count(p, k, histogram);
		while (histogram[high] == 0)
			high--;
		step = (n - histogram[high]) / 255;
		if (step == 0)
			continue;
		for (int v = 0; v < 256; v++) {
			uint32_t to = v ? (sum + step / 2) / step : 0;

			table[v] = (uint8_t)(to > 255 ? 255 : to);
			sum += histogram[v];
		}
		look_up_channel(p, k, table);
	}
}

static float around_one(struct ct_rng *r, float spread)
{
	float low = spread < 1 ? 1 - spread : 0;

	return low + (1 + spread - low) * ct_rng_uniform(r);
}

static bool jitter_active(const struct ct_augment *a)
{
	return a->brightness > 0 || a->contrast > 0 || a->saturation > 0 || a->hue > 0;
}

static bool jitter_needs_color(const struct ct_augment *a)
{
	return a->saturation > 0 || a->hue > 0;
}

static enum ct_status check_jitter(const struct ct_augment *a)
{
	const float jitter[3] = {a->brightness, a->contrast, a->saturation};
	static const char *const names[3] = {"brightness", "contrast", "saturation"};

	for (int i = 0; i < 3; i++) {
		if (!(jitter[i] >= 0 && jitter[i] <= 10))
			return CT_FAIL(CT_CONFIG, "augmentation: %s jitter %g is not in 0..10", names[i],
				       (double)jitter[i]);
	}
	if (!(a->hue >= 0 && a->hue <= 0.5f))
		return CT_FAIL(CT_CONFIG, "augmentation: hue jitter %g is not in 0..0.5", (double)a->hue);
	return CT_OK;
}

/* Applies brightness, contrast, saturation and hue with random factors in random order. */
static void jitter(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		   const struct ct_raster *p, uint8_t *scratch)
{
	int order[4] = {0, 1, 2, 3};
	float brightness, contrast, saturation, hue;
	struct ct_rng r;

	(void)scratch;
	/* All are always drawn, so that enabling one does not change the others. */
	ct_rng_init(&r, seed, CT_RNG_COLOR, epoch, sample);
	for (int i = 3; i > 0; i--) {
		int k = (int)ct_rng_below(&r, (uint32_t)i + 1), t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
	brightness = around_one(&r, a->brightness);
	contrast = around_one(&r, a->contrast);
	saturation = around_one(&r, a->saturation);
	hue = a->hue * (2 * ct_rng_uniform(&r) - 1);
	for (int i = 0; i < 4; i++) {
		if (order[i] == 0 && a->brightness > 0)
			ct__color_brightness(p, brightness);
		else if (order[i] == 1 && a->contrast > 0)
			ct__color_contrast(p, contrast);
		else if (order[i] == 2 && a->saturation > 0)
			ct__color_saturation(p, saturation);
		else if (order[i] == 3 && a->hue > 0)
			ct__color_hue(p, hue);
	}
}

const struct ct_augment_op ct__augment_jitter = {
	.active = jitter_active, .check = check_jitter, .apply = jitter, .needs_color = jitter_needs_color};
