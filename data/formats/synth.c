/* Synthetic data sets. Samples are computed on demand, so even large sets need no memory. They are the same on every
 * rank. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random/normal.h"
#include "data/dataset_impl.h"

#define GRID 7 /* each class is a pattern of GRID x GRID x C cells */
#define MAX_SIDE 4096
#define MAX_CLASSES 65536
#define MAX_TARGETS 65536
#define MAX_FEATURES (1 << 20)

struct synth {
	ct_dataset base;
	uint64_t seed;
	uint32_t half;    /* 0: training, 1: evaluation */
	int8_t *patterns; /* images: [n_classes,GRID,GRID,C] */
	float *map;       /* regression: [n_targets,features] */
	uint32_t features;
};

/* Random streams: the samples of training and evaluation data, and the values that both share. */
enum { STREAM_TRAIN, STREAM_EVAL, STREAM_SHARED };

static void close_synth(ct_dataset *d)
{
	struct synth *s = (struct synth *)d;

	ct_free(s->patterns);
	ct_free(s->map);
	ct_free(s);
}

static enum ct_status range(const char *what, int value, int max)
{
	if (value < 1 || value > max)
		return CT_FAIL(CT_CONFIG, "synthetic data: %s %d is not in 1..%d", what, value, max);
	return CT_OK;
}

static enum ct_status start(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec, int c, int h, int w,
			    struct synth **out)
{
	struct synth *s;

	if (spec->n == 0)
		return CT_FAIL(CT_CONFIG, "synthetic data: the number of samples is 0");
	CT_TRY(range("channels", c, MAX_FEATURES));
	CT_TRY(range("height", h, MAX_SIDE));
	CT_TRY(range("width", w, MAX_SIDE));
	if ((int64_t)c * h * w > (int64_t)1 << 30)
		return CT_FAIL(CT_CONFIG, "synthetic data: samples of %d x %d x %d are too large", c, h, w);
	CT_TRY_ALLOC(s = CT_NEW(struct synth));
	s->seed = spec->seed;
	s->half = spec->train ? STREAM_TRAIN : STREAM_EVAL;
	ct__dataset_init(&s->base, kind, spec->n, c, h, w);
	*out = s;
	return CT_OK;
}

static enum ct_status open_images(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				  ct_dataset **out)
{
	int c = spec->c ? spec->c : 1, h = spec->h ? spec->h : 28, w = spec->w ? spec->w : 28;
	int n_classes = spec->n_classes ? spec->n_classes : 10;
	struct ct_rng r;
	struct synth *s;
	size_t n;

	CT_TRY(range("channels", c, 4));
	CT_TRY(range("number of classes", n_classes, MAX_CLASSES));
	CT_TRY(start(kind, spec, c, h, w, &s));
	n = (size_t)n_classes * GRID * GRID * (size_t)c;
	s->patterns = CT_NEW_ARRAY(int8_t, n);
	if (!s->patterns) {
		close_synth(&s->base);
		return CT_NOMEM;
	}
	ct_rng_init(&r, s->seed, CT_RNG_SYNTH, STREAM_SHARED, 0);
	for (size_t i = 0; i < n; i++)
		s->patterns[i] = (int8_t)((int)ct_rng_below(&r, 49) - 24);
	s->base.info.kind = CT_SAMPLE_U8_HWC;
	s->base.info.n_classes = n_classes;
	s->base.info.bytes = n;
	*out = &s->base;
	return CT_OK;
}

/* Computes an image: the pattern of the class with a random contrast, plus noise of +-80. */
static enum ct_status read_image(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	const struct synth *s = (const struct synth *)d;
	int c = d->info.c, h = d->info.h, w = d->info.w, gain;
	const int8_t *pattern;
	struct ct_rng r;
	uint8_t *p = x;
	uint32_t class, bits = 0;
	unsigned left = 0;

	(void)target;
	ct_rng_init(&r, s->seed, CT_RNG_SYNTH, s->half, i);
	class = ct_rng_below(&r, (uint32_t)d->info.n_classes);
	gain = 8 + (int)ct_rng_below(&r, 13);
	if (label)
		*label = (int32_t)class;
	pattern = s->patterns + (size_t)class * GRID * GRID * (size_t)c;
	for (int y = 0; p && y < h; y++) {
		const int8_t *row = pattern + (ptrdiff_t)(y * GRID / h) * GRID * c;

		for (int xx = 0; xx < w; xx++) {
			const int8_t *cell = row + (ptrdiff_t)(xx * GRID / w) * c;

			for (int k = 0; k < c; k++) {
				if (left == 0) {
					bits = ct_rng_u32(&r);
					left = 4;
				}
				*p++ = (uint8_t)(128 + cell[k] * gain / 16 + (((int)(bits & 255) - 128) * 5) / 8);
				bits >>= 8;
				left--;
			}
		}
	}
	return CT_OK;
}

static enum ct_status open_regression(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				      ct_dataset **out)
{
	int c = spec->c ? spec->c : 10, h = spec->h ? spec->h : 1, w = spec->w ? spec->w : 1;
	int n_targets = spec->n_targets ? spec->n_targets : 5;
	struct ct_rng r;
	struct synth *s;
	size_t n;

	CT_TRY(range("number of targets", n_targets, MAX_TARGETS));
	CT_TRY(start(kind, spec, c, h, w, &s));
	s->features = (uint32_t)s->base.info.sample_bytes;
	s->base.info.sample_bytes *= sizeof(float);
	n = (size_t)n_targets * s->features;
	s->map = n <= MAX_FEATURES ? CT_NEW_ARRAY(float, n) : NULL;
	if (!s->map) {
		close_synth(&s->base);
		return n <= MAX_FEATURES ? CT_NOMEM
					 : CT_FAIL(CT_CONFIG, "synthetic data: a map of %zu numbers is too large", n);
	}
	ct_rng_init(&r, s->seed, CT_RNG_SYNTH, STREAM_SHARED, 0);
	for (size_t i = 0; i < n; i++)
		s->map[i] = ct_rng_normal(&r);
	s->base.info.kind = CT_SAMPLE_F32;
	s->base.info.n_targets = n_targets;
	s->base.info.bytes = n * sizeof(float);
	*out = &s->base;
	return CT_OK;
}

/* x ~ N(0,1); target = map x + 0.01 N(0,1). */
static enum ct_status read_vector(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	const struct synth *s = (const struct synth *)d;
	float *v = x;
	struct ct_rng r;

	(void)label;
	ct_rng_init(&r, s->seed, CT_RNG_SYNTH, s->half, i);
	for (uint32_t k = 0; k < s->features; k++)
		v[k] = ct_rng_normal(&r);
	if (!target)
		return CT_OK;
	for (int t = 0; t < d->info.n_targets; t++) {
		const float *row = s->map + (size_t)t * s->features;
		float sum = 0.01f * ct_rng_normal(&r);

		for (uint32_t k = 0; k < s->features; k++)
			sum += row[k] * v[k];
		target[t] = sum;
	}
	return CT_OK;
}

static void digest_synth(const ct_dataset *d, struct ct_sha256 *h)
{
	const struct synth *s = (const struct synth *)d;
	char text[96];
	int n = snprintf(text, sizeof(text), "%s 1 seed=%llu half=%u\n", d->info.name, (unsigned long long)s->seed,
			 s->half);

	ct_sha256_update(h, text, (size_t)n);
}

const struct ct_dataset_ops ct__dataset_synth_ops = {
	.open = open_images, .close = close_synth, .read = read_image, .digest = digest_synth};
const struct ct_dataset_ops ct__dataset_regression_ops = {
	.open = open_regression, .close = close_synth, .read = read_vector, .digest = digest_synth};
