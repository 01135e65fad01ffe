/* From a sample to an image in a batch: crop box, size and orientation. */
#include "tests/data/encoded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/transform/augment_impl.h"
#include "data/transform/resize.h"
#include "data/transform/transform.h"

enum { N = 40, SIDE = 20, BYTES = SIDE * SIDE * 3 };

/* Raw images [h,w,c] from memory: pixel k of sample i. */
struct raw_set {
	ct_dataset base;
};

static uint8_t raw_pixel(uint32_t i, size_t k)
{
	return (uint8_t)(i * 40 + k * 3 + k / 7 * 11);
}

static enum ct_status raw_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	uint8_t *p = x;

	(void)target;
	for (size_t k = 0; k < d->info.sample_bytes; k++)
		p[k] = raw_pixel(i, k);
	if (label)
		*label = (int32_t)i;
	return CT_OK;
}

static const struct ct_dataset_ops raw_ops = {.read = raw_read};

static struct raw_set raw_open(int h, int w, int c)
{
	return (struct raw_set){.base = {.ops = &raw_ops,
					 .info = {.name = "raw",
						  .n = N,
						  .c = c,
						  .h = h,
						  .w = w,
						  .n_classes = 10,
						  .sample_bytes = (size_t)(h * w * c)}}};
}

static ct_transformer *create(const struct ct_transform *o, const ct_dataset *d)
{
	ct_transformer *t;

	assert_ok(ct_transformer_create(o, d, &t));
	return t;
}

/* What [h,w] RGB becomes by the given request. */
static void resize_plain(const uint8_t *rgb, int h, int w, struct ct_resize req, uint8_t *out)
{
	uint8_t *rgbx = ct_calloc((size_t)(h * w), 4);
	struct ct_pixels p = {.rgbx = rgbx, .pitch = (size_t)w * 4, .box = {0, 0, w, h}, .scale = 1};
	ct_resizer *r;

	for (int i = 0; i < h * w; i++)
		memcpy(rgbx + 4 * i, rgb + 3 * i, 3);
	assert_ok(ct_resizer_create(&r));
	assert_ok(ct_resize_run(r, &req, &p, out));
	ct_resizer_destroy(r);
	ct_free(rgbx);
}

/* Sizes and offsets are those of torchvision's Resize and CenterCrop (0.29). */
static void test_centre(void **state)
{
	static const struct {
		int h, w, resize, side, new_h, new_w, top, left;
	} cases[] = {
		{30, 41, 24, 20, 24, 32, 2, 6}, {41, 30, 24, 20, 32, 24, 6, 2},  {33, 33, 23, 20, 23, 23, 2, 2},
		{7, 29, 0, 20, 22, 91, 1, 36},  {50, 50, 20, 20, 20, 20, 0, 0},  {20, 20, 20, 20, 20, 20, 0, 0},
		{1, 1, 25, 20, 25, 25, 2, 2},   {1, 9, 27, 20, 27, 243, 4, 112},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		int h = cases[i].h, w = cases[i].w;
		struct raw_set s = raw_open(h, w, 3);
		struct ct_transform o = {.h = SIDE, .w = SIDE, .crop = CT_CROP_CENTER, .resize = cases[i].resize};
		double sx = (double)w / cases[i].new_w, sy = (double)h / cases[i].new_h;
		struct ct_resize req = {.x = cases[i].left * sx,
					.y = cases[i].top * sy,
					.w = SIDE * sx,
					.h = SIDE * sy,
					.limits = {0, 0, w, h},
					.out_w = SIDE,
					.out_h = SIDE};
		uint8_t x[BYTES], want[BYTES], *rgb = ct_calloc((size_t)(h * w), 3);
		ct_transformer *t = create(&o, &s.base);
		int32_t label;

		assert_ok(ct_transformer_run(t, 1, 2, 7, x, &label));
		assert_int_equal(label, 7);
		assert_ok(raw_read(&s.base, 7, rgb, NULL, NULL));
		resize_plain(rgb, h, w, req, want);
		assert_memory_equal(x, want, BYTES);
		ct_transformer_destroy(t);
		ct_free(rgb);
	}
}

/* The window decoded for a random crop is the crop. */
static uint64_t window_of(ct_transformer *t, uint32_t epoch, uint32_t sample)
{
	uint64_t before = ct_transformer_times(t)->decoded_pixels;

	assert_ok(ct_transformer_decode(t, 1, epoch, sample));
	return ct_transformer_times(t)->decoded_pixels - before;
}

static void test_random(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct ct_transform o = {.h = SIDE, .w = SIDE, .crop = CT_CROP_RANDOM};
	ct_transformer *t = create(&o, &s->base);
	struct ct_image_header header;
	double sum = 0, squares = 0;
	uint32_t square = 0;

	(void)state;
	/* One that is large and nearly square. */
	for (uint32_t i = 0; i < N; i++) {
		assert_ok(ct_transformer_verify(t, i, &header));
		if (header.w > 40 && header.h > 40 && abs(header.w - header.h) < 12)
			square = i;
	}
	assert_int_not_equal(square, 0);
	assert_ok(ct_transformer_verify(t, square, &header));
	for (uint32_t epoch = 0; epoch < 2000; epoch++) {
		double share = (double)window_of(t, epoch, square) / (header.w * header.h);

		assert_true(share > 0.07 && share <= 1);
		sum += share;
		squares += share * share;
	}
	/* Mean and deviation of 20,000 of torchvision's windows in 66 x 69 pixels: not uniform in 0.08..1, because
	 * large ones often do not fit. */
	assert_int_equal(header.h * 100 + header.w, 6669);
	sum /= 2000;
	assert_true(fabs(sum - 0.478) < 0.016);
	assert_true(fabs(sqrt(squares / 2000 - sum * sum) - 0.237) < 0.012);
	ct_transformer_destroy(t);

	/* All of it, where the whole is asked for. */
	o.area_min = o.area_max = 1;
	o.ratio_min = o.ratio_max = (float)header.w / (float)header.h;
	t = create(&o, &s->base);
	assert_int_equal(window_of(t, 0, square), header.w * header.h);
	ct_transformer_destroy(t);
	encoded_close(s);
}

/* Where no window of the ratio fits, the largest one in the middle. */
static void test_fallback(void **state)
{
	static const int shapes[][3] = {{1, 200, 1}, {200, 1, 1}, {3, 90, 12}, {90, 3, 12}, {1, 1, 1}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		int h = shapes[i][0], w = shapes[i][1];
		struct raw_set s = raw_open(h, w, 3);
		struct ct_transform o = {.h = SIDE, .w = SIDE, .crop = CT_CROP_RANDOM, .area_min = 0.9f, .area_max = 1};
		int bw = w > h ? shapes[i][2] / h : w, bh = h > w ? shapes[i][2] / w : h;
		struct ct_resize req = {.out_w = SIDE, .out_h = SIDE};
		uint8_t x[BYTES], want[BYTES], *rgb = ct_calloc((size_t)(h * w), 3);
		ct_transformer *t = create(&o, &s.base);

		req.limits = (struct ct_box){(w - bw) / 2, (h - bh) / 2, bw, bh};
		req.x = req.limits.x;
		req.y = req.limits.y;
		req.w = bw;
		req.h = bh;
		assert_ok(raw_read(&s.base, 5, rgb, NULL, NULL));
		resize_plain(rgb, h, w, req, want);
		assert_ok(ct_transformer_run(t, 1, 2, 5, x, NULL));
		assert_memory_equal(x, want, BYTES);
		ct_transformer_destroy(t);
		ct_free(rgb);
	}
}

/* Mirrored in the resize or after it: the same; and nothing else changes when flipping is switched on. */
static void test_flip(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct ct_transform plain = {.h = SIDE, .w = SIDE, .crop = CT_CROP_RANDOM}, flip = plain, late = plain;
	ct_transformer *a, *b, *c;
	int flips = 0;

	(void)state;
	flip.augment.flip = late.augment.flip = true;
	late.augment.degrees = 1e-6f; /* turns nothing, but comes before the flip */
	a = create(&plain, &s->base);
	b = create(&flip, &s->base);
	c = create(&late, &s->base);
	for (uint32_t i = 0; i < N; i++) {
		bool turned = ct__augment_flips(&flip.augment, 1, 2, i);
		uint8_t x[BYTES], y[BYTES], z[BYTES];

		assert_ok(ct_transformer_run(a, 1, 2, i, x, NULL));
		assert_ok(ct_transformer_run(b, 1, 2, i, y, NULL));
		assert_ok(ct_transformer_run(c, 1, 2, i, z, NULL));
		for (int k = 0; k < SIDE * SIDE; k++)
			assert_memory_equal(x + 3 * (turned ? k / SIDE * SIDE + SIDE - 1 - k % SIDE : k), y + 3 * k, 3);
		assert_memory_equal(y, z, BYTES);
		flips += turned;
	}
	assert_in_range(flips, 8, N - 8);
	ct_transformer_destroy(a);
	ct_transformer_destroy(b);
	ct_transformer_destroy(c);
	encoded_close(s);
}

/* A gray raw image is one channel of the same color image; without a crop, it does not change. */
static void test_raw(void **state)
{
	struct raw_set gray = raw_open(31, 17, 1);
	struct ct_transform none = {0}, same = {.h = 31, .w = 17},
			    crop = {.h = SIDE, .w = SIDE, .crop = CT_CROP_CENTER};
	uint8_t x[31 * 17], y[31 * 17 * 3], want[BYTES], rgb[31 * 17 * 3];
	struct ct_resize req;
	ct_transformer *t;
	double scale = 17.0 / 22;

	(void)state;
	assert_ok(raw_read(&gray.base, 3, x, NULL, NULL));
	for (int i = 0; i < 2; i++) {
		t = create(i ? &same : &none, &gray.base);
		assert_ok(ct_transformer_run(t, 1, 2, 3, y, NULL));
		assert_memory_equal(x, y, sizeof(x));
		ct_transformer_destroy(t);
	}
	for (int i = 0; i < 31 * 17; i++)
		memset(rgb + 3 * i, x[i], 3);
	/* 17 x 31 to 22 x 40, then the middle. */
	req = (struct ct_resize){.x = 1 * scale,
				 .y = 10 * 31.0 / 40,
				 .w = SIDE * scale,
				 .h = SIDE * 31.0 / 40,
				 .limits = {0, 0, 17, 31},
				 .out_w = SIDE,
				 .out_h = SIDE};
	resize_plain(rgb, 31, 17, req, want);
	t = create(&crop, &gray.base);
	assert_ok(ct_transformer_run(t, 1, 2, 3, y, NULL));
	for (int i = 0; i < SIDE * SIDE; i++)
		assert_int_equal(y[i], want[3 * i]);
	ct_transformer_destroy(t);
}

/* One transformer through all sizes gives what one of each size gives. */
static void test_resize(void **state)
{
	static const int sizes[] = {8, 64, 20, 1};
	struct encoded_set *s = encoded_open(N);
	struct ct_transform o = {
		.h = 10, .w = 10, .crop = CT_CROP_RANDOM, .augment = {.rand_augment = 2, .degrees = 5}};
	ct_transformer *all = create(&o, &s->base);

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		size_t bytes = (size_t)(sizes[i] * sizes[i] * 3);
		ct_transformer *one;
		uint8_t x[64 * 64 * 3], y[64 * 64 * 3];

		o.h = o.w = sizes[i];
		one = create(&o, &s->base);
		ct_transformer_resize(all, sizes[i], sizes[i]);
		for (uint32_t k = 0; k < N; k++) {
			assert_ok(ct_transformer_run(all, 1, 2, k, x, NULL));
			assert_ok(ct_transformer_run(one, 1, 2, k, y, NULL));
			assert_memory_equal(x, y, bytes);
		}
		ct_transformer_destroy(one);
	}
	ct_transformer_destroy(all);
	encoded_close(s);
}

static void test_bad(void **state)
{
	static const uint32_t bad[] = {30, 31};
	struct encoded_set *s = encoded_open(N);
	struct ct_transform o = {.h = SIDE, .w = SIDE, .crop = CT_CROP_RANDOM};
	ct_transformer *t = create(&o, &s->base);
	struct ct_image_header header;
	uint8_t x[BYTES];

	(void)state;
	encoded_spoil(s, bad, 2);
	assert_int_equal(ct_transformer_run(t, 1, 2, 30, x, NULL), CT_DATA);
	assert_string_equal(ct_error_message(), "rotten");
	assert_int_equal(ct_transformer_verify(t, 30, &header), CT_DATA);
	assert_int_equal(ct_transformer_verify(t, 31, &header), CT_DATA);
	assert_ok(ct_transformer_verify(t, 32, &header));
	assert_int_equal(header.h, 1 + 32 * 7 % 67);
	assert_int_equal(header.w, 1 + 32 * 13 % 71);
	assert_ok(ct_transformer_run(t, 1, 2, 32, x, NULL));
	ct_transformer_destroy(t);
	encoded_close(s);
}

static void test_refused(void **state)
{
	struct raw_set two = raw_open(8, 8, 2), gray = raw_open(8, 8, 1);
	struct ct_transform o = {.h = 9, .w = 9};

	(void)state;
	assert_int_equal(ct_transform_check(&o, &gray.base.info), CT_CONFIG);
	o.crop = CT_CROP_CENTER;
	assert_ok(ct_transform_check(&o, &gray.base.info));
	assert_int_equal(ct_transform_check(&o, &two.base.info), CT_CONFIG);
	o = (struct ct_transform){.augment = {.hue = 0.1f}};
	assert_int_equal(ct_transform_check(&o, &gray.base.info), CT_CONFIG);
	o = (struct ct_transform){.augment = {.contrast = 0.1f}};
	assert_ok(ct_transform_check(&o, &gray.base.info));
	assert_int_equal(ct_transform_check(&o, &two.base.info), CT_CONFIG);
	o = (struct ct_transform){.crop = CT_CROP_RANDOM, .ratio_min = 2, .ratio_max = 1};
	assert_int_equal(ct_transform_check(&o, &gray.base.info), CT_CONFIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_centre), cmocka_unit_test(test_random),  cmocka_unit_test(test_fallback),
		cmocka_unit_test(test_flip),   cmocka_unit_test(test_raw),     cmocka_unit_test(test_resize),
		cmocka_unit_test(test_bad),    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
