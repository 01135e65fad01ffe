/* Image directories: the order and the classes are those of torchvision; flat directories; files that are deleted
 * during the run. */
#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

static void image(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name), *directory = ct_path_dir(path);

	assert_ok(ct_dir_make(directory));
	/* The content says who it is. */
	assert_ok(ct_file_replace(path, name, strlen(name)));
	ct_free(directory);
	ct_free(path);
}

static enum ct_status open_in(const char *dir, const char *path, const char *classes, ct_dataset **d)
{
	struct ct_dataset_spec spec = {
		.name = "imagefolder", .dir = dir, .path = path, .classes = classes, .threads = 3, .train = true};

	return ct_dataset_open(&spec, d);
}

static void expect_sample(const ct_dataset *d, uint32_t i, const char *key, int label)
{
	struct ct_bytes b = {0};
	char got[100];
	int32_t y;

	assert_ok(ct_dataset_fetch(d, i, &b, &y));
	ct_dataset_key(d, i, got, sizeof(got));
	assert_string_equal(got, key);
	assert_int_equal(y, label);
	assert_int_equal(b.n, strlen(key));
	assert_memory_equal(b.data, key, b.n);
	ct_free(b.data);
}

static void expect_fail(const char *dir, const char *path, const char *classes, enum ct_status want, const char *says,
			const char *hints)
{
	ct_dataset *d;
	enum ct_status st = open_in(dir, path, classes, &d);

	if (st != want || !strstr(ct_error_message(), says) || !strstr(ct_error_hint_text(), hints))
		print_error("%s: %s; %s\n", ct_status_name(st), ct_error_message(), ct_error_hint_text());
	assert_int_equal(st, want);
	assert_non_null(strstr(ct_error_message(), says));
	assert_non_null(strstr(ct_error_hint_text(), hints));
}

static void test_order(void **state)
{
	char *dir = temp_dir(), hex[2][65], text[200], *path;
	ct_dataset *d;

	(void)state;
	image(dir, "train/b/2.jpg");
	image(dir, "train/b/10.JPEG");
	image(dir, "train/b/sub/0.png");
	image(dir, "train/b/sub-a/0.png");
	image(dir, "train/b/.hidden.jpg");
	image(dir, "train/b/readme.txt");
	image(dir, "train/Zebra/x.y.Jpg");
	image(dir, "train/\303\244/a.jpg");
	image(dir, "train/.git/a.jpg");
	image(dir, "train/stray.jpg");
	assert_ok(open_in(dir, NULL, NULL, &d));
	assert_int_equal(ct_dataset_info(d)->n, 6);
	assert_int_equal(ct_dataset_info(d)->n_classes, 3);
	assert_int_equal(ct_dataset_info(d)->kind, CT_SAMPLE_ENCODED);
	assert_null(ct_dataset_info(d)->group_first);
	ct_dataset_key(d, 0, text, sizeof(text));
	assert_string_equal(text, "Zebra/x.y.Jpg");
	ct_dataset_key(d, 1, text, sizeof(text));
	assert_string_equal(text, "b/10.JPEG");
	ct_dataset_key(d, 2, text, sizeof(text));
	assert_string_equal(text, "b/2.jpg");
	ct_dataset_key(d, 3, text, sizeof(text));
	assert_string_equal(text, "b/sub/0.png");
	ct_dataset_key(d, 4, text, sizeof(text));
	assert_string_equal(text, "b/sub-a/0.png");
	ct_dataset_describe(d, 5, text, sizeof(text));
	assert_string_equal(text, "train/\303\244/a.jpg");
	assert_string_equal(ct_dataset_class_name(d, 1), "b");
	ct_dataset_digest(d, hex[0]);
	ct_dataset_close(d);
	path = ct_path_join(dir, "train");
	assert_ok(open_in("/", path, NULL, &d));
	ct_free(path);
	ct_dataset_digest(d, hex[1]);
	assert_string_equal(hex[0], hex[1]);
	ct_dataset_close(d);
	temp_dir_remove(dir);
}

static void test_reading(void **state)
{
	char *dir = temp_dir(), *gone, *sub;
	struct ct_bytes b = {0};
	int32_t y;
	ct_dataset *d;

	(void)state;
	image(dir, "a/1.jpg");
	image(dir, "a/2.jpg");
	image(dir, "b/3.jpg");
	image(dir, "b/empty.jpg");
	file_write(dir, "b/empty.jpg", "", 0);
	/* Links are followed, in circles they are not. */
	sub = ct_strfmt("%s/b/up", dir);
	assert_int_equal(symlink("..", sub), 0);
	ct_free(sub);
	sub = ct_strfmt("%s/b/4.png", dir);
	assert_int_equal(symlink("../a/1.jpg", sub), 0);
	ct_free(sub);
	sub = ct_strfmt("%s/a/directory.jpg", dir);
	assert_ok(ct_dir_make(sub));
	ct_free(sub);
	assert_ok(open_in(dir, ".", NULL, &d));
	assert_int_equal(ct_dataset_info(d)->n, 5);
	expect_sample(d, 0, "a/1.jpg", 0);
	expect_sample(d, 2, "b/3.jpg", 1);
	assert_ok(ct_dataset_fetch(d, 3, &b, &y));
	assert_memory_equal(b.data, "a/1.jpg", 7);
	assert_int_equal(ct_dataset_fetch(d, 4, &b, &y), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "empty"));
	gone = ct_path_join(dir, "a/2.jpg");
	assert_int_equal(unlink(gone), 0);
	assert_int_equal(ct_dataset_fetch(d, 1, &b, &y), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "No such file"));
	/* A pipe is not waited for. */
	assert_int_equal(mkfifo(gone, 0600), 0);
	assert_int_equal(ct_dataset_fetch(d, 1, &b, &y), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "not a regular file"));
	expect_sample(d, 0, "a/1.jpg", 0);
	ct_dataset_close(d);
	ct_free(b.data);
	ct_free(gone);
	temp_dir_remove(dir);
}

static void test_classes(void **state)
{
	char *dir = temp_dir();
	ct_dataset *train, *val;

	(void)state;
	image(dir, "train/n01440764/1.jpg");
	image(dir, "train/n01443537/1.jpg");
	image(dir, "train/n01484850/1.jpg");
	image(dir, "val/n01440764/1.jpg");
	image(dir, "val/n01484850/1.jpg");
	assert_ok(open_in(dir, "train", NULL, &train));
	assert_ok(open_in(dir, "val", NULL, &val));
	/* Without the list, class 1 would be another one in val. */
	assert_int_equal(ct_dataset_check_classes(train, val), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "class 1 is \"n01443537\""));
	ct_dataset_close(val);
	ct_dataset_close(train);
	text_write(dir, "list", "0 n01440764 tench\n1 n01443537 goldfish\n2 n01484850 great_white_shark\n");
	assert_ok(open_in(dir, "train", "list", &train));
	assert_ok(open_in(dir, "val", "list", &val));
	assert_ok(ct_dataset_check_classes(train, val));
	assert_int_equal(ct_dataset_info(val)->n_classes, 3);
	assert_string_equal(ct_dataset_class_name(val, 2), "great_white_shark");
	expect_fail(dir, "val", "none", CT_NOT_FOUND, "none", "");
	ct_dataset_close(val);
	ct_dataset_close(train);
	text_write(dir, "short", "n01440764\n");
	expect_fail(dir, "val", "short", CT_DATA, "val/n01484850: the class list does not contain", "data.classes");
	text_write(dir, "double", "a\na\n");
	expect_fail(dir, "val", "double", CT_DATA, "two classes have the name \"a\"", "");
	/* Found by itself it only helps where it fits. */
	text_write(dir, "classes.txt", "x\ny\n");
	assert_ok(open_in(dir, "val", NULL, &val));
	assert_string_equal(ct_dataset_class_name(val, 1), "n01484850");
	ct_dataset_close(val);
	text_write(dir, "classes.txt", "n01440764\nn01443537\nn01484850\n");
	assert_ok(open_in(dir, "val", NULL, &val));
	assert_int_equal(ct_dataset_info(val)->n_classes, 3);
	ct_dataset_close(val);
	temp_dir_remove(dir);
}

static void test_flat(void **state)
{
	char *dir = temp_dir(), text[200];
	struct ct_refusal why;
	ct_dataset *d;

	(void)state;
	image(dir, "v/ILSVRC2012_val_00000001.JPEG");
	image(dir, "v/ILSVRC2012_val_00000002.JPEG");
	image(dir, "v/ILSVRC2012_val_00000003.JPEG");
	expect_fail(dir, "v", NULL, CT_DATA, "is flat: it contains 3 images", "val.txt");
	text_write(dir, "v/val.txt",
		   "ILSVRC2012_val_00000003.JPEG 65\nILSVRC2012_val_00000001.JPEG 2\n# end\nx: y.jpg 1");
	assert_ok(open_in(dir, "v", NULL, &d));
	assert_int_equal(ct_dataset_info(d)->n, 2);
	assert_int_equal(ct_dataset_info(d)->n_classes, 66);
	assert_int_equal(ct_dataset_info(d)->n_skipped, 2);
	ct_dataset_key(d, 1, text, sizeof(text));
	assert_string_equal(text, "ILSVRC2012_val_00000003.JPEG");
	ct_dataset_skipped(d, 0, &why);
	assert_string_equal(why.where, "ILSVRC2012_val_00000002.JPEG");
	assert_string_equal(why.tag, "no-label");
	assert_string_equal(why.reason, "no-label: the file is not in the list of labels");
	ct_dataset_skipped(d, 1, &why);
	assert_string_equal(why.where, "x: y.jpg");
	assert_string_equal(why.tag, "no-image");
	assert_string_equal(why.reason, "no-image: the file does not exist");
	ct_dataset_close(d);
	text_write(
		dir, "v/val.txt",
		"ILSVRC2012_val_00000001.JPEG n2\nILSVRC2012_val_00000002.JPEG n1\nILSVRC2012_val_00000003.JPEG n2\r\n");
	assert_ok(open_in(dir, "v", NULL, &d));
	assert_int_equal(ct_dataset_info(d)->n, 3);
	assert_int_equal(ct_dataset_info(d)->n_classes, 2);
	assert_string_equal(ct_dataset_class_name(d, 0), "n1");
	ct_dataset_close(d);
	text_write(dir, "list", "n2\n");
	expect_fail(dir, "v", "list", CT_DATA, "class \"n1\" is not in the list of classes", "");
	text_write(dir, "v/val.txt", "../x.jpg 1\n");
	expect_fail(dir, "v", NULL, CT_DATA, "val.txt:1: expected a file name in this directory", "");
	text_write(dir, "v/val.txt", "a.jpg 1\na.jpg 2\n");
	expect_fail(dir, "v", NULL, CT_DATA, "a.jpg is listed twice", "");
	text_write(dir, "v/val.txt", "a.jpg\n");
	expect_fail(dir, "v", NULL, CT_DATA, "val.txt:1: expected \"FILE LABEL\"", "");
	text_write(dir, "v/val.txt", "\n");
	expect_fail(dir, "v", NULL, CT_DATA, "is empty", "");
	temp_dir_remove(dir);
}

static void test_nothing(void **state)
{
	char *dir = temp_dir();

	(void)state;
	expect_fail(dir, NULL, NULL, CT_NOT_FOUND, "cannot open the directory", "data.dir");
	expect_fail(dir, ".", NULL, CT_DATA, "neither images nor directories with images", "one directory per class");
	image(dir, "a/1.txt");
	expect_fail(dir, ".", NULL, CT_DATA, "none of its directories contains an image", "");
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order), cmocka_unit_test(test_reading), cmocka_unit_test(test_classes),
		cmocka_unit_test(test_flat),  cmocka_unit_test(test_nothing),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
