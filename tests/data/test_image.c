/* Synthetic images: boxes are compared with full decodes; color formats, limits and damage are tested. */
#include "tests/data/encoded.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/image/exif_impl.h"
#include "data/image/image.h"
#include "tests/data/jpeg_make.h"
#include "tests/data/windows.h"

static const struct jpeg_spec kinds[] = {
	{.w = 97, .h = 75},
	{.w = 97, .h = 75, .hs = 2, .vs = 2},
	{.w = 101, .h = 63, .hs = 2},
	{.w = 90, .h = 77, .vs = 2},
	{.w = 131, .h = 50, .hs = 4},
	{.w = 77, .h = 90, .hs = 4, .vs = 2},
	{.w = 99, .h = 70, .colors = JPEG_GRAY},
	{.w = 99, .h = 70, .colors = JPEG_RGB},
	{.w = 99, .h = 70, .hs = 2, .vs = 2, .progressive = true},
	{.w = 99, .h = 70, .colors = JPEG_GRAY, .progressive = true},
	{.w = 99, .h = 70, .hs = 2, .vs = 2, .restart = 1},
	{.w = 99, .h = 70, .hs = 2, .arithmetic = true},
	{.w = 99, .h = 70, .colors = JPEG_CMYK},
	{.w = 99, .h = 70, .colors = JPEG_YCCK, .hs = 2, .vs = 2},
	{.w = 1, .h = 1},
	{.w = 1, .h = 200, .hs = 2, .vs = 2},
	{.w = 200, .h = 1, .hs = 2, .vs = 2},
	{.w = 300, .h = 220, .hs = 2, .vs = 2},
};

static void test_windows(void **state)
{
	struct ct_rng rng;
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});

	(void)state;
	ct_rng_init(&rng, 3, CT_RNG_TEST, 0, 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		struct bytes b = jpeg_make(&kinds[i]);

		windows_check(d, b, b, 60, &rng);
		bytes_release(&b);
	}
	ct_image_decoder_destroy(d);
}

/* Nothing is left of an image when the next one comes, and nothing of ours is allocated for it. */
static void test_steady(void **state)
{
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});
	struct bytes files[CT_ARRAY_LEN(kinds)];
	uint64_t count = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++)
		files[i] = jpeg_make(&kinds[i]);
	for (int round = 0; round < 3; round++) {
		if (round == 1)
			count = ct_mem_count();
		for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
			struct ct_image_header h;

			free(windows_whole(d, files[i], &h));
		}
	}
	assert_int_equal(ct_mem_count(), count);
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++)
		bytes_release(&files[i]);
	ct_image_decoder_destroy(d);
}

static void assert_near(int a, int b, int most)
{
	if (abs(a - b) > most)
		fail_msg("%d is not within %d of %d", a, most, b);
}

static void test_colors(void **state)
{
	static const enum jpeg_colors all[] = {JPEG_YCC, JPEG_RGB, JPEG_GRAY, JPEG_CMYK, JPEG_YCCK};
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++) {
		struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 40, .h = 30, .colors = all[i], .quality = 100});
		struct ct_image_header h;
		uint8_t *rgb = windows_whole(d, b, &h);

		assert_int_equal(h.components, all[i] == JPEG_GRAY ? 1 : all[i] >= JPEG_CMYK ? 4 : 3);
		for (int at = 0; at < 40 * 30 * 3; at++) {
			int x = at / 3 % 40, y = at / 3 / 40, c = all[i] == JPEG_GRAY ? 0 : at % 3,
			    want = picture(x, y, c);

			if (all[i] >= JPEG_CMYK)
				want = want * picture(x, y, 3) / 255;
			assert_near(rgb[at], want, 6);
		}
		free(rgb);
		bytes_release(&b);
	}
	ct_image_decoder_destroy(d);
}

/* A TIFF block with one or two entries, the second being the orientation. */
static size_t make_exif(uint8_t out[64], bool big, int orientation)
{
	static const uint8_t little[] = {'I', 'I', 42, 0,    8, 0, 0, 0, 2, 0, 0x0f, 1, 2, 0, 1, 0, 0, 0, 'x',
					 0,   0,   0,  0x12, 1, 3, 0, 1, 0, 0, 0,    0, 0, 0, 0, 0, 0, 0, 0},
			     large[] = {'M', 'M', 0, 42, 0,    0, 0, 8, 0, 2, 1, 0x0f, 0, 2, 0, 0, 0, 1, 'x',
					0,   0,   0, 1,  0x12, 0, 3, 0, 0, 0, 1, 0,    0, 0, 0, 0, 0, 0, 0};

	memcpy(out, big ? large : little, sizeof(little));
	out[big ? 31 : 30] = (uint8_t)orientation;
	return sizeof(little);
}

/* Pixel (x, y) of the turned image in the stored one of w x h, written out case by case. */
static int stored_at(int orientation, int x, int y, int w, int h)
{
	switch (orientation) {
	case 2:
		return y * w + w - 1 - x;
	case 3:
		return (h - 1 - y) * w + w - 1 - x;
	case 4:
		return (h - 1 - y) * w + x;
	case 5:
		return x * w + y;
	case 6:
		return (h - 1 - x) * w + y;
	case 7:
		return (h - 1 - x) * w + w - 1 - y;
	case 8:
		return x * w + w - 1 - y;
	default:
		return y * w + x;
	}
}

static void check_orientation(int o, bool big, struct ct_rng *rng)
{
	struct jpeg_spec spec = {.w = 50, .h = 34, .hs = 2, .vs = 2};
	ct_image_decoder *plain = windows_decoder((struct ct_image_opts){0}),
			 *turned = windows_decoder((struct ct_image_opts){.exif = true});
	struct ct_image_header h, t;
	uint8_t exif[64], *stored;
	struct bytes b;

	spec.exif_bytes = make_exif(exif, big, o);
	spec.exif = exif;
	b = jpeg_make(&spec);
	stored = windows_whole(plain, b, &h);
	assert_int_equal(h.orientation, o >= 1 && o <= 8 ? o : 1);
	assert_int_equal(h.w, 50);
	for (int i = 0; i < 20; i++) {
		struct ct_box w;
		uint8_t *rgb;

		t = windows_open(turned, b);
		assert_int_equal(t.w, h.orientation >= 5 ? 34 : 50);
		assert_int_equal(t.h, h.orientation >= 5 ? 50 : 34);
		w = windows_random(rng, t.w, t.h);
		rgb = windows_decode(turned, w);
		for (int p = 0; p < w.w * w.h; p++)
			assert_memory_equal(rgb + 3 * p,
					    stored + 3 * stored_at(o, w.x + p % w.w, w.y + p / w.w, 50, 34), 3);
		free(rgb);
	}
	windows_check(turned, b, b, 10, rng);
	free(stored);
	bytes_release(&b);
	ct_image_decoder_destroy(plain);
	ct_image_decoder_destroy(turned);
}

static void test_orientation(void **state)
{
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 4, CT_RNG_TEST, 0, 0);
	for (int o = 0; o <= 9; o++) {
		check_orientation(o, false, &rng);
		check_orientation(o, true, &rng);
	}
}

/* Blocks cut after every byte, offsets that lead outside, other types: no orientation, and nothing read outside. */
static void test_broken_exif(void **state)
{
	uint8_t whole[64];
	size_t n = make_exif(whole, false, 6);

	(void)state;
	assert_int_equal(ct__exif_orientation(whole, n), 6);
	for (size_t cut = 0; cut < n; cut++) {
		uint8_t *exact = malloc(cut ? cut : 1);

		memcpy(exact, whole, cut);
		/* The entry ends 4 bytes before the block. */
		assert_int_equal(ct__exif_orientation(exact, cut), cut >= n - 4 ? 6 : 1);
		free(exact);
	}
	for (int at = 0; at < (int)n; at++) {
		uint8_t *exact = malloc(n);
		int o;

		memcpy(exact, whole, n);
		exact[at] = 0xff;
		o = ct__exif_orientation(exact, n);
		assert_true(o == 1 || o == 6);
		free(exact);
	}
}

/* Opens and decodes everything; the message must begin with the tag. NULL: must succeed. */
static void check_fails(ct_image_decoder *d, const void *p, size_t n, const char *tag)
{
	enum ct_status st = encoded_decode(d, p, n);

	if (!tag) {
		assert_ok(st);
		return;
	}
	assert_int_equal(st, CT_DATA);
	if (strncmp(ct_error_message(), tag, strlen(tag)) != 0)
		fail_msg("%s does not begin with %s", ct_error_message(), tag);
}

/* Cut after every byte. */
static void check_cuts(ct_image_decoder *d, struct bytes b, size_t least)
{
	for (size_t n = 2; n < b.n - least; n++)
		check_fails(d, b.p, n, "jpeg-truncated: ");
	/* Only the end mark is missing. */
	check_fails(d, b.p, b.n - 2, NULL);
	assert_non_null(ct_image_warning(d));
	assert_non_null(strstr(ct_image_warning(d), "jpeg-warning: "));
	check_fails(d, "GIF89a", 6, "format-gif");
	assert_null(ct_image_warning(d));
	check_fails(d, b.p, b.n, NULL);
	assert_null(ct_image_warning(d));
}

static void test_truncated(void **state)
{
	static const struct jpeg_spec cut[] = {
		{.w = 40, .h = 30, .hs = 2, .vs = 2},
		{.w = 40, .h = 30, .restart = 2},
		{.w = 40, .h = 30, .hs = 2, .vs = 2, .progressive = true},
		{.w = 40, .h = 300, .arithmetic = true},
	};
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cut); i++) {
		struct bytes b = jpeg_make(&cut[i]);

		/* Arithmetic coding cannot tell an end that is only a little too early. */
		check_cuts(d, b, cut[i].arithmetic ? b.n / 4 : 2);
		bytes_release(&b);
	}
	ct_image_decoder_destroy(d);
}

static void test_limits(void **state)
{
	struct bytes small = jpeg_make(&(struct jpeg_spec){.w = 40, .h = 30}), bomb, good;
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){.max_pixels = 40 * 30 - 1});

	(void)state;
	check_fails(d, small.p, small.n, "jpeg-dims: 40 x 30 pixels; sizes from 1 x 1 to 1199 pixels are supported");
	ct_image_decoder_destroy(d);

	bomb = jpeg_make(&(struct jpeg_spec){.w = 64, .h = 64, .colors = JPEG_GRAY, .scans = 600});
	d = windows_decoder((struct ct_image_opts){0});
	check_fails(d, bomb.p, bomb.n, "jpeg-scans: scan 101");
	ct_image_decoder_destroy(d);
	d = windows_decoder((struct ct_image_opts){.max_scans = 700});
	check_fails(d, bomb.p, bomb.n, NULL);
	ct_image_decoder_destroy(d);
	/* 64 scans of 64 x 64 cost as much as 32 of twice the pixels. */
	d = windows_decoder((struct ct_image_opts){.max_scans = 700, .max_pixels = 64 * 64 * 2});
	check_fails(d, bomb.p, bomb.n, "jpeg-scans: scan 65");
	good = jpeg_make(&(struct jpeg_spec){.w = 64, .h = 64, .progressive = true});
	check_fails(d, good.p, good.n, NULL);
	ct_image_decoder_destroy(d);
	bytes_release(&small);
	bytes_release(&bomb);
	bytes_release(&good);
}

/* A file without tables does not get those of the one before. */
static void test_tables_do_not_stay(void **state)
{
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 40, .h = 30}), bare = bytes_copy(b.p, b.n);
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});

	(void)state;
	for (size_t i = 2; i + 4 < bare.n && bare.p[i + 1] != 0xda;) {
		if (bare.p[i + 1] == 0xdb)
			bare.p[i + 1] = 0xfe; /* a comment now */
		i += 2 + ((size_t)bare.p[i + 2] << 8 | bare.p[i + 3]);
	}
	check_fails(d, b.p, b.n, NULL);
	check_fails(d, bare.p, bare.n, "jpeg-header: ");
	bytes_release(&b);
	bytes_release(&bare);
	ct_image_decoder_destroy(d);
}

static void test_other_formats(void **state)
{
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});

	(void)state;
	check_fails(d, "", 0, "empty: ");
	check_fails(d, "\xff", 1, "jpeg-magic: ");
	check_fails(d, "GIF89a....", 10, "format-gif: ");
	check_fails(d, "BM", 2, "format-bmp: ");
	check_fails(d, "RIFF....WEBPVP8 ", 16, "format-webp: ");
	check_fails(d,
		    "\0\0\0\x20"
		    "ftypavif",
		    12, "format-avif: ");
	assert_true(strlen(ct_error_hint_text()) > 0);
	ct_image_decoder_destroy(d);
}

static void test_fast(void **state)
{
	static const int scales[][3] = {{448, 8, 1}, {224, 224, 2}, {100, 100, 4}, {50, 40, 8}, {226, 10, 1}};
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 601, .h = 503, .hs = 2, .vs = 2});
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){.fast = true});

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(scales); i++) {
		struct ct_box w = {101, 33, 450, 450};
		int s = scales[i][2];
		struct ct_pixels px;

		windows_open(d, b);
		assert_ok(ct_image_decode(d, w, scales[i][0], scales[i][1], &px));
		assert_int_equal(px.scale, s);
		assert_true(px.box.x * s <= w.x && px.box.y * s <= w.y);
		assert_true((px.box.x + px.box.w) * s >= w.x + w.w && (px.box.y + px.box.h) * s >= w.y + w.h);
	}
	bytes_release(&b);
	ct_image_decoder_destroy(d);
}

static void test_encode(void **state)
{
	uint8_t *rgb = picture_rgb(70, 50), *file, *back;
	ct_image_decoder *d = windows_decoder((struct ct_image_opts){0});
	struct ct_image_header h;
	long sum = 0;
	size_t n;

	(void)state;
	assert_ok(ct_image_encode_jpeg(rgb, 70, 50, 95, &file, &n));
	back = windows_whole(d, (struct bytes){file, n}, &h);
	assert_int_equal(h.w, 70);
	assert_int_equal(h.h, 50);
	assert_false(h.progressive);
	for (int i = 0; i < 70 * 50 * 3; i++)
		sum += abs(back[i] - rgb[i]);
	assert_in_range(sum / (70 * 50 * 3), 0, 24); /* checks of 7 by 5 lose their colors in 4:2:0 */
	ct_mem_fail_after(2);
	assert_int_equal(ct_image_encode_jpeg(rgb, 70, 50, 95, &back, &n), CT_NOMEM);
	ct_mem_fail_after(0);
	free(back);
	ct_free(file);
	ct_free(rgb);
	ct_image_decoder_destroy(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows),       cmocka_unit_test(test_steady),
		cmocka_unit_test(test_colors),        cmocka_unit_test(test_orientation),
		cmocka_unit_test(test_broken_exif),   cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_limits),        cmocka_unit_test(test_tables_do_not_stay),
		cmocka_unit_test(test_other_formats), cmocka_unit_test(test_fast),
		cmocka_unit_test(test_encode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
