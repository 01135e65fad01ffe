/* CIFAR files. Synthetic files test the layout; ../shared/data has real and malformed files. */
#include "tests/data/fixture.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash/sha256.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, PIXELS = 3 * PLANE };

/* n records: pixel i of plane c of record k, and labels k % classes. */
static uint8_t pixel(uint32_t k, int c, int i)
{
	return (uint8_t)(31 * k + 101 * (uint32_t)c + 7 * (uint32_t)i + (uint32_t)i / 256);
}

static void write_records(const char *dir, const char *name, uint32_t n, size_t n_labels, int classes)
{
	size_t record = n_labels + PIXELS;
	uint8_t *p = ct_calloc(n, record);
	char *path = ct_path_join(dir, name);

	for (uint32_t k = 0; k < n; k++) {
		uint8_t *r = p + k * record;

		r[0] = 19;
		r[n_labels - 1] = (uint8_t)(k % (uint32_t)classes);
		for (int i = 0; i < PIXELS; i++)
			r[n_labels + (size_t)i] = pixel(k, i / PLANE, i % PLANE);
	}
	assert_ok(ct_file_replace(path, p, n * record));
	ct_free(path);
	ct_free(p);
}

static void write_text(const char *dir, const char *name, const char *text)
{
	char *path = ct_path_join(dir, name);

	assert_ok(ct_file_replace(path, text, strlen(text)));
	ct_free(path);
}

static void check_set(const ct_dataset *d, uint32_t n, uint32_t again_at, int classes)
{
	assert_int_equal(ct_dataset_info(d)->n, n);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t in_file = k < again_at ? k : k - again_at;
		uint8_t x[PIXELS];
		int32_t label;

		assert_ok(ct_dataset_read(d, k, x, &label, NULL));
		assert_int_equal(label, in_file % (uint32_t)classes);
		for (int i = 0; i < PIXELS; i++)
			assert_int_equal(x[i], pixel(in_file, i % 3, i / 3));
	}
}

static void test_layout(void **state)
{
	char *dir = temp_dir(), *sub = ct_path_join(dir, "cifar-100-binary"), one[65], two[65];
	struct ct_dataset_spec spec = {.name = "cifar10", .dir = dir, .train = true};
	const struct ct_dataset_info *info;
	ct_dataset *d;

	(void)state;
	write_records(dir, "data_batch_1.bin", 23, 1, 10);
	write_records(dir, "data_batch_4.bin", 12, 1, 10);
	write_records(dir, "test_batch.bin", 5, 1, 10);
	write_text(dir, "batches.meta.txt",
		   "airplane\nautomobile\nbird\ncat\r\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
	assert_ok(ct_dataset_open(&spec, &d));
	check_set(d, 35, 23, 10);
	info = ct_dataset_info(d);
	assert_int_equal(info->kind, CT_SAMPLE_U8_HWC);
	assert_int_equal(info->c * 10000 + info->h * 100 + info->w, 33232);
	assert_true(info->mean[0] > 0.4913f && info->mean[0] < 0.4915f && info->std[2] > 0.261f);
	assert_string_equal(ct_dataset_class_name(d, 3), "cat");
	assert_string_equal(ct_dataset_class_name(d, 9), "truck");
	assert_null(ct_dataset_class_name(d, 10));
	ct_dataset_digest(d, one);
	ct_dataset_close(d);

	spec.train = false;
	assert_ok(ct_dataset_open(&spec, &d));
	check_set(d, 5, 5, 10);
	ct_dataset_close(d);
	spec.split = "data_batch_4.bin test_batch.bin";
	assert_ok(ct_dataset_open(&spec, &d));
	check_set(d, 17, 12, 10);
	ct_dataset_digest(d, two);
	assert_string_not_equal(one, two);
	ct_dataset_close(d);

	/* The fine label of two, in the directory of the archive. */
	assert_ok(ct_dir_make(sub));
	write_records(sub, "train.bin", 130, 2, 100);
	spec = (struct ct_dataset_spec){.name = "cifar100", .dir = dir, .split = "train"};
	assert_ok(ct_dataset_open(&spec, &d));
	check_set(d, 130, 130, 100);
	assert_int_equal(ct_dataset_info(d)->n_classes, 100);
	assert_null(ct_dataset_class_name(d, 3));
	ct_dataset_close(d);
	ct_free(sub);
	temp_dir_remove(dir);
}

static void expect(const struct ct_dataset_spec *spec, enum ct_status want, const char *says, const char *hint)
{
	ct_dataset *d;
	enum ct_status st = ct_dataset_open(spec, &d);

	if (st != want || !strstr(ct_error_message(), says) || !strstr(ct_error_hint_text(), hint))
		print_error("%s: %s (%s)\n", ct_status_name(st), ct_error_message(), ct_error_hint_text());
	assert_int_equal(st, want);
	assert_non_null(strstr(ct_error_message(), says));
	assert_non_null(strstr(ct_error_hint_text(), hint));
}

static void test_refused(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "cifar10", .dir = dir, .train = true};

	(void)state;
	expect(&spec, CT_NOT_FOUND, "cannot find the images of cifar10", "cs.toronto.edu");
	write_text(dir, "data_batch_1", "\x80\x02}");
	expect(&spec, CT_NOT_FOUND, "data_batch_1.bin", "python version");
	write_text(dir, "cifar-10-binary.tar.gz", "x");
	expect(&spec, CT_NOT_FOUND, "data_batch_1.bin", "tar -xzf");
	write_text(dir, "data_batch_1.bin", "\x80\x02}");
	expect(&spec, CT_DATA, "python version", "binary version");
	write_text(dir, "data_batch_1.bin", "");
	expect(&spec, CT_DATA, "is empty", "");
	write_text(dir, "data_batch_1.bin", "abc");
	expect(&spec, CT_DATA, "its size, 3 bytes, is not a multiple of the record size 3073", "download it again");
	write_records(dir, "data_batch_1.bin", 12, 1, 11);
	expect(&spec, CT_DATA, "label 10 of record 10 is out of range", "download it again");
	write_records(dir, "data_batch_1.bin", 12, 1, 10);
	spec.max_bytes = 3073 * 11;
	expect(&spec, CT_DATA, "12 samples, which need more than 0 MiB", "");
	spec.max_bytes = 3073 * 12;
	spec.h = 28;
	expect(&spec, CT_CONFIG, "3 x 32 x 32", "");
	spec.h = 0;
	spec.split = "data_batch_7.bin";
	expect(&spec, CT_NOT_FOUND, "data_batch_7.bin", "");
	temp_dir_remove(dir);
}

static void test_no_memory(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "cifar10", .dir = dir, .train = true};
	enum ct_status st = CT_NOMEM;
	ct_dataset *d;
	uint64_t n;

	(void)state;
	write_records(dir, "data_batch_1.bin", 3, 1, 10);
	for (n = 1; n < 200 && st != CT_OK; n++) {
		ct_mem_fail_after(n);
		st = ct_dataset_open(&spec, &d);
		ct_mem_fail_after(0);
	}
	assert_ok(st);
	assert_in_range(n, 8, 199);
	ct_dataset_close(d);
	temp_dir_remove(dir);
}

/* What INDEX.tsv says of each file. */
static void test_bad_files(void **state)
{
	static const char *const tags[][2] = {{"size", "not a multiple of the record"},
					      {"label-range", "out of range"}};
	char *bad = shared_path("data/bad"), *index, *text, *line, *rest;
	size_t len;
	int n = 0;

	(void)state;
	if (!bad)
		skip();
	index = ct_path_join(bad, "INDEX.tsv");
	assert_ok(ct_file_read(index, 1 << 20, &text, &len));
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *file = strsep(&line, "\t"), *verdict = strsep(&line, "\t"), *tag = strsep(&line, "\t"), *path;
		struct ct_dataset_spec spec = {.name = "cifar10"};
		ct_dataset *d;

		if (!tag || strncmp(file, "cifar/", 6) != 0)
			continue;
		path = ct_path_join(bad, file);
		spec.split = path;
		if (strcmp(verdict, "ok") == 0) {
			assert_ok(ct_dataset_open(&spec, &d));
			assert_int_equal(ct_dataset_info(d)->n, 8);
			ct_dataset_close(d);
		} else {
			const char *says = NULL;

			for (size_t i = 0; i < CT_ARRAY_LEN(tags); i++)
				says = strcmp(tags[i][0], tag) == 0 ? tags[i][1] : says;
			assert_non_null(says);
			expect(&spec, CT_DATA, says, strstr(file, "pickle") ? "binary version" : "");
		}
		ct_free(path);
		n++;
	}
	assert_in_range(n, 4, 1000);
	ct_free(text);
	ct_free(index);
	ct_free(bad);
}

/* Interleaved pixels and labels against digests made with numpy. */
static void test_real(void **state)
{
	char *dir = shared_path("data/cifar-10-batches-bin"), hex[CT_SHA256_HEX];
	static const char *const want[2] = {"6eb9c67ac98d80b11bfbb51507680f49b0ac33497fc5003306510273b33ce9c4",
					    "894201409ec157e32a22e1b978adc7aa49d75c694f53bb05a3c58537c64e8ef9"};

	(void)state;
	if (!dir)
		skip();
	for (int train = 0; train < 2; train++) {
		struct ct_dataset_spec spec = {.name = "cifar10", .dir = dir, .train = train};
		struct ct_sha256 h;
		ct_dataset *d;

		assert_ok(ct_dataset_open(&spec, &d));
		ct_sha256_init(&h);
		for (uint32_t i = 0; i < 10000; i++) {
			uint8_t x[PIXELS + 1];
			int32_t label;

			assert_ok(ct_dataset_read(d, i, x, &label, NULL));
			x[PIXELS] = (uint8_t)label;
			ct_sha256_update(&h, x, sizeof(x));
		}
		ct_sha256_final_hex(&h, hex);
		assert_string_equal(hex, want[train]);
		assert_string_equal(ct_dataset_class_name(d, 0), "airplane");
		ct_dataset_close(d);
	}
	ct_free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),    cmocka_unit_test(test_refused), cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_bad_files), cmocka_unit_test(test_real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
