#include "data/transform/resize.h"

#include "tests/data/resize_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "data/transform/resize_axis_impl.h"
#include "data/transform/resize_kernel_impl.h"

/* The same arithmetic, so not only within 1. */
static void test_golden(void **state)
{
	FILE *f = fopen(CT_SOURCE_DIR "/tests/data/resize_golden.txt", "r");
	struct resize_result sum;

	(void)state;
	assert_non_null(f);
	sum = resize_cases_run(f);
	fclose(f);
	assert_int_equal(sum.cases, 13);
	assert_int_equal(sum.different, 0);
}

static struct ct_pixels pixels(int w, int h)
{
	uint8_t *p = malloc((size_t)w * (size_t)h * 4);
	struct ct_rng rng;

	assert_non_null(p);
	ct_rng_init(&rng, 1, CT_RNG_TEST, (uint32_t)w, (uint32_t)h);
	for (int i = 0; i < w * h * 4; i++)
		p[i] = (uint8_t)ct_rng_u32(&rng);
	return (struct ct_pixels){p, (size_t)w * 4, {0, 0, w, h}, 1};
}

static int between(struct ct_rng *rng, int lo, int hi)
{
	return lo + (int)ct_rng_below(rng, (uint32_t)(hi - lo + 1));
}

#define GUARDED 65536

/* Where GUARDED bytes end behind which nothing can be read: sanitizers do not see every load of the kernels. */
static uint8_t *guarded_end(void)
{
	uint8_t *p = mmap(NULL, 2 * GUARDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + GUARDED, GUARDED, PROT_NONE), 0);
	return p + GUARDED;
}

/* Random pixels, the last of them just before `end`. */
static struct ct_pixels pixels_before(uint8_t *end, int w, int h)
{
	struct ct_pixels src = pixels(w, h);
	size_t bytes = src.pitch * (size_t)h;

	assert_true(bytes <= GUARDED);
	memcpy(end - bytes, src.rgbx, bytes);
	free((void *)(uintptr_t)src.rgbx);
	src.rgbx = end - bytes;
	return src;
}

/* Two rows of `width` pixels, part of them to n: what both kernels make of it with their own tables. */
static void check_across(const struct ct_resize_kernel *best, struct ct_rng *rng, uint8_t *end, int width, int n)
{
	const struct ct_resize_kernel *both[2] = {&ct__resize_plain, best};
	double len = 0.5 + ct_rng_uniform(rng) * (width - 0.5), at = ct_rng_uniform(rng) * (width - len);
	struct ct_pixels src = pixels_before(end, width, 2);
	bool mirror = ct_rng_below(rng, 2);
	const uint8_t *const lines[2] = {src.rgbx, src.rgbx + src.pitch};
	uint8_t *row[2][2];

	for (int i = 0; i < 2; i++) {
		struct ct_resize_table t = {0};
		struct ct_resize_axis a = {0};

		for (int j = 0; j < 2; j++)
			row[i][j] = malloc(CT_RESIZE_PITCH((size_t)n));
		assert_ok(ct__resize_axis_set(&a, at, len, 0, width, n, mirror, both[i]->unit));
		assert_ok(both[i]->tabulate(&t, &a, width));
		both[i]->across(&t, lines, row[i]);
		ct__resize_axis_release(&a);
		ct_scratch_release(&t.mem);
	}
	for (int j = 0; j < 2; j++) {
		assert_memory_equal(row[0][j], row[1][j], (size_t)n * 3);
		free(row[0][j]);
		free(row[1][j]);
	}
}

/* `taps` rows with weights that sum up to one. */
static void check_down(const struct ct_resize_kernel *best, struct ct_rng *rng, uint8_t *end, int taps)
{
	int n = CT_RESIZE_ROW * between(rng, 1, 12), left = 1 << CT_RESIZE_BITS;
	struct ct_pixels src = pixels_before(end, n / 4, taps);
	uint8_t plain[CT_RESIZE_ROW * 12], fast[CT_RESIZE_ROW * 12];
	const uint8_t *rows[40];
	int32_t k[40];

	for (int t = 0; t < taps; t++) {
		rows[t] = src.rgbx + (size_t)t * src.pitch;
		k[t] = t == taps - 1 ? left : between(rng, 0, left);
		left -= k[t];
	}
	ct__resize_plain.down(rows, k, taps, n, plain);
	best->down(rows, k, taps, n, fast);
	assert_memory_equal(plain, fast, (size_t)n);
}

static void check_kernel(const struct ct_resize_kernel *best)
{
	uint8_t *end = guarded_end();
	struct ct_rng rng;

	ct_rng_init(&rng, 3, CT_RNG_TEST, 0, 0);
	for (int i = 0; i < 800; i++) {
		check_across(best, &rng, end, between(&rng, 1, 8), between(&rng, 1, 40));
		check_across(best, &rng, end, between(&rng, 1, 80), between(&rng, 1, 80));
		check_across(best, &rng, end, between(&rng, 80, 500), between(&rng, 1, 300));
	}
	for (int i = 0; i < 200; i++)
		check_down(best, &rng, end, 1 + i % 40);
	munmap(end - GUARDED, 2 * GUARDED);
}

static void test_kernels_agree(void **state)
{
	(void)state;
#if defined(__x86_64__)
	if (ct__resize_kernel_get(0) != &ct__resize_avx512)
		print_message("this processor has no AVX-512 with VNNI and VBMI: its kernel is not tested\n");
#endif
	for (int skip = 0; skip < 3; skip++)
		check_kernel(ct__resize_kernel_get(skip));
}

/* What the window leaves out has no part in the result. */
static void test_window_is_enough(void **state)
{
	struct ct_pixels src = pixels(200, 150);
	uint8_t whole[20 * 30 * 3], part[20 * 30 * 3];
	struct ct_rng rng;
	ct_resizer *r;

	(void)state;
	ct_rng_init(&rng, 2, CT_RNG_TEST, 0, 0);
	assert_ok(ct_resizer_create(&r));
	for (int i = 0; i < 200; i++) {
		struct ct_resize q = {.limits = {0, 0, 200, 150}, .out_w = 20, .out_h = 30, .flip = i % 2};
		struct ct_pixels cut = src;
		uint8_t *copy;

		q.w = 1 + ct_rng_uniform(&rng) * 150;
		q.h = 1 + ct_rng_uniform(&rng) * 120;
		q.x = ct_rng_uniform(&rng) * (200 - q.w);
		q.y = ct_rng_uniform(&rng) * (150 - q.h);
		cut.box = ct_resize_window(&q);
		cut.pitch = (size_t)cut.box.w * 4;
		copy = malloc(cut.pitch * (size_t)cut.box.h);
		for (int y = 0; y < cut.box.h; y++)
			memcpy(copy + (size_t)y * cut.pitch,
			       src.rgbx + (size_t)(cut.box.y + y) * src.pitch + 4 * cut.box.x, cut.pitch);
		cut.rgbx = copy;
		assert_ok(ct_resize_run(r, &q, &src, whole));
		assert_ok(ct_resize_run(r, &q, &cut, part));
		assert_memory_equal(whole, part, sizeof(whole));
		free(copy);
	}
	ct_resizer_destroy(r);
	free((void *)(uintptr_t)src.rgbx);
}

static void test_flip(void **state)
{
	struct ct_pixels src = pixels(90, 50);
	struct ct_resize q = {3.5, 2, 80, 40, {0, 0, 90, 50}, 33, 21, false};
	uint8_t a[33 * 21 * 3], b[33 * 21 * 3];
	ct_resizer *r;

	(void)state;
	assert_ok(ct_resizer_create(&r));
	assert_ok(ct_resize_run(r, &q, &src, a));
	q.flip = true;
	assert_ok(ct_resize_run(r, &q, &src, b));
	for (int i = 0; i < 33 * 21; i++)
		assert_memory_equal(a + 3 * i, b + 3 * (i / 33 * 33 + 32 - i % 33), 3);
	ct_resizer_destroy(r);
	free((void *)(uintptr_t)src.rgbx);
}

/* A white image stays white and black stays black at any size: weights sum up to one. */
static void test_constant(void **state)
{
	static const int sizes[][4] = {
		{1, 1, 224, 224}, {65500, 2, 1, 1},   {65500, 1, 3, 2},     {1, 65500, 2, 3},  {20000, 3, 5, 5},
		{2, 2, 1, 1},     {500, 375, 224, 7}, {224, 224, 224, 224}, {3, 1000, 300, 1}, {9001, 2, 2, 2},
	};
	ct_resizer *r;

	(void)state;
	assert_ok(ct_resizer_create(&r));
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		int w = sizes[i][0], h = sizes[i][1], n = sizes[i][2] * sizes[i][3] * 3;
		uint8_t *src = malloc((size_t)w * (size_t)h * 4), *dst = malloc((size_t)n);
		struct ct_resize q = {0, 0, w, h, {0, 0, w, h}, sizes[i][2], sizes[i][3], false};

		for (int v = 0; v <= 255; v += 51) {
			memset(src, v, (size_t)w * (size_t)h * 4);
			assert_ok(ct_resize_run(r, &q, &(struct ct_pixels){src, (size_t)w * 4, q.limits, 1}, dst));
			for (int at = 0; at < n; at++)
				assert_int_equal(dst[at], v);
		}
		free(src);
		free(dst);
	}
	ct_resizer_destroy(r);
}

/* A ramp keeps its place when the decoder has made the image smaller: value = x in full size. */
static void test_scaled_source(void **state)
{
	ct_resizer *r;

	(void)state;
	assert_ok(ct_resizer_create(&r));
	for (int s = 1; s <= 8; s *= 2) {
		int w = (250 + s - 1) / s, h = (120 + s - 1) / s;
		struct ct_resize q = {40, 8, 160, 96, {40, 8, 160, 96}, 10, 6, false};
		uint8_t *src = malloc((size_t)w * (size_t)h * 4), dst[10 * 6 * 3];
		struct ct_box b = ct_resize_window(&q);
		struct ct_pixels px = {.pitch = (size_t)w * 4, .scale = s};

		for (int i = 0; i < w * h * 4; i++)
			src[i] = (uint8_t)(i / 4 % w * s + s / 2);
		px.box = (struct ct_box){b.x / s, b.y / s, (b.x + b.w + s - 1) / s - b.x / s,
					 (b.y + b.h + s - 1) / s - b.y / s};
		px.rgbx = src + (size_t)px.box.y * px.pitch + 4 * px.box.x;
		assert_ok(ct_resize_run(r, &q, &px, dst));
		/* Not the outermost, whose filter is cut off on one side. */
		for (int i = 0; i < 10 * 6; i++) {
			if (i % 10 > 0 && i % 10 < 9)
				assert_true(abs(dst[3 * i] - (40 + i % 10 * 16 + 8)) <= 1);
		}
		free(src);
	}
	ct_resizer_destroy(r);
}

static void test_steady(void **state)
{
	struct ct_pixels src = pixels(400, 300);
	uint8_t *dst = malloc(224 * 224 * 3);
	uint64_t before = 0;
	ct_resizer *r;

	(void)state;
	assert_ok(ct_resizer_create(&r));
	for (int i = 0; i < 60; i++) {
		int w = 400 - i % 30 * 13, h = 300 - i % 30 * 9;
		struct ct_resize q = {0, 0, w, h, {0, 0, w, h}, 224, 224, false};

		if (i == 30)
			before = ct_mem_count();
		assert_ok(ct_resize_run(r, &q, &src, dst));
	}
	assert_int_equal(ct_mem_count(), before);
	ct_resizer_destroy(r);
	assert_ok(ct_resizer_create(&r));
	ct_mem_fail_after(1);
	assert_int_equal(ct_resize_run(r, &(struct ct_resize){0, 0, 9, 9, {0, 0, 9, 9}, 4, 4, false}, &src, dst),
			 CT_NOMEM);
	ct_mem_fail_after(0);
	ct_resizer_destroy(r);
	free(dst);
	free((void *)(uintptr_t)src.rgbx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),           cmocka_unit_test(test_kernels_agree),
		cmocka_unit_test(test_window_is_enough), cmocka_unit_test(test_flip),
		cmocka_unit_test(test_constant),         cmocka_unit_test(test_scaled_source),
		cmocka_unit_test(test_steady),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
