/* A share is drawn from Beta(alpha, alpha) by two gamma samples. They are computed as logarithms, because samples for a
 * small alpha underflow. The share is rounded to what the pixels can express, 1/256 or whole pixels of a rectangle,
 * before labels use it, so labels and pixels agree. Values that do not depend on alpha are drawn first. Both images of
 * a pair are changed at once from the same draw, keyed by the position of the first one, so it does not matter which
 * thread or rank computes a pair. */
#include "data/transform/mix.h"

#include <math.h>

#include "base/numbers.h"
#include "base/random/normal.h"

/* Returns the logarithm of a sample of Gamma(a, 1): a sample for a + 1 (Marsaglia and Tsang, "A simple method for
 * generating gamma variables", 2000) times U^(1/a). Logarithms are used because samples for a small a can be below the
 * smallest double. */
static double log_gamma_draw(struct ct_rng *r, double a)
{
	double d = a + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
	double boost = log(((double)ct_rng_u32(r) + 0.5) * 0x1p-32) / a;

	for (;;) {
		double x = (double)ct_rng_normal(r), u = ((double)ct_rng_u32(r) + 0.5) * 0x1p-32, v = 1 + c * x;

		if (v <= 0)
			continue;
		v = v * v * v;
		if (log(u) < 0.5 * x * x + d - d * v + d * log(v))
			return log(d * v) + boost;
	}
}

/* A sample of Beta(alpha, alpha). */
static double beta_draw(struct ct_rng *r, double alpha)
{
	double a = log_gamma_draw(r, alpha), b = log_gamma_draw(r, alpha);

	return 1 / (1 + exp(b - a));
}

void ct_mix_draw(float mixup, float cutmix, uint64_t seed, uint32_t epoch, uint32_t place, int h, int w,
		 struct ct_mix *out)
{
	struct ct_rng r;
	bool second;
	int x, y, half_w, half_h;
	double share;

	/* Draw the values that do not depend on the alphas first. */
	ct_rng_init(&r, seed, CT_RNG_MIX, epoch, place);
	second = ct_rng_u32(&r) & 1;
	x = (int)ct_rng_below(&r, (uint32_t)w);
	y = (int)ct_rng_below(&r, (uint32_t)h);
	*out = (struct ct_mix){.cut = cutmix > 0 && (mixup <= 0 || second)};
	share = beta_draw(&r, (double)(out->cut ? cutmix : mixup));
	if (!out->cut) {
		out->weight = (int)lrint(share * 256);
		out->share = (float)out->weight / 256;
		return;
	}
	half_w = (int)(0.5 * sqrt(1 - share) * w);
	half_h = (int)(0.5 * sqrt(1 - share) * h);
	out->x0 = (int)ct_clamp(x - half_w, 0, w);
	out->x1 = (int)ct_clamp(x + half_w, 0, w);
	out->y0 = (int)ct_clamp(y - half_h, 0, h);
	out->y1 = (int)ct_clamp(y + half_h, 0, h);
	out->share = 1 - (float)((out->x1 - out->x0) * (out->y1 - out->y0)) / (float)(w * h);
}

static void blend(int weight, size_t n, uint8_t *restrict a, uint8_t *restrict b)
{
	uint16_t own = (uint16_t)weight, other = (uint16_t)(256 - weight);

	for (size_t i = 0; i < n; i++) {
		uint16_t x = a[i], y = b[i];

		a[i] = (uint8_t)((uint16_t)(x * own + y * other + 128) >> 8);
		b[i] = (uint8_t)((uint16_t)(y * own + x * other + 128) >> 8);
	}
}

static void swap(size_t n, uint8_t *restrict a, uint8_t *restrict b)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t t = a[i];

		a[i] = b[i];
		b[i] = t;
	}
}

void ct_mix_apply(const struct ct_mix *m, int h, int w, int c, uint8_t *a, uint8_t *b)
{
	if (!m->cut) {
		blend(m->weight, (size_t)h * (size_t)w * (size_t)c, a, b);
		return;
	}
	for (int y = m->y0; y < m->y1; y++) {
		size_t at = ((size_t)y * (size_t)w + (size_t)m->x0) * (size_t)c;

		swap((size_t)(m->x1 - m->x0) * (size_t)c, a + at, b + at);
	}
}

void ct_mix_describe(const struct ct_mix *m, struct ct_image_row *a, struct ct_image_row *b)
{
	struct ct_image_row *rows[] = {a, b};

	a->other = b->own;
	b->other = a->own;
	for (int i = 0; i < 2; i++) {
		rows[i]->weight = m->cut ? 256 : (uint16_t)m->weight;
		rows[i]->left = (uint16_t)m->x0;
		rows[i]->top = (uint16_t)m->y0;
		rows[i]->right = (uint16_t)m->x1;
		rows[i]->bottom = (uint16_t)m->y1;
	}
}
