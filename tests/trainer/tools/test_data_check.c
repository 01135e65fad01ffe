/* `ctrain data check`: which samples are reported and in what order, for any number of threads; both forms of the
 * report; the progress line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/run/metrics/ticker.h"
#include "trainer/tools/dataset/data_check.h"

static void write_file(const char *dir, const char *name, const void *p, size_t n)
{
	char *path = ct_path_join(dir, name), *folder = ct_path_dir(path);

	assert_int_equal(ct_dir_make(folder), CT_OK);
	assert_int_equal(ct_file_replace(path, p, n), CT_OK);
	ct_free(folder);
	ct_free(path);
}

/* Ten images of a class; i % 3 == 1: cut off, i == 5: text. */
static void make_folder(const char *dir)
{
	uint8_t rgb[48 * 40 * 3], *jpeg;
	char name[32];
	size_t n;

	for (size_t i = 0; i < sizeof(rgb); i++)
		rgb[i] = (uint8_t)(i * i / 97);
	assert_int_equal(ct_image_encode_jpeg(rgb, 48, 40, 80, &jpeg, &n), CT_OK);
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "train/c/%d.jpg", i);
		if (i == 5)
			write_file(dir, name, "no image", 8);
		else
			write_file(dir, name, jpeg, i % 3 == 1 ? n / 2 : n);
	}
	ct_free(jpeg);
}

static void count(void *user, uint64_t done, uint64_t total, size_t bad)
{
	uint64_t *calls = user;

	(*calls)++;
	assert_int_equal(done, *calls);
	assert_int_equal(total, 10);
	assert_true(bad <= 4);
}

static void check(const ct_dataset *d, int threads, struct ct_data_findings *f)
{
	uint64_t calls = 0;
	struct ct_data_check c = {.set = "train", .data = d, .threads = threads, .progress = count, .user = &calls};

	assert_int_equal(ct_data_check(&c, f), CT_OK);
	assert_int_equal(calls, 10);
}

static void test_findings(void **state)
{
	static const int bad[] = {1, 4, 5, 7};
	const char *dir = tmpdir;
	struct ct_dataset_spec spec = {.name = "imagefolder", .dir = dir, .train = true};
	struct ct_str one = {0}, many = {0}, json = {0};
	struct ct_data_findings f = {0};
	ct_dataset *d;
	char key[16];

	(void)state;
	make_folder(dir);
	assert_int_equal(ct_dataset_open(&spec, &d), CT_OK);
	check(d, 1, &f);
	assert_int_equal(f.n, 4);
	assert_int_equal(f.counts[CT_FINDING_BAD], 4);
	for (size_t i = 0; i < f.n; i++) {
		snprintf(key, sizeof(key), "c/%d.jpg", bad[i]);
		assert_int_equal(f.v[i].sample, bad[i]);
		assert_string_equal(f.v[i].key, key);
		assert_non_null(strstr(f.v[i].where, key));
		assert_int_equal(f.v[i].reason[strlen(f.v[i].tag)], ':');
	}
	/* The commonest tag first. */
	assert_int_equal(f.n_tags, 2);
	assert_int_equal(f.tags[0].n, 3);
	assert_string_equal(f.tags[0].tag, f.v[0].tag);
	assert_int_equal(f.tags[1].n, 1);
	assert_int_equal(ct_data_findings_write(&f, false, &one), CT_OK);
	assert_int_equal(ct_data_findings_write(&f, true, &json), CT_OK);
	ct_data_findings_release(&f);
	check(d, 4, &f);
	assert_int_equal(ct_data_findings_write(&f, false, &many), CT_OK);
	assert_string_equal(ct_str_text(&one), ct_str_text(&many));
	assert_int_equal(strncmp(many.s, "set\tkind\tsample\t", 16), 0);
	for (const char *line = ct_str_text(&json); *line;) {
		size_t len = strcspn(line, "\n");
		const char *text;
		ct_json *j;

		assert_int_equal(ct_json_parse(line, len, "report", &j), CT_OK);
		assert_int_equal(ct_json_get_str(j, "kind", &text), CT_OK);
		assert_string_equal(text, "bad");
		ct_json_destroy(j);
		line += len + 1;
	}
	ct_data_findings_release(&f);
	ct_str_release(&one);
	ct_str_release(&many);
	ct_str_release(&json);
	ct_dataset_close(d);
}

/* Pixels that lie in memory are read too, and none is wrong. */
static void test_raw(void **state)
{
	struct ct_dataset_spec spec = {
		.name = "synthetic", .n = 10, .c = 1, .h = 8, .w = 8, .n_classes = 3, .train = true};
	struct ct_data_findings f = {0};
	ct_dataset *d;

	(void)state;
	assert_int_equal(ct_dataset_open(&spec, &d), CT_OK);
	check(d, 2, &f);
	assert_int_equal(f.n, 0);
	ct_data_findings_release(&f);
	ct_dataset_close(d);
}

static void test_line(void **state)
{
	char line[128];

	(void)state;
	ct_ticker_line("checking train", 250, 1000, 2, "3 bad", 100, line, sizeof(line));
	assert_string_equal(line, "checking train  250/1000 (25%)  125/s  6.0s left  3 bad");
	ct_ticker_line("packing", 0, 1000, 0, NULL, 100, line, sizeof(line));
	assert_string_equal(line, "packing  0/1000 (0%)  0.0/s  ? left");
	ct_ticker_line("packing", 0, 0, 0, NULL, 20, line, sizeof(line));
	assert_int_equal(strlen(line), 19);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_findings, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test(test_raw),
		cmocka_unit_test(test_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
