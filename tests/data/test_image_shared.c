/* The malformed images of ../shared/data/bad/jpeg must give the results listed in INDEX.tsv. Boxes of the real images
 * in the sample shards are compared with full decodes. The test is skipped if the directory is missing. */
#include "tests/data/encoded.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/image/image.h"
#include "tests/data/windows.h"

#define MAX_FILE ((size_t)64 << 20)

static void check_line(ct_image_decoder *d, const char *bad, const char *file, const char *verdict, const char *tag)
{
	char *path = ct_path_join(bad, file), *p;
	enum ct_status st;
	size_t n;

	assert_ok(ct_file_read(path, MAX_FILE, &p, &n));
	st = encoded_decode(d, p, n);
	print_message("%s: %s\n", file, st < 0 ? ct_error_message() : ct_image_warning(d) ? ct_image_warning(d) : "ok");
	/* PNG files are read under any name; the one that is too large fails as such. */
	if (strcmp(tag, "format-png") == 0) {
		verdict = strstr(file, "huge") ? "skip" : "ok";
		tag = "png-dims";
	}
	if (strcmp(verdict, "skip") == 0) {
		assert_int_equal(st, CT_DATA);
		assert_memory_equal(ct_error_message(), tag, strlen(tag));
		assert_int_equal(ct_error_message()[strlen(tag)], ':');
	} else {
		assert_ok(st);
		assert_int_equal(ct_image_warning(d) != NULL, strcmp(verdict, "warn") == 0);
	}
	ct_free(p);
	ct_free(path);
}

static void test_bad_files(void **state)
{
	char *bad = shared_path("data/bad"), *index, *text, *line, *rest;
	size_t before = peak_rss_bytes(), len;
	ct_image_decoder *d;
	int n = 0;

	(void)state;
	if (!bad)
		skip();
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &d));
	index = ct_path_join(bad, "INDEX.tsv");
	assert_ok(ct_file_read(index, 1 << 20, &text, &len));
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *file = strsep(&line, "\t"), *verdict = strsep(&line, "\t"), *tag = strsep(&line, "\t");

		if (!tag || strncmp(file, "jpeg/", 5) != 0)
			continue;
		check_line(d, bad, file, verdict, tag);
		n++;
	}
	assert_in_range(n, 41, 1000);
	/* Two of them declare 10 GB. */
	assert_true(peak_rss_bytes() - before < (size_t)64 << 20);
	ct_image_decoder_destroy(d);
	ct_free(text);
	ct_free(index);
	ct_free(bad);
}

/* Random windows of the file and of its seekable copy against the whole image. */
static void check_window(ct_image_decoder *whole, ct_image_decoder *part, const uint8_t *p, size_t n,
			 struct ct_rng *rng)
{
	struct ct_image_header h;
	struct ct_pixels a, b;
	size_t n_made;
	uint8_t *made;

	assert_ok(ct_image_make_seekable(p, n, &made, &n_made));
	assert_ok(ct_image_open(whole, p, n, &h));
	assert_ok(ct_image_decode(whole, (struct ct_box){0, 0, h.w, h.h}, 0, 0, &a));
	assert_true(made || (h.w <= 96 && h.h <= 96) || h.components == 4);
	for (int i = 0; i < 6; i++) {
		struct ct_box w = windows_random(rng, h.w, h.h);

		assert_ok(i % 2 && made ? ct_image_open(part, made, n_made, &h) : ct_image_open(part, p, n, &h));
		assert_ok(ct_image_decode(part, w, 0, 0, &b));
		for (int at = 0; at < w.w * w.h; at++) {
			int x = at % w.w, y = at / w.w;
			const uint8_t *q = a.rgbx + (size_t)(w.y + y) * a.pitch + (size_t)(w.x + x) * 4;

			if (memcmp(b.rgbx + (size_t)y * b.pitch + 4 * (size_t)x, q, 3) != 0)
				fail_msg("pixel %d, %d of window %d %d %d %d", x, y, w.x, w.y, w.w, w.h);
		}
	}
	ct_free(made);
}

/* The JPEG members of a plain tar. */
static int check_shard(const char *tar, size_t n, ct_image_decoder *whole, ct_image_decoder *part, struct ct_rng *rng)
{
	int images = 0;

	for (size_t at = 0; at + 512 <= n && tar[at];) {
		size_t size = strtoul(tar + at + 124, NULL, 8);
		const uint8_t *p = (const uint8_t *)tar + at + 512;

		assert_true(size <= n - at - 512);
		if (size > 2 && p[0] == 0xff && p[1] == 0xd8) {
			check_window(whole, part, p, size, rng);
			images++;
		}
		at += 512 + (size + 511) / 512 * 512;
	}
	return images;
}

static void test_real_windows(void **state)
{
	char *dir = shared_path("data/imagenet-wds"), **names;
	ct_image_decoder *whole, *part;
	struct ct_rng rng;
	int images = 0;
	size_t n_names;

	(void)state;
	if (!dir)
		skip();
	ct_rng_init(&rng, 6, CT_RNG_TEST, 0, 0);
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &whole));
	assert_ok(ct_image_decoder_create(&(struct ct_image_opts){0}, &part));
	assert_ok(ct_dir_list(dir, &names, &n_names));
	for (size_t i = 0; i < n_names; i++) {
		char *path = ct_path_join(dir, names[i]), *tar;
		size_t n;

		if (strstr(names[i], ".tar")) {
			assert_ok(ct_file_read(path, MAX_FILE, &tar, &n));
			images += check_shard(tar, n, whole, part, &rng);
			ct_free(tar);
		}
		ct_free(path);
	}
	assert_int_equal(images, 400);
	ct_dir_list_free(names, n_names);
	ct_image_decoder_destroy(whole);
	ct_image_decoder_destroy(part);
	ct_free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_real_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
