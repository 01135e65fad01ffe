/* Compiled with -O3: the compiler vectorizes these loops, so the inner ones have no branches. A byte has only 256
 * values, so the bfloat16 value of each is in a table. Statistics that are not finite are found by adding products with
 * 0, which are NaN exactly for them; options that let the compiler assume finite values must not be used here. */
#include "nn/onednn/kernels/elementwise.h"

#include <string.h>

#include "base/parallel.h"

/* Minimum number of elements per thread: about 10 microseconds of work. */
#define GRAIN 16384
#define MAX_CHANNELS 4

static inline uint16_t to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16, quiet = bits >> 16 | 0x40u;
	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float from_bf16(uint16_t x)
{
	const uint32_t bits = (uint32_t)x << 16;
	float y;

	memcpy(&y, &bits, sizeof(y));
	return y;
}

struct images {
	const uint8_t *x;
	void *y;
	size_t plane, channels;
	float scale[MAX_CHANNELS], shift[MAX_CHANNELS];
	uint16_t table[MAX_CHANNELS][256]; /* bfloat16 value of every byte */
};

static void normalise_image(const struct images *im, size_t i)
{
	for (size_t c = 0; c < im->channels; c++) {
		const float scale = im->scale[c], shift = im->shift[c];
		const uint8_t *from = im->x + i * im->plane * im->channels + c;
		float *restrict to = (float *)im->y + (i * im->channels + c) * im->plane;

		if (im->channels == 1) {
			for (size_t j = 0; j < im->plane; j++)
				to[j] = (float)from[j] * scale + shift;
		} else if (im->channels == 3) {
			for (size_t j = 0; j < im->plane; j++)
				to[j] = (float)from[3 * j] * scale + shift;
		} else {
			for (size_t j = 0; j < im->plane; j++)
				to[j] = (float)from[im->channels * j] * scale + shift;
		}
	}
}

static void normalise_images(void *arg, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		normalise_image(arg, (size_t)i);
}

static void normalise_images_bf16(void *arg, int64_t begin, int64_t end)
{
	const struct images *im = arg;

	for (size_t i = (size_t)begin; i < (size_t)end; i++) {
		for (size_t c = 0; c < im->channels; c++) {
			const uint16_t *table = im->table[c];
			const uint8_t *from = im->x + i * im->plane * im->channels + c;
			uint16_t *restrict to = (uint16_t *)im->y + (i * im->channels + c) * im->plane;

			for (size_t j = 0; j < im->plane; j++)
				to[j] = table[from[im->channels * j]];
		}
	}
}

static void images_init(struct images *im, const uint8_t *x, struct ct_shape s, const float *mean, const float *std,
			void *y)
{
	im->x = x;
	im->y = y;
	im->plane = (size_t)s.h * (size_t)s.w;
	im->channels = (size_t)s.c;
	CT_ASSERT(im->channels <= MAX_CHANNELS);
	for (size_t c = 0; c < im->channels; c++) {
		im->scale[c] = 1.0f / (255.0f * std[c]);
		im->shift[c] = -mean[c] / std[c];
	}
}

static int64_t grain_of(size_t elems_of_item)
{
	return (int64_t)(GRAIN / (elems_of_item ? elems_of_item : 1));
}

void ct__onednn_normalise(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean, const float *std,
			  float *y)
{
	struct images im;

	images_init(&im, x, s, mean, std, y);
	ct_parallel_for(threads, n, grain_of(im.plane * im.channels), normalise_images, &im);
}

void ct__onednn_normalise_bf16(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean,
			       const float *std, uint16_t *y)
{
	struct images im;

	images_init(&im, x, s, mean, std, y);
	for (size_t c = 0; c < im.channels; c++) {
		for (int v = 0; v < 256; v++)
			im.table[c][v] = to_bf16((float)v * im.scale[c] + im.shift[c]);
	}
	ct_parallel_for(threads, n, grain_of(im.plane * im.channels), normalise_images_bf16, &im);
}

struct arrays {
	void *out;
	const void *a, *b;
};

static void to_bf16_range(void *arg, int64_t begin, int64_t end)
{
	const struct arrays *v = arg;
	uint16_t *out = v->out;
	const float *a = v->a;

	for (int64_t i = begin; i < end; i++)
		out[i] = to_bf16(a[i]);
}

void ct__onednn_to_bf16(int threads, uint16_t *out, const float *x, size_t n)
{
	struct arrays v = {out, x, NULL};

	ct_parallel_for(threads, (int64_t)n, GRAIN, to_bf16_range, &v);
}

static void multiply_range(void *arg, int64_t begin, int64_t end)
{
	const struct arrays *v = arg;
	float *out = v->out;
	const float *a = v->a, *b = v->b;

	for (int64_t i = begin; i < end; i++)
		out[i] = a[i] * b[i];
}

void ct__onednn_multiply(int threads, float *out, const float *a, const float *b, size_t n)
{
	struct arrays v = {out, a, b};

	ct_parallel_for(threads, (int64_t)n, GRAIN, multiply_range, &v);
}

static void multiply_bf16_range(void *arg, int64_t begin, int64_t end)
{
	const struct arrays *v = arg;
	uint16_t *out = v->out;
	const uint16_t *a = v->a, *b = v->b;

	for (int64_t i = begin; i < end; i++)
		out[i] = to_bf16(from_bf16(a[i]) * from_bf16(b[i]));
}

void ct__onednn_multiply_bf16(int threads, uint16_t *out, const uint16_t *a, const uint16_t *b, size_t n)
{
	struct arrays v = {out, a, b};

	ct_parallel_for(threads, (int64_t)n, GRAIN, multiply_bf16_range, &v);
}

void ct__onednn_scale(float *out, const float *a, float scale, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = a[i] * scale;
}

struct rows {
	float *out;
	const float *in, *factor;
	size_t n;
};

static void scale_row_range(void *arg, int64_t begin, int64_t end)
{
	const struct rows *r = arg;

	for (int64_t i = begin; i < end; i++) {
		const size_t at = (size_t)i * r->n;
		const float factor = r->factor[i];

		for (size_t j = 0; j < r->n; j++)
			r->out[at + j] = r->in[at + j] * factor;
	}
}

void ct__onednn_scale_rows(int threads, float *out, const float *in, const float *factor, int rows, size_t n)
{
	struct rows r = {out, in, factor, n};

	ct_parallel_for(threads, rows, grain_of(n), scale_row_range, &r);
}

bool ct__onednn_running(float *mean, float *variance, const float *batch_mean, const float *batch_variance, int c,
			float momentum, double count)
{
	const float keep = 1.0f - momentum, unbiased = (float)(count / (count - 1));
	float zero = 0.0f;

	for (int i = 0; i < c; i++) {
		mean[i] = keep * mean[i] + momentum * batch_mean[i];
		variance[i] = keep * variance[i] + momentum * (batch_variance[i] * unbiased);
		zero += 0.0f * batch_mean[i] + 0.0f * batch_variance[i];
	}
	return zero == 0.0f; /* else NaN */
}
