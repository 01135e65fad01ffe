/* Augmentation depends only on (seed, epoch, sample), is exact where it must be, and never accesses memory outside its
 * buffers. */
#include "tests/data/fixture.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/transform/augment.h"

enum { H = 11, W = 9 };

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(1 + i * 37 % 251);
}

/* Own blocks of the exact size, so that ASan sees any step outside. */
static uint8_t *apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src)
{
	size_t n = (size_t)(h * w * c);
	uint8_t *copy = ct_calloc(n, 1), *dst = ct_calloc(n, 1), *scratch = ct_calloc(n, 1);

	memcpy(copy, src, n);
	memset(dst, 0xaa, n);
	ct_augment_apply(a, seed, epoch, sample, h, w, c, copy, dst, scratch);
	assert_memory_equal(copy, src, n);
	ct_free(copy);
	ct_free(scratch);
	return dst;
}

static void expect_equal(const struct ct_augment *a, uint32_t sample, const uint8_t *src, const uint8_t *want)
{
	uint8_t *got = apply(a, 1, 2, sample, H, W, 1, src);

	assert_memory_equal(got, want, (size_t)H * W);
	ct_free(got);
}

static void test_off(void **state)
{
	struct ct_augment off = {0}, ones = {.scale_min = 1, .scale_max = 1}, tiny = {.degrees = 1e-6f};
	uint8_t src[H * W];

	(void)state;
	fill(src, sizeof(src));
	assert_false(ct_augment_active(&off));
	assert_false(ct_augment_active(&ones));
	assert_true(ct_augment_active(&tiny));
	expect_equal(&off, 3, src, src);
	expect_equal(&ones, 3, src, src);
	expect_equal(&tiny, 3, src, src);
}

static uint8_t at(const uint8_t *src, int y, int x)
{
	return x < 0 || x >= W || y < 0 || y >= H ? 0 : src[y * W + x];
}

static bool is_shift(const uint8_t *got, const uint8_t *src, int dy, int dx, bool flip)
{
	for (int y = 0; y < H; y++) {
		for (int x = 0; x < W; x++) {
			if (got[y * W + (flip ? W - 1 - x : x)] != at(src, y + dy, x + dx))
				return false;
		}
	}
	return true;
}

/* Each result is exactly one of the (2p+1)^2 shifts, mirrored or not, and all of them come up. */
static void test_crop_flip(void **state)
{
	enum { P = 3, SIDE = 2 * P + 1 };
	struct ct_augment a = {.crop_padding = P, .flip = true};
	uint8_t src[H * W];
	int seen[2][SIDE][SIDE] = {0};

	(void)state;
	fill(src, sizeof(src));
	for (uint32_t i = 0; i < 3000; i++) {
		uint8_t *got = apply(&a, 1, 2, i, H, W, 1, src);
		int matches = 0;

		for (int k = 0; k < 2 * SIDE * SIDE; k++) {
			int dy = k / 2 / SIDE - P, dx = k / 2 % SIDE - P;

			if (is_shift(got, src, dy, dx, k % 2)) {
				seen[k % 2][dy + P][dx + P]++;
				matches++;
			}
		}
		assert_int_equal(matches, 1);
		ct_free(got);
	}
	for (int k = 0; k < 2 * SIDE * SIDE; k++)
		assert_in_range(seen[k % 2][k / 2 / SIDE][k / 2 % SIDE], 8, 80); /* 30.6 expected */
}

static void test_flip_alone(void **state)
{
	struct ct_augment a = {.flip = true};
	uint8_t src[H * W];
	int flipped = 0;

	(void)state;
	fill(src, sizeof(src));
	for (uint32_t i = 0; i < 1000; i++) {
		uint8_t *got = apply(&a, 1, 2, i, H, W, 1, src);

		assert_true(is_shift(got, src, 0, 0, false) || is_shift(got, src, 0, 0, true));
		flipped += is_shift(got, src, 0, 0, true);
		ct_free(got);
	}
	assert_in_range(flipped, 430, 570);
}

/* Padding larger than the image may leave nothing of it. */
static void test_crop_away(void **state)
{
	struct ct_augment a = {.crop_padding = 40, .flip = true};
	uint8_t src[H * W];
	int empty = 0;

	(void)state;
	fill(src, sizeof(src));
	for (uint32_t i = 0; i < 500; i++) {
		uint8_t *got = apply(&a, 1, 2, i, H, W, 1, src);
		int sum = 0;

		for (int k = 0; k < H * W; k++)
			sum += got[k];
		empty += sum == 0;
		ct_free(got);
	}
	assert_in_range(empty, 300, 499);
}

static void test_keyed(void **state)
{
	struct ct_augment a = {.degrees = 20,
			       .translate = 0.2f,
			       .scale_min = 0.8f,
			       .scale_max = 1.2f,
			       .shear = 10,
			       .flip = true,
			       .crop_padding = 2};
	uint8_t src[H * W], *one, *two;
	static const struct {
		uint64_t seed;
		uint32_t epoch, sample;
		bool same;
	} keys[] = {
		{5, 1, 7, true}, {6, 1, 7, false}, {5, 2, 7, false}, {5, 1, 8, false}, {5 + (1ull << 32), 1, 7, false}};

	(void)state;
	fill(src, sizeof(src));
	one = apply(&a, 5, 1, 7, H, W, 1, src);
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		two = apply(&a, keys[i].seed, keys[i].epoch, keys[i].sample, H, W, 1, src);
		assert_int_equal(memcmp(one, two, sizeof(src)) == 0, keys[i].same);
		ct_free(two);
	}
	ct_free(one);
}

/* All channels move alike: C interleaved images give the same as each one alone. */
static void test_channels(void **state)
{
	struct ct_augment a = {.degrees = 30,
			       .translate = 0.2f,
			       .scale_min = 0.7f,
			       .scale_max = 1.4f,
			       .shear = 10,
			       .flip = true,
			       .crop_padding = 2};
	uint8_t planes[3][H * W], mixed[H * W * 3];

	(void)state;
	for (int k = 0; k < 3; k++)
		fill(planes[k], sizeof(planes[k]) - (size_t)k * 7);
	for (int i = 0; i < 3 * H * W; i++)
		mixed[i] = planes[i % 3][i / 3];
	for (uint32_t sample = 0; sample < 50; sample++) {
		uint8_t *all = apply(&a, 1, 2, sample, H, W, 3, mixed);

		for (int k = 0; k < 3; k++) {
			uint8_t *one = apply(&a, 1, 2, sample, H, W, 1, planes[k]);

			for (int i = 0; i < H * W; i++)
				assert_int_equal(all[3 * i + k], one[i]);
			ct_free(one);
		}
		ct_free(all);
	}
}

/* A fixed zoom of a plane g(x,y) = 3x + 5y + 20 about the centre is the plane of the zoomed place. */
static void test_zoom(void **state)
{
	enum { N = 21 };
	struct ct_augment a = {.scale_min = 2, .scale_max = 2};
	uint8_t src[N * N], *got;

	(void)state;
	for (int i = 0; i < N * N; i++)
		src[i] = (uint8_t)(3 * (i % N) + 5 * (i / N) + 20);
	got = apply(&a, 1, 2, 3, N, N, 1, src);
	for (int i = 0; i < N * N; i++) {
		double x = 10 + (i % N - 10) / 2.0, y = 10 + (i / N - 10) / 2.0;

		assert_true(fabs(got[i] - (3 * x + 5 * y + 20)) <= 1);
	}
	ct_free(got);
}

/* A blob right of the centre, turned by up to 90 degrees and shifted by up to 10 %: it lies where the drawn angle and
 * shift say (same draws, same order as the header's), radius kept. */
static void test_rotation(void **state)
{
	enum { N = 41 };
	struct ct_augment a = {.degrees = 90, .translate = 0.1f};
	double widest = 0;

	(void)state;
	for (uint32_t sample = 0; sample < 40; sample++) {
		uint8_t src[N * N] = {0}, *got;
		double mass = 0, mx = 0, my = 0, angle, dx, dy;
		struct ct_rng r;

		for (int y = 19; y <= 21; y++)
			memset(src + y * N + 29, 200, 3);
		got = apply(&a, 9, 0, sample, N, N, 1, src);
		for (int i = 0; i < N * N; i++) {
			mass += got[i];
			mx += got[i] * (double)(i % N - 20);
			my += got[i] * (double)(i / N - 20);
		}
		ct_rng_init(&r, 9, CT_RNG_AUGMENT, 0, sample);
		angle = (-90 + 180 * (double)ct_rng_uniform(&r)) * 0.017453292519943295;
		dx = (-0.1 + 0.2 * (double)ct_rng_uniform(&r)) * N;
		dy = (-0.1 + 0.2 * (double)ct_rng_uniform(&r)) * N;
		assert_true(fabs(mass - 1800) < 100);
		assert_true(fabs(mx / mass - (10 * cos(angle) + dx)) < 0.1);
		assert_true(fabs(my / mass - (10 * sin(angle) + dy)) < 0.1);
		widest = fabs(angle) > widest ? fabs(angle) : widest;
		ct_free(got);
	}
	assert_true(widest > 1.2);
}

/* A blob below the centre goes sideways by tan(angle) times its distance. */
static void test_shear(void **state)
{
	enum { N = 41 };
	struct ct_augment a = {.shear = 40};

	(void)state;
	for (uint32_t sample = 0; sample < 20; sample++) {
		uint8_t src[N * N] = {0}, *got;
		double mass = 0, mx = 0, my = 0, angle = 0;
		struct ct_rng r;

		for (int y = 29; y <= 31; y++)
			memset(src + y * N + 19, 200, 3);
		got = apply(&a, 9, 0, sample, N, N, 1, src);
		for (int i = 0; i < N * N; i++) {
			mass += got[i];
			mx += got[i] * (double)(i % N - 20);
			my += got[i] * (double)(i / N - 20);
		}
		ct_rng_init(&r, 9, CT_RNG_AUGMENT, 0, sample);
		for (int draw = 0; draw < 4; draw++) /* angle, two shifts, shear */
			angle = (-40 + 80 * (double)ct_rng_uniform(&r)) * 0.017453292519943295;
		assert_true(fabs(mx / mass - 10 * tan(angle)) < 0.1);
		assert_true(fabs(my / mass - 10) < 0.1);
		ct_free(got);
	}
}

/* Extreme settings and shapes: ASan and UBSan look on. */
static void test_extremes(void **state)
{
	static const struct ct_augment all[] = {
		{.degrees = 180, .translate = 1, .scale_min = 0.05f, .scale_max = 20, .shear = 80},
		{.degrees = 180,
		 .translate = 1,
		 .scale_min = 20,
		 .scale_max = 20,
		 .shear = 80,
		 .crop_padding = 1024,
		 .flip = true},
		{.scale_min = 0.05f, .scale_max = 0.05f},
		{.shear = 80, .crop_padding = 1},
	};
	static const int shapes[][3] = {{1, 1, 1}, {1, 17, 1}, {17, 1, 3}, {2, 2, 4}, {64, 3, 1}};
	uint8_t src[1024];

	(void)state;
	fill(src, sizeof(src));
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++) {
		assert_ok(ct_augment_check(&all[i]));
		for (size_t k = 0; k < CT_ARRAY_LEN(shapes); k++) {
			for (uint32_t sample = 0; sample < 100; sample++)
				ct_free(apply(&all[i], 1, 2, sample, shapes[k][0], shapes[k][1], shapes[k][2], src));
		}
	}
}

static void test_check(void **state)
{
	static const struct ct_augment bad[] = {
		{.crop_padding = -1},
		{.crop_padding = 1025},
		{.degrees = -1},
		{.degrees = NAN},
		{.degrees = 181},
		{.translate = 1.5f},
		{.translate = NAN},
		{.shear = 90},
		{.shear = NAN},
		{.scale_max = 1},
		{.scale_min = 1},
		{.scale_min = 1.2f, .scale_max = 0.8f},
		{.scale_min = NAN},
		{.scale_min = 1, .scale_max = NAN},
		{.scale_min = 1, .scale_max = 21},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_int_equal(ct_augment_check(&bad[i]), CT_CONFIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_off),       cmocka_unit_test(test_crop_flip), cmocka_unit_test(test_flip_alone),
		cmocka_unit_test(test_crop_away), cmocka_unit_test(test_keyed),     cmocka_unit_test(test_channels),
		cmocka_unit_test(test_zoom),      cmocka_unit_test(test_rotation),  cmocka_unit_test(test_shear),
		cmocka_unit_test(test_extremes),  cmocka_unit_test(test_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
