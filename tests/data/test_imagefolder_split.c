/* Splitting an image directory into training and evaluation data (data.val_fraction), and evaluation data whose classes
 * are those of the training data. */
#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

static void add_images(const char *dir, const char *class, int first, int n)
{
	for (int i = first; i < first + n; i++) {
		char *path = ct_strfmt("%s/%s/%03d.png", dir, class, i), *directory = ct_path_dir(path);

		assert_ok(ct_dir_make(directory));
		assert_ok(ct_file_replace(path, "x", 1));
		ct_free(directory);
		ct_free(path);
	}
}

static struct ct_dataset_spec spec_of(const char *dir, bool train, double fraction, uint64_t seed)
{
	return (struct ct_dataset_spec){.name = "imagefolder",
					.dir = dir,
					.path = ".",
					.classes_of = ".",
					.threads = 2,
					.train = train,
					.val_fraction = fraction,
					.seed = seed};
}

static ct_dataset *open_part(const char *dir, bool train, double fraction, uint64_t seed)
{
	struct ct_dataset_spec spec = spec_of(dir, train, fraction, seed);
	ct_dataset *d;

	assert_ok(ct_dataset_open(&spec, &d));
	return d;
}

/* Returns the keys of the samples, sorted; each is "CLASS/NAME". */
static char **keys_of(const ct_dataset *d)
{
	uint32_t n = ct_dataset_info(d)->n;
	char **keys = CT_NEW_ARRAY(char *, n), key[200];

	for (uint32_t i = 0; i < n; i++) {
		ct_dataset_key(d, i, key, sizeof(key));
		keys[i] = ct_strdup(key);
	}
	ct_strings_sort(keys, n);
	return keys;
}

static bool has_key(const ct_dataset *d, const char *want)
{
	char key[200];

	for (uint32_t i = 0; i < ct_dataset_info(d)->n; i++) {
		ct_dataset_key(d, i, key, sizeof(key));
		if (strcmp(key, want) == 0)
			return true;
	}
	return false;
}

static int count_of(const ct_dataset *d, int label)
{
	struct ct_bytes b = {0};
	int n = 0;
	int32_t y;

	for (uint32_t i = 0; i < ct_dataset_info(d)->n; i++) {
		assert_ok(ct_dataset_fetch(d, i, &b, &y));
		n += y == label;
	}
	ct_free(b.data);
	return n;
}

/* Every sample is in exactly one part, in the order of the directory, and each class is divided in the proportion. */
static void test_parts(void **state)
{
	static const struct {
		const char *class;
		int n, n_val;
	} classes[] = {{"a", 100, 20}, {"b", 33, 7}, {"c", 3, 1}, {"d", 2, 1}, {"e", 1, 0}};
	char *dir = temp_dir();
	ct_dataset *train, *val;

	(void)state;
	for (size_t k = 0; k < CT_ARRAY_LEN(classes); k++)
		add_images(dir, classes[k].class, 0, classes[k].n);
	train = open_part(dir, true, 0.2, 1);
	val = open_part(dir, false, 0.2, 1);
	assert_int_equal(ct_dataset_info(train)->n_classes, 5);
	assert_int_equal(ct_dataset_info(val)->n_classes, 5);
	for (size_t k = 0; k < CT_ARRAY_LEN(classes); k++) {
		assert_int_equal(count_of(val, (int)k), classes[k].n_val);
		assert_int_equal(count_of(train, (int)k), classes[k].n - classes[k].n_val);
	}
	for (uint32_t i = 0; i < ct_dataset_info(val)->n; i++) {
		char key[200];

		ct_dataset_key(val, i, key, sizeof(key));
		assert_false(has_key(train, key));
	}
	for (uint32_t i = 1; i < ct_dataset_info(train)->n; i++) {
		char before[200], key[200];

		ct_dataset_key(train, i - 1, before, sizeof(before));
		ct_dataset_key(train, i, key, sizeof(key));
		assert_true(strcmp(before, key) < 0);
	}
	assert_ok(ct_dataset_check_classes(train, val));
	ct_dataset_close(train);
	ct_dataset_close(val);
	temp_dir_remove(dir);
}

/* The split is the same each time. It depends on the seed, and hardly changes when images are added. */
static void test_stable(void **state)
{
	char *dir = temp_dir(), hex[3][65], **keys;
	ct_dataset *a = NULL, *b = NULL, *other = NULL;
	uint32_t kept = 0, n;

	(void)state;
	add_images(dir, "a", 0, 100);
	add_images(dir, "b", 0, 50);
	a = open_part(dir, false, 0.2, 1);
	b = open_part(dir, false, 0.2, 1);
	other = open_part(dir, false, 0.2, 2);
	ct_dataset_digest(a, hex[0]);
	ct_dataset_digest(b, hex[1]);
	ct_dataset_digest(other, hex[2]);
	assert_string_equal(hex[0], hex[1]);
	assert_string_not_equal(hex[0], hex[2]);
	ct_dataset_close(b);
	ct_dataset_close(other);
	add_images(dir, "a", 100, 10);
	b = open_part(dir, false, 0.2, 1);
	n = ct_dataset_info(a)->n;
	keys = keys_of(a);
	for (uint32_t i = 0; i < n; i++)
		kept += has_key(b, keys[i]);
	assert_true(n == 30 && kept >= 27);
	ct_dir_list_free(keys, n);
	ct_dataset_close(a);
	ct_dataset_close(b);
	/* The digest of the training data records the split. */
	a = open_part(dir, true, 0.2, 1);
	b = open_part(dir, true, 0.2, 2);
	ct_dataset_digest(a, hex[0]);
	ct_dataset_digest(b, hex[1]);
	assert_string_not_equal(hex[0], hex[1]);
	ct_dataset_close(a);
	ct_dataset_close(b);
	temp_dir_remove(dir);
}

static void test_too_few(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec spec = spec_of(dir, false, 0.5, 1);
	ct_dataset *d;

	(void)state;
	add_images(dir, "a", 0, 1);
	add_images(dir, "b", 0, 1);
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "no class has two images"));
	temp_dir_remove(dir);
}

/* A class without evaluation images keeps its number; a class without training images is an error. */
static void test_classes_of_training(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "imagefolder", .dir = dir, .classes_of = "train"};
	ct_dataset *d;

	(void)state;
	add_images(dir, "train/a", 0, 2);
	add_images(dir, "train/b", 0, 2);
	add_images(dir, "train/c", 0, 2);
	add_images(dir, "val/c", 0, 1);
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n_classes, 3);
	assert_int_equal(count_of(d, 2), 1);
	ct_dataset_close(d);
	add_images(dir, "val/d", 0, 1);
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "val/d: this class is only in the evaluation data"));
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_stable),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_classes_of_training),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
