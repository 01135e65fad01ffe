/* Color operations, RandAugment and erasing: results are compared with those of torchvision for the same image
 * (colour_golden.py), and random parameters must have the documented distribution. */
#include "tests/data/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/files/inflate.h"
#include "data/transform/augment_impl.h"

enum { H = 17, W = 19, BYTES = H * W * 3, SIGNED_OPS = 9 };

static void draw_picture(uint8_t *x)
{
	for (int i = 0; i < H; i++) {
		for (int j = 0; j < W; j++) {
			for (int k = 0; k < 3; k++) {
				int v = (9 * i + 5 * j + 71 * k * (i / 5 % 3) + i * j * (k + 3) % 37) % 256;
				bool gray = i >= 12 && i < 15 && j >= 3 && j < 9;

				v = (i + j) % 11 == 0 ? 255 : i < 8 ? v / 2 + 40 : v;
				x[(i * W + j) * 3 + k] = (uint8_t)(gray ? 128 : v);
			}
		}
	}
}

struct golden {
	const uint8_t *at;
	uint8_t x[BYTES], scratch[BYTES];
	struct ct_raster p;
};

static struct ct_raster *fresh(struct golden *g)
{
	g->p = (struct ct_raster){g->x, H, W, 3};
	draw_picture(g->x);
	return &g->p;
}

/* Nothing off by more than 1, and no more than `off` values at all: roundings of the last bit. */
static void expect_next(struct golden *g, int off, const char *what, double value)
{
	int n = 0, worst = 0;

	for (int i = 0; i < BYTES; i++) {
		int by = g->x[i] > g->at[i] ? g->x[i] - g->at[i] : g->at[i] - g->x[i];

		n += by > 0;
		worst = by > worst ? by : worst;
	}
	if (worst > 1 || n > off)
		print_error("%s %g: %d of %d values are off, by up to %d\n", what, value, n, BYTES, worst);
	assert_in_range(worst, 0, 1);
	assert_in_range(n, 0, off);
	g->at += BYTES;
}

/* Pixels of a nearest-neighbor map that are on the border of two pixels (a sine of 1/2 ...) may take either value. */
static void expect_next_map(struct golden *g, const char *what, int magnitude)
{
	int n = 0;

	for (int i = 0; i < BYTES; i += 3)
		n += memcmp(g->x + i, g->at + i, 3) != 0;
	if (n > 12)
		print_error("%s at %d: %d of %d pixels differ\n", what, magnitude, n, H * W);
	assert_in_range(n, 0, 12);
	g->at += BYTES;
}

static void check_color(struct golden *g)
{
	static const float factors[] = {0.4f, 1.0f, 1.9f}, turns[] = {-0.5f, -0.1f, 0.07f, 0.25f};
	static const float thresholds[] = {200.3f, 0};
	static const int bits[] = {8, 5};

	for (size_t i = 0; i < CT_ARRAY_LEN(factors); i++) {
		ct__color_brightness(fresh(g), factors[i]);
		expect_next(g, 0, "brightness", (double)factors[i]);
		ct__color_saturation(fresh(g), factors[i]);
		expect_next(g, 5, "saturation", (double)factors[i]);
		ct__color_contrast(fresh(g), factors[i]);
		expect_next(g, 5, "contrast", (double)factors[i]);
		ct__color_sharpness(fresh(g), factors[i], g->scratch);
		expect_next(g, 0, "sharpness", (double)factors[i]);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(turns); i++) {
		ct__color_hue(fresh(g), turns[i]);
		expect_next(g, 20, "hue", (double)turns[i]);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(bits); i++) {
		ct__color_posterize(fresh(g), bits[i]);
		expect_next(g, 0, "posterize", bits[i]);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(thresholds); i++) {
		ct__color_solarize(fresh(g), thresholds[i]);
		expect_next(g, 0, "solarize", (double)thresholds[i]);
	}
	ct__color_autocontrast(fresh(g));
	expect_next(g, 5, "autocontrast", 0);
	ct__color_equalize(fresh(g));
	expect_next(g, 0, "equalize", 0);
}

static void test_golden(void **state)
{
	static const char *const names[CT_RAND_OPS] = {
		"identity",   "shear x",  "shear y",   "translate x", "translate y", "rotate",       "brightness",
		"saturation", "contrast", "sharpness", "posterize",   "solarize",    "autocontrast", "equalize"};
	static const int magnitudes[] = {9, 30};
	char *path = source_path("tests/data/colour_golden.gz");
	struct golden *g = ct_calloc(1, sizeof(*g));
	size_t n = 68 * BYTES;
	uint8_t *all = ct_calloc(n, 1);
	ct_inflate *f;
	uint32_t crc;

	(void)state;
	assert_ok(ct_inflate_open(path, &f));
	assert_ok(ct_inflate_body(f, all, n, &crc));
	ct_inflate_close(f);
	g->at = all;
	check_color(g);
	for (int op = 0; op < CT_RAND_OPS; op++) {
		for (size_t i = 0; i < CT_ARRAY_LEN(magnitudes); i++) {
			for (int sign = 0; sign < (op >= 1 && op <= SIGNED_OPS ? 2 : 1); sign++) {
				ct__rand_apply((enum ct_rand_op)op, magnitudes[i], sign, fresh(g), g->scratch);
				if (op >= CT_RAND_SHEAR_X && op <= CT_RAND_ROTATE)
					expect_next_map(g, names[op], magnitudes[i]);
				else
					expect_next(g, 20, names[op], magnitudes[i]);
			}
		}
	}
	assert_ptr_equal(g->at, all + n);
	ct_free(all);
	ct_free(g);
	ct_free(path);
}

/* One operation of the jitter at a time has the same effect with the others off, and the order is drawn. */
static void test_jitter(void **state)
{
	struct ct_augment all = {.brightness = 0.4f, .contrast = 0.4f, .saturation = 0.4f, .hue = 0.1f}, one = {0};
	uint8_t x[BYTES], y[BYTES], plain[BYTES];
	struct ct_raster px = {x, H, W, 3}, py = {y, H, W, 3};
	double sum = 0;

	(void)state;
	draw_picture(plain);
	/* The factors are those of the stream: three draws for the order, then brightness first. */
	one.brightness = 0.4f;
	for (uint32_t sample = 0; sample < 200; sample++) {
		struct ct_rng r;
		float factor;

		memcpy(x, plain, BYTES);
		memcpy(y, plain, BYTES);
		ct__augment_jitter.apply(&one, 1, 2, sample, &px, NULL);
		ct_rng_init(&r, 1, CT_RNG_COLOR, 2, sample);
		for (uint32_t i = 4; i > 1; i--)
			(void)ct_rng_below(&r, i);
		factor = 0.6f + 0.8f * ct_rng_uniform(&r);
		ct__color_brightness(&py, factor);
		for (int i = 0; i < BYTES; i++)
			assert_true(abs(x[i] - y[i]) <= 1);
		sum += (double)factor;
	}
	assert_true(fabs(sum / 200 - 1) < 0.06);
	for (uint32_t sample = 0; sample < 5; sample++) {
		memcpy(x, plain, BYTES);
		memcpy(y, plain, BYTES);
		ct__augment_jitter.apply(&all, 1, 2, sample, &px, NULL);
		ct__augment_jitter.apply(&all, 1, 2, sample, &py, NULL);
		assert_memory_equal(x, y, BYTES);
		memcpy(y, plain, BYTES);
		ct__augment_jitter.apply(&all, 1, 3, sample, &py, NULL);
		assert_memory_not_equal(x, y, BYTES);
	}
}

/* Area and ratio of what is erased, how often, and with what. */
static void test_erasing(void **state)
{
	enum { N = 64 };
	struct ct_augment a = {.erasing = 0.25f, .mean = {0.5f, 0.25f, 1.0f}};
	int hits = 0;
	double area = 0;

	(void)state;
	for (uint32_t sample = 0; sample < 4000; sample++) {
		uint8_t x[N * N * 3] = {0};
		int top = N, left = N, bottom = -1, right = -1, n = 0;

		ct__augment_erase.apply(&a, 1, 2, sample, &(struct ct_raster){x, N, N, 3}, NULL);
		for (int i = 0; i < N * N; i++) {
			if (x[3 * i] == 0)
				continue;
			assert_int_equal(x[3 * i], 128);
			assert_int_equal(x[3 * i + 1], 64);
			assert_int_equal(x[3 * i + 2], 255);
			top = i / N < top ? i / N : top;
			bottom = i / N > bottom ? i / N : bottom;
			left = i % N < left ? i % N : left;
			right = i % N > right ? i % N : right;
			n++;
		}
		if (n == 0)
			continue;
		hits++;
		area += n;
		assert_int_equal(n, (bottom - top + 1) * (right - left + 1));
		assert_true(n >= 0.015 * N * N && n <= 0.34 * N * N);
		assert_true(bottom - top + 1 <= 3.9 * (right - left + 1) &&
			    right - left + 1 <= 3.9 * (bottom - top + 1));
	}
	assert_in_range(hits, 900, 1100);
	assert_true(fabs(area / hits / (N * N) - 0.175) < 0.015);
}

/* Everything on every shape that is allowed: ASan and UBSan look on; and nothing depends on what is in scratch. */
static void test_shapes(void **state)
{
	static const int shapes[][3] = {{1, 1, 3}, {1, 1, 1}, {1, 9, 3}, {9, 1, 1}, {2, 2, 3}, {3, 3, 1}, {31, 5, 3}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		int h = shapes[i][0], w = shapes[i][1], c = shapes[i][2];
		size_t n = (size_t)(h * w * c);
		struct ct_augment a = {.brightness = 10,
				       .contrast = 10,
				       .saturation = c == 3 ? 10 : 0,
				       .hue = c == 3 ? 0.5f : 0,
				       .rand_augment = 16,
				       .rand_magnitude = 30,
				       .erasing = 1,
				       .flip = true};

		assert_ok(ct_augment_check(&a));
		for (uint32_t sample = 0; sample < 300; sample++) {
			uint8_t *src = ct_calloc(n, 1), *x = ct_calloc(n, 1), *y = ct_calloc(n, 1),
				*s = ct_calloc(n, 1);

			for (size_t k = 0; k < n; k++)
				src[k] = (uint8_t)(k * 91 + sample);
			ct_augment_apply(&a, 1, 2, sample, h, w, c, src, x, s);
			memset(s, (int)sample, n);
			ct_augment_apply(&a, 1, 2, sample, h, w, c, src, y, s);
			assert_memory_equal(x, y, n);
			ct_free(src);
			ct_free(x);
			ct_free(y);
			ct_free(s);
		}
	}
}

/* Each option keeps its numbers when another is switched on: flipping is the same with and without a zoom. */
static void test_independent(void **state)
{
	struct ct_augment flip = {.flip = true}, both = {.flip = true, .scale_min = 1, .scale_max = 1.0001f};
	int n = 0;

	(void)state;
	for (uint32_t sample = 0; sample < 100; sample++) {
		assert_int_equal(ct__augment_flips(&flip, 7, 1, sample), ct__augment_flips(&both, 7, 1, sample));
		n += ct__augment_flips(&flip, 7, 1, sample);
	}
	assert_in_range(n, 30, 70);
}

static void test_check(void **state)
{
	static const struct ct_augment bad[] = {{.brightness = -1},     {.contrast = NAN}, {.saturation = 11},
						{.hue = 0.6f},          {.hue = -0.1f},    {.rand_augment = -1},
						{.rand_magnitude = 31}, {.erasing = 1.1f}, {.mean = {0, 0, 2}}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_int_equal(ct_augment_check(&bad[i]), CT_CONFIG);
}

/* Without options no operation is active, and each row of the table is complete. */
static void test_table(void **state)
{
	static const struct ct_augment off = {.rand_magnitude = 9, .mean = {0.5f, 0.5f, 0.5f}};
	static const struct ct_augment cheap = {.erasing = 1, .flip = true, .crop_padding = 4};
	static const struct ct_augment costly[] = {{.hue = 0.1f}, {.rand_augment = 1}, {.degrees = 1}, {.contrast = 1}};
	const struct ct_augment_op *ops[] = {&ct__augment_rand, &ct__augment_jitter, &ct__augment_erase};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(ops); i++) {
		assert_true(ops[i]->active && ops[i]->check && ops[i]->apply);
		assert_false(ops[i]->active(&off));
		assert_ok(ops[i]->check(&off));
	}
	assert_false(ct_augment_active(&off));
	assert_true(ct_augment_active(&cheap) && !ct_augment_is_costly(&cheap));
	for (size_t i = 0; i < CT_ARRAY_LEN(costly); i++)
		assert_true(ct_augment_active(&costly[i]) && ct_augment_is_costly(&costly[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden), cmocka_unit_test(test_jitter),      cmocka_unit_test(test_erasing),
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_independent), cmocka_unit_test(test_check),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
