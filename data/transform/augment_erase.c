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

static bool active(const struct ct_augment *a)
{
	return a->erasing > 0;
}

static enum ct_status check(const struct ct_augment *a)
{
	if (!(a->erasing >= 0 && a->erasing <= 1))
		return CT_FAIL(CT_CONFIG, "augmentation: the probability of erasing, %g, is not in 0..1",
			       (double)a->erasing);
	return CT_OK;
}

static void apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, const struct ct_raster *p,
		  uint8_t *scratch)
{
	double low = log(RATIO_MIN), high = log(RATIO_MAX), area = (double)p->h * p->w;
	struct ct_rng r;

	(void)scratch;
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

const struct ct_augment_op ct__augment_erase = {.active = active, .check = check, .apply = apply, .cheap = true};
