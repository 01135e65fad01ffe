/* gzip and uncompressed files: valid files, invalid files, and limits on memory use. */
#include "tests/data/fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/files/inflate.h"

/* Content of `file`, which should be n bytes: status of the first call that fails. */
static enum ct_status inflate(struct bytes file, uint8_t *dst, size_t n, uint32_t *crc)
{
	enum ct_status st;
	ct_inflate *f;

	assert_ok(ct_inflate_open_memory(file.p, file.n, "file", &f));
	st = ct_inflate_body(f, dst, n, crc);
	ct_inflate_close(f);
	return st;
}

static void expect(struct bytes file, struct bytes content, enum ct_status want, const char *says)
{
	uint8_t *dst = ct_calloc(content.n, 1);
	uint32_t crc;
	enum ct_status st = inflate(file, dst, content.n, &crc);

	if (st != want || (says && !strstr(ct_error_message(), says)))
		print_error("got %s: %s\nwanted %s: %s\n", ct_status_name(st), ct_error_message(), ct_status_name(want),
			    says ? says : "");
	assert_int_equal(st, want);
	if (says)
		assert_non_null(strstr(ct_error_message(), says));
	if (st == CT_OK)
		assert_memory_equal(dst, content.p, content.n);
	ct_free(dst);
}

static struct bytes slice(struct bytes a, size_t first, size_t n)
{
	return (struct bytes){a.p + first, n};
}

static void test_good(void **state)
{
	struct bytes a = idx_images(20, 9, 11), z = gzip(a), none = {0}, empty = gzip(none),
		     zeros = bytes_copy("\0\0\0\0\0", 5), garbage = bytes_copy("garbage", 7), x;
	uint32_t crc_plain, crc_gzip;
	uint8_t *dst = ct_calloc(a.n, 1);

	(void)state;
	expect(a, a, CT_OK, NULL);
	expect(z, a, CT_OK, NULL);
	x = bytes_join(z, zeros);
	expect(x, a, CT_OK, NULL);
	bytes_release(&x);
	x = bytes_join(z, garbage);
	expect(x, a, CT_OK, NULL);
	bytes_release(&x);
	x = bytes_join(empty, z);
	expect(x, a, CT_OK, NULL);
	bytes_release(&x);
	assert_ok(inflate(a, dst, a.n, &crc_plain));
	assert_ok(inflate(z, dst, a.n, &crc_gzip));
	assert_int_equal(crc_plain, crc_gzip);
	ct_free(dst);
	bytes_release(&a);
	bytes_release(&z);
	bytes_release(&empty);
	bytes_release(&zeros);
	bytes_release(&garbage);
}

/* Cut anywhere, the two halves as two members are the same content with the same checksum; peek sees across the cut. */
static void test_members(void **state)
{
	struct bytes a = idx_images(3, 5, 4);
	uint8_t head[16], *dst = ct_calloc(a.n, 1);
	uint32_t want, crc;

	(void)state;
	assert_ok(inflate(a, dst, a.n, &want));
	for (size_t cut = 0; cut <= a.n; cut++) {
		struct bytes l = gzip(slice(a, 0, cut)), r = gzip(slice(a, cut, a.n - cut)), z = bytes_join(l, r);
		ct_inflate *f;
		size_t got;

		expect(z, a, CT_OK, NULL);
		assert_ok(inflate(z, dst, a.n, &crc));
		assert_int_equal(crc, want);
		assert_ok(ct_inflate_open_memory(z.p, z.n, "file", &f));
		assert_ok(ct_inflate_peek(f, head, sizeof(head), &got));
		assert_int_equal(got, sizeof(head));
		assert_memory_equal(head, a.p, sizeof(head));
		ct_inflate_close(f);
		bytes_release(&l);
		bytes_release(&r);
		bytes_release(&z);
	}
	ct_free(dst);
	bytes_release(&a);
}

/* Optional header fields: extra, name, comment, header checksum flag off; longer than the piece that peek reads. */
static void test_long_header(void **state)
{
	struct bytes a = idx_images(3, 5, 4), z = gzip(a), head = {ct_calloc(30000, 1), 30000}, x;
	ct_inflate *f;
	uint8_t got_bytes[4];
	size_t got;

	(void)state;
	memcpy(head.p, z.p, 10);
	head.p[3] = 0x08 | 0x10;
	memset(head.p + 10, 'n', 20000);
	memset(head.p + 10 + 20001, 'c', 30000 - 20012);
	x = bytes_join(head, slice(z, 10, z.n - 10));
	expect(x, a, CT_OK, NULL);
	assert_ok(ct_inflate_open_memory(x.p, x.n, "file", &f));
	assert_ok(ct_inflate_peek(f, got_bytes, 4, &got));
	assert_int_equal(got, 4);
	assert_memory_equal(got_bytes, a.p, 4);
	ct_inflate_close(f);
	bytes_release(&a);
	bytes_release(&z);
	bytes_release(&head);
	bytes_release(&x);
}

static void test_bad(void **state)
{
	struct bytes a = idx_images(20, 9, 11), z = gzip(a), z2 = bytes_join(z, z), x;

	(void)state;
	expect(a, slice(a, 0, a.n - 1), CT_DATA, "more data than its header declares");
	expect(z, slice(a, 0, a.n - 1), CT_DATA, "more data than its header declares");
	expect(z2, a, CT_DATA, "more data than its header declares");
	x = bytes_join(a, slice(a, 0, 1));
	expect(a, x, CT_DATA, "too short");
	expect(z, x, CT_DATA, "too short");
	bytes_release(&x);
	x = bytes_copy(z.p, z.n);
	x.p[x.n - 1] ^= 1;
	expect(x, a, CT_DATA, "length field");
	x.p[x.n - 1] ^= 1;
	x.p[x.n - 5] ^= 1;
	expect(x, a, CT_DATA, "checksum");
	x.p[x.n - 5] ^= 1;
	x.p[2] = 7;
	expect(x, a, CT_DATA, "damaged");
	x.p[2] = 8;
	x.p[3] = 0xe0;
	expect(x, a, CT_DATA, "damaged");
	bytes_release(&x);
	bytes_release(&a);
	bytes_release(&z);
	bytes_release(&z2);
}

/* Every truncation is noticed; every flipped bit either is, or changes nothing. */
static void test_damage(void **state)
{
	struct bytes a = idx_images(6, 5, 4), z = gzip(a), x = bytes_copy(z.p, z.n);
	uint8_t *dst = ct_calloc(a.n, 1), head[16];
	uint32_t crc;

	(void)state;
	for (size_t n = 0; n < z.n; n++) {
		struct bytes cut = bytes_copy(z.p, n); /* own block: reading past its end is an error that ASan sees */
		ct_inflate *f;
		size_t got;

		assert_int_equal(inflate(cut, dst, a.n, &crc), CT_DATA);
		assert_ok(ct_inflate_open_memory(cut.p, cut.n, "file", &f));
		assert_ok(ct_inflate_peek(f, head, sizeof(head), &got));
		ct_inflate_close(f);
		bytes_release(&cut);
	}
	for (size_t bit = 0; bit < 8 * z.n; bit++) {
		x.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (inflate(x, dst, a.n, &crc) == CT_OK)
			assert_memory_equal(dst, a.p, a.n);
		x.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ct_free(dst);
	bytes_release(&a);
	bytes_release(&z);
	bytes_release(&x);
}

/* 256 MiB of zeros packed into a few hundred KB: refused for the price of what was declared. */
static void test_bomb(void **state)
{
	size_t before, n = (size_t)256 << 20;
	struct bytes big = {ct_calloc(n, 1), n}, small = {big.p, 1000}, bomb = gzip(big), one, many;

	(void)state;
	bytes_release(&big);
	small = (struct bytes){ct_calloc(1000, 1), 1000};
	before = peak_rss_bytes();
	expect(bomb, small, CT_DATA, "more data than its header declares");
	one = gzip(small);
	many = bytes_join(one, bomb);
	expect(many, small, CT_DATA, "more data than its header declares");
	assert_true(peak_rss_bytes() - before < (size_t)8 << 20);
	bytes_release(&bomb);
	bytes_release(&small);
	bytes_release(&one);
	bytes_release(&many);
}

static void test_files(void **state)
{
	char *dir = temp_dir(), *plain = ct_path_join(dir, "plain"), *packed = ct_path_join(dir, "packed"),
	     *pipe = ct_path_join(dir, "pipe"), *none = ct_path_join(dir, "none/none"),
	     *padded = ct_path_join(dir, "padded");
	struct bytes a = idx_images(20, 9, 11);
	const char *paths[] = {plain, packed};
	uint8_t *dst = ct_calloc(a.n, 1), *much = ct_calloc(4 << 20, 1);
	uint32_t crc[2];
	ct_inflate *f;

	(void)state;
	assert_ok(ct_file_replace(plain, a.p, a.n));
	assert_ok(ct_deflate_write(packed, a.p, a.n, NULL));
	for (int i = 0; i < 2; i++) {
		assert_ok(ct_inflate_open(paths[i], &f));
		assert_string_equal(ct_inflate_name(f), paths[i]);
		assert_true(ct_inflate_max_content(f) >= a.n);
		assert_int_equal(ct_inflate_max_content(f) == a.n, i == 0); /* exact when plain */
		memset(dst, 0, a.n);
		assert_ok(ct_inflate_body(f, dst, a.n, &crc[i]));
		assert_memory_equal(dst, a.p, a.n);
		ct_inflate_close(f);
	}
	assert_int_equal(crc[0], crc[1]);
	/* A file far larger than its content can need is not read into memory. */
	memcpy(much, "\x1f\x8b", 2);
	assert_ok(ct_file_replace(padded, much, 4 << 20));
	assert_ok(ct_inflate_open(padded, &f));
	assert_int_equal(ct_inflate_body(f, dst, a.n, crc), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "far more"));
	ct_inflate_close(f);

	assert_int_equal(ct_inflate_open(none, &f), CT_NOT_FOUND);
	assert_non_null(strstr(ct_error_message(), none));
	assert_int_equal(ct_inflate_open(dir, &f), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "not a regular file but a directory"));
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(ct_inflate_open(pipe, &f), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "FIFO"));

	ct_free(dst);
	ct_free(much);
	bytes_release(&a);
	ct_free(plain);
	ct_free(packed);
	ct_free(pipe);
	ct_free(none);
	ct_free(padded);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bomb), /* first: it looks at the peak of memory */
		cmocka_unit_test(test_good), cmocka_unit_test(test_members), cmocka_unit_test(test_long_header),
		cmocka_unit_test(test_bad),  cmocka_unit_test(test_damage),  cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
