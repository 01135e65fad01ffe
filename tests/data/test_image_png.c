/* PNG images written by libspng: color types, boxes, damage, and the files that ctrain itself writes. Strings in
 * images. */
#include "tests/data/encoded.h"

#include <stdlib.h>
#include <string.h>

#include <spng.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/image/image.h"
#include "data/image/text.h"
#include "tests/data/jpeg_make.h"

#define W 37
#define H 23

struct kind {
	uint8_t color, depth, interlace;
};

/* Sample value that the file holds at (x, y), channel c of the kind. */
static unsigned stored(const struct kind *k, int x, int y, int c)
{
	unsigned v = k->depth == 16 ? (unsigned)(x * 1777 + y * 311 + c * 5000) : (unsigned)(x * 7 + y * 11 + c * 50);

	return v & ((1u << k->depth) - 1);
}

static int channels_of(const struct kind *k)
{
	static const int n[] = {1, 0, 3, 1, 2, 0, 4};

	return n[k->color];
}

/* What the decoder must make of it. */
static unsigned expected(const struct kind *k, int x, int y, int c)
{
	unsigned v;

	if (k->color == SPNG_COLOR_TYPE_INDEXED)
		return (stored(k, x, y, 0) * 3 + (unsigned)c * 80) & 255;
	v = stored(k, x, y, channels_of(k) >= 3 ? c : 0);
	return k->depth == 16 ? v >> 8 : v * 255 / ((1u << k->depth) - 1);
}

static struct bytes make(const struct kind *k)
{
	struct spng_ihdr ihdr = {.width = W,
				 .height = H,
				 .bit_depth = k->depth,
				 .color_type = k->color,
				 .interlace_method = k->interlace};
	size_t bits = (size_t)(channels_of(k) * k->depth), row = (W * bits + 7) / 8, n;
	spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
	uint8_t *raw = calloc(row, H);
	struct spng_plte plte = {.n_entries = 1u << (k->depth & 15)};
	struct bytes b;
	void *file;
	int rc;

	for (int i = 0; i < W * H * channels_of(k); i++) {
		int c = i % channels_of(k), x = i / channels_of(k) % W, y = i / channels_of(k) / W;
		size_t bit = (size_t)(x * channels_of(k) + c) * k->depth;
		uint8_t *p = raw + (size_t)y * row + bit / 8;
		unsigned v = stored(k, x, y, c);

		if (k->depth == 16) {
			memcpy(p, &(uint16_t){(uint16_t)v}, 2);
		} else {
			*p = (uint8_t)(*p | v << (8 - k->depth - bit % 8));
		}
	}
	spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
	assert_int_equal(spng_set_ihdr(ctx, &ihdr), 0);
	for (unsigned i = 0; i < plte.n_entries && i < 256; i++)
		plte.entries[i] =
			(struct spng_plte_entry){(uint8_t)(i * 3), (uint8_t)(i * 3 + 80), (uint8_t)(i * 3 + 160), 0};
	if (k->color == SPNG_COLOR_TYPE_INDEXED)
		assert_int_equal(spng_set_plte(ctx, &plte), 0);
	assert_int_equal(spng_encode_image(ctx, raw, row * H, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
	file = spng_get_png_buffer(ctx, &n, &rc);
	assert_int_equal(rc, 0);
	b = bytes_copy(file, n);
	free(file);
	free(raw);
	spng_ctx_free(ctx);
	return b;
}

static const struct kind kinds[] = {
	{SPNG_COLOR_TYPE_GRAYSCALE, 1, 0},        {SPNG_COLOR_TYPE_GRAYSCALE, 2, 0},
	{SPNG_COLOR_TYPE_GRAYSCALE, 4, 1},        {SPNG_COLOR_TYPE_GRAYSCALE, 8, 0},
	{SPNG_COLOR_TYPE_GRAYSCALE, 16, 0},       {SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, 0},
	{SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 16, 1}, {SPNG_COLOR_TYPE_INDEXED, 1, 0},
	{SPNG_COLOR_TYPE_INDEXED, 4, 0},          {SPNG_COLOR_TYPE_INDEXED, 8, 1},
	{SPNG_COLOR_TYPE_TRUECOLOR, 8, 0},        {SPNG_COLOR_TYPE_TRUECOLOR, 8, 1},
	{SPNG_COLOR_TYPE_TRUECOLOR, 16, 0},       {SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, 0},
	{SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 16, 0},
};

static void test_kinds(void **state)
{
	ct_image_decoder *d;
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 5, CT_RNG_TEST, 0, 0);
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &d));
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		struct bytes b = make(&kinds[i]);

		for (int t = 0; t < 20; t++) {
			struct ct_image_header h;
			struct ct_pixels px;
			struct ct_box w;

			assert_ok(ct_image_open(d, b.p, b.n, &h));
			assert_int_equal(h.format, CT_IMAGE_PNG);
			assert_int_equal(h.w, W);
			assert_int_equal(h.h, H);
			assert_int_equal(h.components, channels_of(&kinds[i]));
			w.x = (int)ct_rng_below(&rng, W);
			w.y = (int)ct_rng_below(&rng, H);
			w.w = 1 + (int)ct_rng_below(&rng, (uint32_t)(W - w.x));
			w.h = 1 + (int)ct_rng_below(&rng, (uint32_t)(H - w.y));
			assert_ok(ct_image_decode(d, w, 0, 0, &px));
			assert_memory_equal(&px.box, &w, sizeof(w));
			for (int p = 0; p < w.w * w.h * 3; p++) {
				int c = p % 3, x = p / 3 % w.w, y = p / 3 / w.w;

				assert_int_equal(px.rgbx[(size_t)y * px.pitch + (size_t)(4 * x + c)],
						 expected(&kinds[i], w.x + x, w.y + y, c));
			}
		}
		bytes_release(&b);
	}
	ct_image_decoder_destroy(d);
}

static void test_damage(void **state)
{
	struct bytes b = make(&(struct kind){SPNG_COLOR_TYPE_TRUECOLOR, 8, 0});
	ct_image_decoder *d;

	(void)state;
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &d));
	assert_ok(encoded_decode(d, b.p, b.n));
	/* Everything up to the last byte of pixels is needed; checksum and IEND are not. */
	for (size_t n = 8; n < b.n - 12 - 4 - 4; n++) {
		assert_int_equal(encoded_decode(d, b.p, n), CT_DATA);
		assert_int_equal(strncmp(ct_error_message(), "png-", 4), 0);
	}
	assert_int_equal(encoded_decode(d, b.p, 60), CT_DATA);
	assert_int_equal(strncmp(ct_error_message(), "png-truncated: ", 15), 0);
	b.p[18] = 1; /* height: checksum wrong */
	assert_int_equal(encoded_decode(d, b.p, b.n), CT_DATA);
	ct_image_decoder_destroy(d);
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){.max_pixels = W * H - 1}, &d));
	b.p[18] = 0;
	assert_int_equal(encoded_decode(d, b.p, b.n), CT_DATA);
	assert_int_equal(strncmp(ct_error_message(), "png-dims: 37 x 23 ", 18), 0);
	ct_image_decoder_destroy(d);
	bytes_release(&b);
}

static void check_written(const char *dir, const char *name, const char *starts)
{
	char *path = ct_path_join(dir, name), *file;
	uint8_t *rgb = picture_rgb(W, H);
	ct_image_decoder *d;
	struct ct_image_header h;
	struct ct_pixels px;
	size_t n;

	assert_ok(ct_image_write(path, rgb, W, H));
	assert_ok(ct_file_read(path, 1 << 20, &file, &n));
	assert_memory_equal(file, starts, strlen(starts));
	if (starts[0] == 'P') {
		assert_int_equal(n, strlen(starts) + (size_t)W * H * 3);
		assert_memory_equal(file + strlen(starts), rgb, (size_t)W * H * 3);
	} else {
		assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &d));
		assert_ok(ct_image_open(d, file, n, &h));
		assert_ok(ct_image_decode(d, (struct ct_box){0, 0, W, H}, 0, 0, &px));
		for (int i = 0; i < W * H; i++)
			assert_memory_equal(px.rgbx + (size_t)(i / W) * px.pitch + (size_t)(4 * (i % W)), rgb + 3 * i,
					    3);
		ct_image_decoder_destroy(d);
	}
	ct_free(file);
	ct_free(rgb);
	ct_free(path);
}

static void test_write(void **state)
{
	char *dir = temp_dir();
	uint8_t rgb[3] = {0};

	(void)state;
	check_written(dir, "a.png", "\x89PNG");
	check_written(dir, "a.ppm", "P6\n37 23\n255\n");
	assert_true(ct_image_write("/nowhere/at/all.png", rgb, 1, 1) < 0);
	temp_dir_remove(dir);
}

/* Draws a string into an image of 14 x 9 pixels, and returns its rows as strings of '#' and '.'. */
static char *drawn(int x, int y, int dot, const char *string)
{
	static const uint8_t black[3] = {0};
	uint8_t pixels[9 * 14 * 3 + 3];
	const struct ct_rgb image = {pixels, 14, 9};
	struct ct_str out = {0};

	memset(pixels, 255, sizeof(pixels));
	ct_text_draw(&image, x, y, dot, black, string);
	for (int i = 0; i < 9 * 14; i++) {
		assert_memory_equal(&pixels[3 * i], pixels[3 * i] ? "\xff\xff\xff" : "\0\0\0", 3);
		ct_str_addf(&out, "%s%s", pixels[3 * i] ? "." : "#", i % 14 == 13 ? "\n" : "");
	}
	assert_int_equal(pixels[9 * 14 * 3], 255);
	return out.s;
}

static void test_text(void **state)
{
	char *a = drawn(1, 1, 1, "Ag"), *b = drawn(1, 1, 1, "\303\204g"), *big = drawn(-2, -3, 2, "A"),
	     *odd = drawn(0, 0, 1, "\342\202\254");

	(void)state;
	assert_string_equal(a, "..............\n..###.........\n.#...#........\n.#...#..####..\n.#####.#...#..\n"
			       ".#...#.#...#..\n.#...#..####..\n.#...#.....#..\n........###...\n");
	assert_string_equal(a, b); /* A with an umlaut */
	assert_memory_equal(big + 3 * 15, "########......", 14);
	assert_memory_equal(odd, "#####.........", 14);
	assert_int_equal(ct_text_length("\303\204g\342\202\254"), 3);
	ct_free(a);
	ct_free(b);
	ct_free(big);
	ct_free(odd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
