#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment_impl.h"

#define TRIES 10 /* as in torchvision, like the ranges */
#define AREA_MIN 0.02
#define AREA_MAX 0.33
#define RATIO_MIN 0.3
#define RATIO_MAX 3.3

static void fill(const struct ct_augment *a, const struct ct_raster *p, int top, int left, int h, int w)
{
	uint8_t value[4];

	for (int k = 0; k < p->c; k++)
		value[k] = (uint8_t)lrintf(a->mean[k] * 255);
	for (int y = top; y < top + h; y++) {
		uint8_t *x = p->x + ((size_t)y * (size_t)p->w + (size_t)left) * (size_t)p->c;

		for (int i = 0; i < w; i++, x += p->c)
			memcpy(x, value, (size_t)p->c);
	}
}

void ct__augment_erase(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample,
		       const struct ct_raster *p)
{
	double low = log(RATIO_MIN), high = log(RATIO_MAX), area = (double)p->h * p->w;
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_ERASE, epoch, sample);
	if (ct_rng_uniform(&r) >= a->erasing)
		return;
	for (int i = 0; i < TRIES; i++) {
		double part = area * (AREA_MIN + (AREA_MAX - AREA_MIN) * (double)ct_rng_uniform(&r));
		double ratio = exp(low + (high - low) * (double)ct_rng_uniform(&r));
		int h = (int)rint(sqrt(part * ratio)), w = (int)rint(sqrt(part / ratio)), top;

		if (h >= p->h || w >= p->w)
			continue;
		top = (int)ct_rng_below(&r, (uint32_t)(p->h - h + 1));
		fill(a, p, top, (int)ct_rng_below(&r, (uint32_t)(p->w - w + 1)), h, w);
		return;
	}
}
