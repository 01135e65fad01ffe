/* The rectangle is drawn as in torchvision: area and logarithm of the ratio are uniform, and after TRIES attempts that
 * do not fit, nothing is erased. apply and describe use the same draw, so that a device that computes the pixels erases
 * the same rectangle. The value is the mean, which becomes zero after normalization. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment_impl.h"

#define TRIES 10 /* as in torchvision, like the ranges */
#define AREA_MIN 0.02
#define AREA_MAX 0.33
#define RATIO_MIN 0.3
#define RATIO_MAX 3.3

void ct_augment_fill(const struct ct_augment *a, int c, uint8_t *value)
{
	for (int k = 0; k < c; k++)
		value[k] = (uint8_t)lrintf(a->mean[k] * 255);
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

/* The rectangle that is erased, which may be empty. */
struct rectangle {
	int left, top, w, h;
};

static struct rectangle draw(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w)
{
	double low = log(RATIO_MIN), high = log(RATIO_MAX), area = (double)h * w;
	struct rectangle out = {0};
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_ERASE, epoch, sample);
	if (ct_rng_uniform(&r) >= a->erasing)
		return out;
	for (int i = 0; i < TRIES; i++) {
		double part = area * (AREA_MIN + (AREA_MAX - AREA_MIN) * (double)ct_rng_uniform(&r));
		double ratio = exp(low + (high - low) * (double)ct_rng_uniform(&r));
		int box_h = (int)rint(sqrt(part * ratio)), box_w = (int)rint(sqrt(part / ratio));

		if (box_h >= h || box_w >= w)
			continue;
		out.h = box_h;
		out.w = box_w;
		out.top = (int)ct_rng_below(&r, (uint32_t)(h - box_h + 1));
		out.left = (int)ct_rng_below(&r, (uint32_t)(w - box_w + 1));
		break;
	}
	return out;
}

static void apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, const struct ct_raster *p,
		  uint8_t *scratch)
{
	struct rectangle box = draw(a, seed, epoch, sample, p->h, p->w);
	uint8_t value[4];

	(void)scratch;
	ct_augment_fill(a, p->c, value);
	for (int y = box.top; y < box.top + box.h; y++) {
		uint8_t *x = p->x + ((size_t)y * (size_t)p->w + (size_t)box.left) * (size_t)p->c;

		for (int i = 0; i < box.w; i++, x += p->c)
			memcpy(x, value, (size_t)p->c);
	}
}

static void describe(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w,
		     struct ct_image_view *out)
{
	struct rectangle box = draw(a, seed, epoch, sample, h, w);

	out->left = (uint16_t)box.left;
	out->top = (uint16_t)box.top;
	out->right = (uint16_t)(box.left + box.w);
	out->bottom = (uint16_t)(box.top + box.h);
}

const struct ct_augment_op ct__augment_erase = {
	.active = active, .check = check, .apply = apply, .describe = describe, .cheap = true};
