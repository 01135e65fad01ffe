/* Packing that changes images: reducing their size and adding restart markers. */
#include "tests/data/jpeg_make.h"

#include <string.h>

#include "base/file.h"
#include "data/image/image.h"
#include "tests/data/pack_fixture.h"

/* Files get restart markers where they gain by it, after being made smaller; what cannot be read is kept as it is. */
static void test_seekable(void **state)
{
	char *dir = temp_dir(), *src = ct_path_join(dir, "src");
	struct bytes large = jpeg_make(&(struct jpeg_spec){.w = 300, .h = 200, .hs = 2, .vs = 2});
	struct ct_bytes b = {0};
	struct ct_pack_report r;
	uint8_t *made;
	ct_dataset *d;
	size_t n;

	(void)state;
	pack_write_file(src, "c/a-large.jpg", large.p, large.n);
	pack_write_file(src, "c/b-cut.jpg", large.p, large.n / 2);
	pack_ok(dir, src, "t-%d.tar", (struct ct_pack_opts){.seekable = true}, &r);
	d = pack_open_set("shards", ".", r.shards);
	assert_ok(ct_image_make_seekable(large.p, large.n, &made, &n));
	assert_ok(ct_dataset_fetch(d, 0, &b, NULL));
	assert_int_equal(b.n, n);
	assert_memory_equal(b.data, made, n);
	assert_ok(ct_dataset_fetch(d, 1, &b, NULL));
	assert_int_equal(b.n, large.n / 2);
	assert_memory_equal(b.data, large.p, large.n / 2);
	ct_dataset_close(d);
	ct_pack_report_release(&r);
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){0}, CT_USAGE, "other options");

	pack_ok(dir, src, "s-%d.tar", (struct ct_pack_opts){.seekable = true, .short_side = 120}, &r);
	d = pack_open_set("shards", ".", r.shards);
	assert_ok(ct_dataset_fetch(d, 0, &b, NULL));
	assert_non_null(memmem(b.data, b.n, "\xff\xdd\0\4\0", 5)); /* the interval of restart markers */
	ct_dataset_close(d);
	ct_pack_report_release(&r);
	bytes_release(&large);
	ct_free(made);
	ct_free(b.data);
	ct_free(src);
	temp_dir_remove(dir);
}

/* Larger images get the short side and keep their shape; others keep their bytes. */
static void test_short_side(void **state)
{
	char *dir = temp_dir(), *src = ct_path_join(dir, "src");
	struct bytes small = jpeg_make(&(struct jpeg_spec){.w = 64, .h = 32});
	const struct ct_image_opts image = {0};
	struct ct_image_header h;
	struct ct_bytes b = {0};
	struct ct_pack_report r;
	ct_image_decoder *dec;
	ct_dataset *d;

	(void)state;
	pack_write_image(src, "c/large.jpg", 300, 200);
	pack_write_file(src, "c/small.jpg", small.p, small.n);
	pack_ok(dir, src, "t-%d.tar", (struct ct_pack_opts){.short_side = 32, .quality = 75}, &r);
	d = pack_open_set("shards", ".", r.shards);
	assert_ok(ct_image_decoder_create(&image, &dec));
	assert_ok(ct_dataset_fetch(d, 0, &b, NULL));
	assert_ok(ct_image_open(dec, b.data, b.n, &h));
	assert_int_equal(h.w, 48);
	assert_int_equal(h.h, 32);
	assert_ok(ct_dataset_fetch(d, 1, &b, NULL));
	assert_int_equal(b.n, small.n);
	assert_memory_equal(b.data, small.p, small.n);
	ct_image_decoder_destroy(dec);
	ct_dataset_close(d);
	ct_free(b.data);
	bytes_release(&small);
	ct_pack_report_release(&r);
	ct_free(src);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_side), cmocka_unit_test(test_seekable)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
