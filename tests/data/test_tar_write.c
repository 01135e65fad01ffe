/* The tar writer: the system's tar can read its archives, the bytes are always the same, and names may have any
 * length. */
#include "tests/data/fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/shards/tar_write.h"

static char *long_name(size_t dir, size_t name)
{
	char *s = ct_calloc(dir + name + 2, 1);

	assert_non_null(s);
	memset(s, 'd', dir);
	if (dir)
		s[dir] = '/';
	memset(s + dir + (dir > 0), 'n', name);
	return s;
}

static uint64_t write_archive(const char *path, char *const *names, size_t n, const uint8_t *data, uint64_t *offsets)
{
	ct_tar_writer *w;
	uint64_t bytes;

	assert_ok(ct_tar_writer_open(path, &w));
	for (size_t i = 0; i < n; i++)
		assert_ok(ct_tar_writer_add(w, names[i], data, i * 700, &offsets[i]));
	assert_ok(ct_tar_writer_finish(w, &bytes));
	ct_tar_writer_close(w);
	return bytes;
}

/* `tar -tvf`: what GNU tar or bsdtar make of it. */
static void check_listing(const char *path, char *const *names, size_t n)
{
	char *command = ct_strfmt("LC_ALL=C tar -tf '%s' 2>&1", path), line[8192];
	FILE *f = popen(command, "r");

	assert_non_null(f);
	for (size_t i = 0; i < n; i++) {
		assert_non_null(fgets(line, sizeof(line), f));
		line[strcspn(line, "\n")] = '\0';
		assert_string_equal(line, names[i]);
	}
	assert_null(fgets(line, sizeof(line), f));
	assert_int_equal(pclose(f), 0);
	ct_free(command);
}

static void test_names(void **state)
{
	/* Around the ends of name and prefix, and of the digits that count a PAX record. */
	static const size_t shapes[][2] = {{0, 1},      {0, 99},  {0, 100}, {0, 101}, {155, 100}, {156, 100},
					   {154, 101},  {0, 80},  {60, 39}, {60, 40}, {1, 100},   {1, 101},
					   {200, 2000}, {0, 990}, {0, 991}, {0, 992}, {0, 4095}};
	char *dir = temp_dir(), *path = ct_path_join(dir, "a.tar"), *names[CT_ARRAY_LEN(shapes)];
	uint64_t offsets[CT_ARRAY_LEN(shapes)], bytes;
	uint8_t *data = ct_calloc(700, CT_ARRAY_LEN(shapes));
	char *text;
	size_t len;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < 700 * CT_ARRAY_LEN(shapes); i++)
		data[i] = (uint8_t)(i * 31 + i / 256);
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++)
		names[i] = long_name(shapes[i][0], shapes[i][1]);
	bytes = write_archive(path, names, CT_ARRAY_LEN(shapes), data, offsets);
	assert_ok(ct_file_read(path, (size_t)1 << 24, &text, &len));
	assert_int_equal(bytes, len);
	assert_int_equal(len % 10240, 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		assert_int_equal(offsets[i] % 512, 0);
		assert_memory_equal(text + offsets[i], data, i * 700);
	}
	/* Only names that fit neither way get a PAX record: the first member does not. */
	assert_int_equal(offsets[0], 512);
	check_listing(path, names, CT_ARRAY_LEN(shapes));
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++)
		ct_free(names[i]);
	ct_free(text);
	ct_free(data);
	ct_free(path);
	temp_dir_remove(dir);
}

static void test_large_members(void **state)
{
	char *dir = temp_dir(), *path = ct_path_join(dir, "a.tar"), *text;
	size_t n = ((size_t)3 << 20) + 17, len;
	uint8_t *data = ct_calloc(n, 1);
	uint64_t at[3], bytes;
	ct_tar_writer *w;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 7 + i / 1000);
	assert_ok(ct_tar_writer_open(path, &w));
	assert_ok(ct_tar_writer_add(w, "small", data, 1000, &at[0]));
	assert_ok(ct_tar_writer_add(w, "large", data, n, &at[1]));
	assert_ok(ct_tar_writer_add(w, "empty", data, 0, &at[2]));
	assert_ok(ct_tar_writer_finish(w, &bytes));
	ct_tar_writer_close(w);
	assert_ok(ct_file_read(path, (size_t)1 << 24, &text, &len));
	assert_memory_equal(text + at[0], data, 1000);
	assert_memory_equal(text + at[1], data, n);
	/* Nothing of user or day is in it. */
	assert_memory_equal(text + 100, "0000644\0000000000\0000000000\00000000001750\00000000000000\0", 48);
	ct_free(text);
	ct_free(data);
	ct_free(path);
	temp_dir_remove(dir);
}

static void test_what_cannot_be(void **state)
{
	char *dir = temp_dir(), *path = ct_path_join(dir, "no/a.tar"), *name = long_name(0, 4096);
	ct_tar_writer *w;

	(void)state;
	assert_int_equal(ct_tar_writer_open(path, &w), CT_IO);
	ct_free(path);
	path = ct_path_join(dir, "a.tar");
	assert_ok(ct_tar_writer_open(path, &w));
	assert_int_equal(ct_tar_writer_add(w, "", "x", 1, NULL), CT_DATA);
	assert_int_equal(ct_tar_writer_add(w, name, "x", 1, NULL), CT_DATA);
	ct_tar_writer_close(w);
	/* A full disk. */
	assert_ok(ct_tar_writer_open("/dev/full", &w));
	assert_ok(ct_tar_writer_add(w, "x", "x", 1, NULL));
	assert_int_equal(ct_tar_writer_finish(w, &(uint64_t){0}), CT_IO);
	assert_true(strlen(ct_error_hint_text()) > 0);
	ct_tar_writer_close(w);
	ct_free(name);
	ct_free(path);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_large_members),
		cmocka_unit_test(test_what_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
