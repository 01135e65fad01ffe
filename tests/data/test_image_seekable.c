/* JPEG files with restart markers: decoding parts of them, and adding the markers. */
#include "tests/data/encoded.h"

#include <stdlib.h>
#include <string.h>

#include "data/image/exif_impl.h"
#include "data/image/jpeg_part_impl.h"
#include "tests/data/jpeg_make.h"
#include "tests/data/windows.h"

/* Bytes of the part for a window; 0: there is none. */
static size_t part_of(struct bytes b, struct ct_box w, struct ct_jpeg_part *out)
{
	struct ct_jpeg_markers m = ct__jpeg_markers_find(b.p, b.n);
	struct ct_scratch s = {0};

	assert_ok(ct__jpeg_part_cut(&m, b.p, b.n, w, 1, &s, out));
	assert_int_equal(out->bytes != NULL, out->n > 0);
	ct_scratch_release(&s);
	return out->n;
}

static struct bytes seekable(struct bytes b)
{
	struct bytes s = {0};

	assert_ok(ct_image_make_seekable(b.p, b.n, &s.p, &s.n));
	return s;
}

/* Whatever the sampling and wherever the markers are, a window is that of the whole. */
static void test_parts(void **state)
{
	static const int sampling[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 1}, {1, 3}, {4, 1}, {4, 2}};
	static const int intervals[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 18, 21, 24, 27, 36, 48};
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 21, CT_RNG_TEST, 0, 0);
	for (size_t s = 0; s < CT_ARRAY_LEN(sampling); s++) {
		for (size_t i = 0; i < CT_ARRAY_LEN(intervals); i++) {
			struct jpeg_spec spec = {.w = 130 + (int)i,
						 .h = 140,
						 .hs = sampling[s][0],
						 .vs = sampling[s][1],
						 .restart = intervals[i],
						 .colors = i % 5 == 4   ? JPEG_GRAY
							   : i % 5 == 3 ? JPEG_RGB
									: JPEG_YCC};
			struct bytes b = jpeg_make(&spec);

			windows_check(d, b, b, 40, &rng);
			bytes_release(&b);
		}
	}
	ct_image_decoder_destroy(d);
}

/* Of 160 x 128 pixels in 10 x 8 MCUs. */
static void test_what_a_part_holds(void **state)
{
	static const struct {
		int restart;
		struct ct_box window;
		int x, y; /* -1: no part */
	} cases[] = {
		{1, {50, 50, 20, 20}, 48, 48},  {1, {49, 50, 20, 20}, 32, 48}, /* looks at the pixels before it */
		{2, {50, 50, 20, 20}, 32, 48},  {5, {82, 20, 70, 20}, 80, 16},
		{10, {50, 100, 20, 20}, 0, 96}, /* rows */
		{20, {50, 100, 20, 20}, 0, 96}, /* pairs of rows */
		{3, {50, 50, 20, 20}, -1, -1},  /* intervals that begin in one row and end in the next */
		{0, {50, 50, 20, 20}, -1, -1},  {1, {0, 0, 160, 128}, -1, -1},
		{10, {3, 3, 20, 20}, -1, -1}, /* all of the rows that are read anyway */
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct jpeg_spec spec = {.w = 160, .h = 128, .hs = 2, .vs = 2, .restart = cases[i].restart};
		struct bytes b = jpeg_make(&spec);
		struct ct_jpeg_part part;
		size_t n = part_of(b, cases[i].window, &part);

		assert_int_equal(n > 0, cases[i].x >= 0);
		assert_true(n < b.n);
		assert_int_equal(part.x, n > 0 ? cases[i].x : 0);
		assert_int_equal(part.y, n > 0 ? cases[i].y : 0);
		bytes_release(&b);
	}
}

/* Where a marker is not what it should be there is no part; libjpeg says what is wrong. */
static void test_odd_markers(void **state)
{
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 160, .h = 128, .hs = 2, .vs = 2, .restart = 2}), copy;
	const struct ct_box window = {100, 100, 20, 20};
	struct ct_jpeg_markers m = ct__jpeg_markers_find(b.p, b.n);
	struct ct_jpeg_part part;
	int markers = 0;

	(void)state;
	assert_true(part_of(b, window, &part) > 0);
	for (size_t i = m.data; i + 2 < b.n; i++) {
		if (b.p[i] != 0xff || b.p[i + 1] == 0)
			continue;
		markers++;
		if (markers > 30)
			break;
		copy = bytes_copy(b.p, b.n);
		copy.p[i + 1] = (uint8_t)(0xd0 | ((copy.p[i + 1] + 1) & 7));
		assert_int_equal(part_of(copy, window, &part), 0);
		copy.p[i + 1] = 0xd9; /* an early end */
		assert_int_equal(part_of(copy, window, &part), 0);
		copy.p[i + 1] = 0xff; /* fill bytes */
		assert_int_equal(part_of(copy, window, &part), 0);
		bytes_release(&copy);
	}
	assert_int_equal(markers, 31);
	for (size_t n = 2; n < b.n * 3 / 4; n++) {
		copy = bytes_copy(b.p, n);
		assert_int_equal(part_of(copy, window, &part), 0);
		bytes_release(&copy);
	}
	bytes_release(&b);
}

/* Damage outside of the part does not matter; inside, the rest is as in a whole decode. */
static void test_damage(void **state)
{
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 160, .h = 128, .hs = 2, .vs = 2, .restart = 2});
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});
	struct ct_jpeg_markers m = ct__jpeg_markers_find(b.p, b.n);
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 22, CT_RNG_TEST, 0, 0);
	for (int i = 0; i < 300; i++) {
		struct bytes copy = bytes_copy(b.p, b.n);
		size_t at = m.data + ct_rng_below(&rng, (uint32_t)(b.n - m.data - 2));

		/* Neither takes away nor makes a marker. */
		if (copy.p[at] != 0xff && copy.p[at] != 0 && copy.p[at - 1] != 0xff) {
			copy.p[at] = (uint8_t)(1 + ct_rng_below(&rng, 254));
			windows_check(d, copy, copy, 4, &rng);
		}
		bytes_release(&copy);
	}
	bytes_release(&b);
	ct_image_decoder_destroy(d);
}

/* Windows at 1/scale against all of the image at it; every second one at the left edge, where a part may be narrow. */
static void check_scaled(struct bytes b, int scale, int n, struct ct_rng *rng)
{
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){.fast = true}),
			 *e = windows_decoder((struct ct_image_opts){.fast = true});
	struct ct_image_header h = windows_open(d, b);
	struct ct_pixels x, y;

	assert_ok(ct_image_decode(d, (struct ct_box){0, 0, h.w, h.h}, h.w / scale, h.h / scale, &x));
	assert_int_equal(x.scale, scale);
	for (int i = 0; i < n; i++) {
		struct ct_box w = windows_random(rng, i % 2 ? 12 : h.w, h.h);

		windows_open(e, b);
		assert_ok(ct_image_decode(e, w, w.w / scale, w.h / scale, &y));
		if (y.scale != scale) /* too small for it */
			continue;
		assert_int_equal(y.box.x, w.x / scale);
		assert_int_equal(y.box.y, w.y / scale);
		for (int row = 0; row < y.box.h; row++) {
			const uint8_t *want = x.rgbx + (size_t)(y.box.y + row) * x.pitch + 4 * y.box.x;

			for (int col = 0; col < y.box.w; col++)
				assert_memory_equal(y.rgbx + (size_t)row * y.pitch + 4 * col, want + 4 * col, 3);
		}
	}
	ct_image_decoder_destroy(d);
	ct_image_decoder_destroy(e);
}

/* At 1/2, 1/4, 1/8; whole files too. */
static void test_scaled_parts(void **state)
{
	static const int sampling[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}};
	struct bytes plain = jpeg_make(&(struct jpeg_spec){.w = 601, .h = 503, .hs = 2, .vs = 2}), b = seekable(plain);
	struct ct_rng rng;

	(void)state;
	assert_non_null(b.p);
	ct_rng_init(&rng, 23, CT_RNG_TEST, 0, 0);
	for (int scale = 2; scale <= 8; scale *= 2) {
		check_scaled(b, scale, 40, &rng);
		for (size_t i = 0; i < 2 * CT_ARRAY_LEN(sampling); i++) {
			const int *f = sampling[i / 2];
			struct bytes small = jpeg_make(
				&(struct jpeg_spec){.w = 330, .h = 75, .hs = f[0], .vs = f[1], .restart = (int)i % 2});

			check_scaled(small, scale, 60, &rng);
			bytes_release(&small);
		}
	}
	bytes_release(&plain);
	bytes_release(&b);
}

/* Any kind keeps its pixels, and a window of it becomes a part. */
static void test_make(void **state)
{
	static const struct jpeg_spec kinds[] = {
		{.w = 300, .h = 220, .hs = 2, .vs = 2},
		{.w = 300, .h = 220},
		{.w = 301, .h = 220, .hs = 2},
		{.w = 221, .h = 300, .vs = 2},
		{.w = 300, .h = 220, .hs = 4},
		{.w = 331, .h = 220, .hs = 2, .vs = 2}, /* 21 MCUs a row */
		{.w = 271, .h = 220, .hs = 2, .vs = 2}, /* 17: one interval */
		{.w = 300, .h = 220, .hs = 2, .vs = 2, .progressive = true},
		{.w = 300, .h = 220, .hs = 2, .vs = 2, .arithmetic = true},
		{.w = 300, .h = 220, .hs = 2, .vs = 2, .restart = 7},
		{.w = 300, .h = 220, .colors = JPEG_GRAY},
		{.w = 300, .h = 220, .colors = JPEG_GRAY, .hs = 2, .vs = 2},
		{.w = 300, .h = 220, .colors = JPEG_RGB},
	};
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 24, CT_RNG_TEST, 0, 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		struct bytes plain = jpeg_make(&kinds[i]), b = seekable(plain), again;
		struct ct_jpeg_part part;

		assert_non_null(b.p);
		assert_true(b.n < plain.n * 5 / 4);
		windows_check(d, b, plain, 40, &rng);
		windows_check(d, plain, b, 1, &rng);
		assert_true(part_of(b, (struct ct_box){100, 100, 100, 100}, &part) > 0);
		assert_true(part.y >= 64 && part.x == (kinds[i].w == 271 ? 0 : part.x));
		again = seekable(b);
		assert_int_equal(again.n, b.n);
		assert_memory_equal(again.p, b.p, b.n);
		bytes_release(&again);
		bytes_release(&plain);
		bytes_release(&b);
	}
	ct_image_decoder_destroy(d);
}

/* Orientation and other metadata come along; so does memory that runs out. */
static void test_metadata(void **state)
{
	static const uint8_t exif[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
				       3,   0,   0, 0,  1, 0, 6, 0, 0, 0, 0, 0,    0};
	struct bytes plain = jpeg_make(&(struct jpeg_spec){
			     .w = 300, .h = 220, .hs = 2, .vs = 2, .exif = exif, .exif_bytes = sizeof(exif)}),
		     b = seekable(plain);
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){.exif = true});
	struct ct_image_header h = windows_open(d, b);
	int failed = 0;

	(void)state;
	assert_int_equal(h.orientation, 6);
	assert_int_equal(h.w, 220);
	assert_false(h.progressive);
	for (int i = 1; i < 100; i++) {
		uint8_t *p;
		size_t n;

		ct_mem_fail_after(i);
		if (ct_image_make_seekable(plain.p, plain.n, &p, &n) == CT_OK)
			i = 100;
		else
			failed++;
		ct_mem_fail_after(0);
		ct_free(p);
	}
	assert_in_range(failed, 2, 20);
	bytes_release(&plain);
	bytes_release(&b);
	ct_image_decoder_destroy(d);
}

/* Damaged, tiny, four components, no JPEG: stays as it is. */
static void test_left_alone(void **state)
{
	static const struct jpeg_spec kinds[] = {
		{.w = 90, .h = 90},
		{.w = 300, .h = 220, .colors = JPEG_CMYK},
		{.w = 300, .h = 220, .colors = JPEG_YCCK},
		{.w = 300, .h = 220, .colors = JPEG_GRAY, .scans = 200},
	};
	struct bytes b, s;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		b = jpeg_make(&kinds[i]);
		s = seekable(b);
		assert_null(s.p);
		bytes_release(&b);
	}
	for (int progressive = 0; progressive < 2; progressive++) {
		b = jpeg_make(&(struct jpeg_spec){.w = 300, .h = 220, .progressive = progressive});
		for (size_t n = 0; n < b.n; n += n < 1000 || b.n - n < 40 ? 1 : 97) {
			struct bytes cut = bytes_copy(b.p, n);

			s = seekable(cut);
			assert_null(s.p);
			bytes_release(&cut);
		}
		bytes_release(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),        cmocka_unit_test(test_what_a_part_holds),
		cmocka_unit_test(test_odd_markers),  cmocka_unit_test(test_damage),
		cmocka_unit_test(test_scaled_parts), cmocka_unit_test(test_make),
		cmocka_unit_test(test_metadata),     cmocka_unit_test(test_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
