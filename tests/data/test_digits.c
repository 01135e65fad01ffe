/* Drawn digits are the same for any number of threads and on any machine, can be read as MNIST, and can be
 * distinguished from real data. */
#include "tests/data/fixture.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/hash/sha256.h"
#include "data/digits/digits.h"
#include "data/files/inflate.h"

enum { PIXELS = 784 };

static const char *const files[] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
				    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};

static char *write_digits(uint32_t n_train, uint32_t n_test, uint64_t seed, int threads)
{
	char *dir = temp_dir(), *sub = ct_path_join(dir, "a/b");
	struct ct_digits_opts o = {.dir = sub, .n_train = n_train, .n_test = n_test, .seed = seed, .threads = threads};

	assert_ok(ct_digits_write(&o));
	ct_free(sub);
	return dir;
}

static void check_same(const char *a, const char *b, bool same)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		char *pa = ct_strfmt("%s/a/b/%s", a, files[i]), *pb = ct_strfmt("%s/a/b/%s", b, files[i]), *da, *db;
		size_t na, nb;

		assert_ok(ct_file_read(pa, 1 << 30, &da, &na));
		assert_ok(ct_file_read(pb, 1 << 30, &db, &nb));
		assert_int_equal(na == nb && memcmp(da, db, na) == 0, same);
		ct_free(da);
		ct_free(db);
		ct_free(pa);
		ct_free(pb);
	}
}

static void test_threads(void **state)
{
	char *one = write_digits(3000, 700, 5, 1), *many = write_digits(3000, 700, 5, 4),
	     *other = write_digits(3000, 700, 6, 0);

	(void)state;
	check_same(one, many, true);
	check_same(one, other, false);
	temp_dir_remove(one);
	temp_dir_remove(many);
	temp_dir_remove(other);
}

/* Drawing is arithmetic without libm's transcendental functions: these bytes hold everywhere. */
static void test_golden(void **state)
{
	char hex[CT_SHA256_HEX];
	struct ct_sha256 h;

	(void)state;
	ct_sha256_init(&h);
	for (uint32_t i = 0; i < 2000; i++) {
		uint8_t image[PIXELS];

		ct_digits_draw(1, i, (int)(i % 10), image);
		ct_sha256_update(&h, image, sizeof(image));
	}
	ct_sha256_final_hex(&h, hex);
	assert_string_equal(hex, "503acc814bae2f03e8f8c718e34b1983bdba1856c63c48f97280beaee6f2bb90");
}

/* Ink stays inside the frame, and there is neither too little nor too much of it. */
static void test_ink(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5000; i++) {
		uint8_t image[PIXELS];
		int ink = 0, rim = 0;

		ct_digits_draw(2, i, (int)(i % 10), image);
		for (int k = 0; k < PIXELS; k++) {
			ink += image[k] > 100;
			rim += (k < 28 || k >= PIXELS - 28 || k % 28 == 0 || k % 28 == 27) && image[k] > 100;
		}
		assert_in_range(ink, 12, 330);
		assert_in_range(rim, 0, 12);
	}
}

static int nearest(double (*mean)[PIXELS], const double *n, const uint8_t *x)
{
	double best = INFINITY;
	int guess = 0;

	for (int c = 0; c < 10; c++) {
		double dist = 0;

		for (int k = 0; k < PIXELS; k++)
			dist += (x[k] - mean[c][k] / n[c]) * (x[k] - mean[c][k] / n[c]);
		if (dist < best) {
			best = dist;
			guess = c;
		}
	}
	return guess;
}

/* Read back as "mnist". Class means get most of the test set right (MNIST: 82 %), and not all of it. */
static void test_read_back(void **state)
{
	char *dir = write_digits(6000, 1000, 1, 2), *sub = ct_path_join(dir, "a/b");
	struct ct_dataset_spec spec = {.name = "mnist", .dir = sub, .split = "train"};

	double (*mean)[PIXELS] = ct_calloc(10, sizeof(*mean)), n[10] = {0};
	uint8_t x[PIXELS];
	int32_t label;
	ct_dataset *d;
	int right = 0;

	(void)state;
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 6000);
	for (uint32_t i = 0; i < 6000; i++) {
		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		n[label]++;
		for (int k = 0; k < PIXELS; k++)
			mean[label][k] += x[k];
	}
	for (int c = 0; c < 10; c++)
		assert_in_range((int)n[c], 500, 700);
	ct_dataset_close(d);
	spec.split = "t10k";
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 1000);
	for (uint32_t i = 0; i < 1000; i++) {
		uint8_t of_training[PIXELS];

		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		ct_digits_draw(1, i, label, of_training);
		assert_memory_not_equal(x, of_training, PIXELS);
		right += nearest(mean, n, x) == label;
	}
	ct_dataset_close(d);
	assert_in_range(right, 600, 900);
	ct_free(mean);
	ct_free(sub);
	temp_dir_remove(dir);
}

static void test_bad_options(void **state)
{
	char *dir = temp_dir(), *file = ct_path_join(dir, "file"), *under = ct_path_join(file, "sub");
	struct ct_digits_opts o = {.dir = dir, .n_train = 0, .n_test = 10};

	(void)state;
	assert_int_equal(ct_digits_write(&o), CT_USAGE);
	o.n_train = UINT32_MAX;
	assert_int_equal(ct_digits_write(&o), CT_USAGE);
	o.n_train = 10;
	o.dir = under;
	assert_ok(ct_file_replace(file, "x", 1));
	assert_true(ct_digits_write(&o) < 0);
	assert_non_null(strstr(ct_error_message(), file));
	ct_free(file);
	ct_free(under);
	temp_dir_remove(dir);
}

static void check_refused(const struct ct_digits_opts *o, const char *file, const char *hint)
{
	char *path = ct_path_join(o->dir, file), **names;
	size_t n;

	assert_ok(ct_dir_make(o->dir));
	assert_ok(ct_file_replace(path, "precious", 8));
	assert_int_equal(ct_digits_write(o), CT_USAGE);
	assert_non_null(strstr(ct_error_message(), path));
	assert_non_null(strstr(ct_error_hint_text(), hint));
	ct_error_clear();
	assert_ok(ct_dir_list(o->dir, &names, &n));
	assert_int_equal(n, 1); /* the file alone: nothing was written */
	ct_dir_list_free(names, n);
	assert_ok(ct_dir_remove(o->dir));
	ct_free(path);
}

/* A file that was not drawn is never replaced, whichever of the set's names it has. A drawn one is. */
static void test_real_data(void **state)
{
	char *dir = temp_dir(), *sub = ct_path_join(dir, "m"), *first = ct_path_join(sub, files[0]), *data;
	struct ct_digits_opts o = {.dir = sub, .n_train = 20, .n_test = 10, .seed = 1};
	size_t n;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++)
		check_refused(&o, files[i], "--force");
	check_refused(&o, "t10k-labels-idx1-ubyte", "move this file away");
	check_refused(&o, "train-images.idx3-ubyte", "move this file away");
	o.force = true;
	check_refused(&o, "train-images.idx3-ubyte.gz", "move this file away");
	/* --force replaces what has the name of a file to write. */
	assert_ok(ct_dir_make(sub));
	assert_ok(ct_file_replace(first, "precious", 8));
	assert_ok(ct_digits_write(&o));
	/* Half a drawn set is completed, a complete one is replaced. */
	o.force = false;
	assert_ok(ct_digits_write(&o));
	assert_ok(ct_file_read(first, 1 << 20, &data, &n));
	assert_true(n > 8 && memcmp(data, "\x1f\x8b", 2) == 0);
	/* The comment is in the header of a valid gzip file and survives no other compressor. */
	assert_true(ct_deflate_has_comment(first, "drawn by ctrain data digits"));
	assert_false(ct_deflate_has_comment(first, "drawn by ctrain data"));
	assert_false(ct_deflate_has_comment(sub, "drawn by ctrain data digits"));
	assert_ok(ct_file_replace(first, data, 30));
	assert_false(ct_deflate_has_comment(first, "drawn by ctrain data digits"));
	assert_int_equal(ct_digits_write(&o), CT_USAGE);
	ct_free(data);
	ct_free(first);
	ct_free(sub);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),   cmocka_unit_test(test_golden),      cmocka_unit_test(test_ink),
		cmocka_unit_test(test_read_back), cmocka_unit_test(test_bad_options), cmocka_unit_test(test_real_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
