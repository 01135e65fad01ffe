/* Packing directories into shards. Training must read the same samples from the shards as from the directory, for any
 * number of threads, and even if packing was interrupted and restarted. Invalid input must be rejected. */
#include "tests/data/jpeg_make.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/image/image.h"
#include "data/pack/pack.h"
#include "tests/data/pack_fixture.h"

/* src with 3 classes of 7 images, of sizes of their own. */
static char *make_source(const char *dir)
{
	char *src = ct_path_join(dir, "src"), name[64];

	for (int i = 0; i < 21; i++) {
		snprintf(name, sizeof(name), "class %c/deep/%d%s.JPEG", 'a' + i / 7, i, i % 2 ? " x.y" : "");
		pack_write_image(src, name, 20 + 3 * i, 50 - i);
	}
	return src;
}

static struct bytes read_whole(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name), *text;
	struct bytes b;

	assert_ok(ct_file_read(path, (size_t)1 << 26, &text, &b.n));
	b.p = (uint8_t *)text;
	ct_free(path);
	return b;
}

static void assert_same_file(const char *dir_a, const char *dir_b, const char *name)
{
	struct bytes a = read_whole(dir_a, name), b = read_whole(dir_b, name);

	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.p, b.p, a.n);
	bytes_release(&a);
	bytes_release(&b);
}

/* Sample i of the shards is sample i of the directory: bytes, label, class. */
static void test_same_samples(void **state)
{
	char *dir = temp_dir(), *src = make_source(dir);
	struct ct_bytes a = {0}, b = {0};
	struct ct_pack_report r;
	ct_dataset *directory, *shards;

	(void)state;
	pack_ok(dir, src, "out/train-%04d.tar", (struct ct_pack_opts){.shard_samples = 5, .threads = 3}, &r);
	assert_int_equal(r.n_samples, 21);
	assert_int_equal(r.n_shards, 5);
	assert_int_equal(r.n_classes, 3);
	assert_int_equal(r.n_kept + r.n_left_out, 0);
	assert_non_null(strstr(r.shards, "train-{0000..0004}.tar"));
	directory = pack_open_set("imagefolder", dir, "src");
	shards = pack_open_set("shards", ".", r.shards);
	assert_int_equal(ct_dataset_info(shards)->n, 21);
	assert_int_equal(ct_dataset_info(shards)->n_classes, 3);
	for (uint32_t i = 0; i < 21; i++) {
		int32_t la, lb;

		assert_ok(ct_dataset_fetch(directory, i, &a, &la));
		assert_ok(ct_dataset_fetch(shards, i, &b, &lb));
		assert_int_equal(la, lb);
		assert_int_equal(a.n, b.n);
		assert_memory_equal(a.data, b.data, a.n);
		assert_string_equal(ct_dataset_class_name(directory, la), ct_dataset_class_name(shards, lb));
	}
	ct_dataset_close(directory);
	ct_dataset_close(shards);
	ct_free(a.data);
	ct_free(b.data);
	ct_pack_report_release(&r);
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_bytes_do_not_depend_on_threads(void **state)
{
	static const char *const files[] = {"t-0.tar", "t-1.tar", "t-2.tar", "t-0.idx", "t-2.idx", "classes.txt"};
	char *dir = temp_dir(), *src = make_source(dir), *a = ct_path_join(dir, "a"), *b = ct_path_join(dir, "b");
	struct ct_pack_opts o = {.shuffle = true, .seed = 7, .short_side = 24, .threads = 1};
	struct ct_pack_report r;

	(void)state;
	pack_ok(a, src, "t-{0..2}.tar", o, &r);
	assert_int_equal(r.n_shards, 3);
	ct_pack_report_release(&r);
	o.threads = 4;
	pack_ok(b, src, "t-{0..2}.tar", o, &r);
	ct_pack_report_release(&r);
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++)
		assert_same_file(a, b, files[i]);
	/* Another seed is another order, and that is another packing. */
	o.seed = 8;
	pack_fails(b, src, "t-{0..2}.tar", o, CT_USAGE, "shards with this name already exist");
	ct_free(a);
	ct_free(b);
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_going_on(void **state)
{
	char *dir = temp_dir(), *src = make_source(dir), *a = ct_path_join(dir, "a"), *b = ct_path_join(dir, "b");
	char *gone = ct_path_join(b, "t-1.tar"), *part = ct_path_join(b, "t-1.tar.part");
	struct ct_pack_opts o = {.shard_bytes = 20000, .threads = 2};
	struct ct_pack_report r;
	uint32_t n;

	(void)state;
	pack_ok(a, src, "t-%d.tar", o, &r);
	n = r.n_shards;
	assert_true(n > 2);
	assert_true(r.bytes <= (uint64_t)n * 20480);
	ct_pack_report_release(&r);
	pack_ok(b, src, "t-%d.tar", o, &r);
	ct_pack_report_release(&r);
	/* As a kill leaves it: one shard missing, half of it under its other name. */
	assert_int_equal(unlink(gone), 0);
	pack_write_text(b, "t-1.tar.part", "half a shard");
	pack_ok(b, src, "t-%d.tar", o, &r);
	assert_int_equal(r.n_kept, n - 1);
	assert_int_equal(r.n_samples, 21);
	assert_false(ct_file_exists(part));
	ct_pack_report_release(&r);
	assert_same_file(a, b, "t-1.tar");
	/* A manifest that a power cut emptied, before there was a shard. */
	assert_int_equal(unlink(gone), 0);
	for (uint32_t i = 0; i < n; i++) {
		char name[32], *path;

		snprintf(name, sizeof(name), "t-%u.tar", i);
		path = ct_path_join(b, name);
		if (i != 1)
			assert_int_equal(unlink(path), 0);
		ct_free(path);
	}
	pack_write_text(b, "t-pack.json", "{\"v\":");
	pack_ok(b, src, "t-%d.tar", o, &r);
	assert_int_equal(r.n_kept, 0);
	ct_pack_report_release(&r);
	/* With shards it can't be told whose they are. */
	pack_write_text(b, "t-pack.json", "");
	pack_fails(b, src, "t-%d.tar", o, CT_USAGE, "shards with this name already exist");
	/* The source changes. */
	pack_write_image(src, "class b/new.jpg", 30, 30);
	pack_fails(a, src, "t-%d.tar", o, CT_USAGE, "shards with this name already exist");
	ct_free(part);
	ct_free(gone);
	ct_free(a);
	ct_free(b);
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_lock(void **state)
{
	char *dir = temp_dir(), *src = make_source(dir), *manifest = ct_path_join(dir, "t-pack.json");
	int fd = open(manifest, O_RDWR | O_CREAT, 0666);

	(void)state;
	assert_true(fd >= 0);
	/* flock belongs to the open file: this process' own other descriptor holds it as another process' would. */
	assert_int_equal(flock(fd, LOCK_EX), 0);
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){0}, CT_USAGE, "in use");
	close(fd);
	ct_free(manifest);
	ct_free(src);
	temp_dir_remove(dir);
}

static bool has_line(const char *dir, const char *name, const char *part)
{
	struct bytes b = read_whole(dir, name);
	bool found = strstr((const char *)b.p, part) != NULL;

	bytes_release(&b);
	return found;
}

static int n_opendir; /* the program's calls of opendir, which the linker sends here */
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

DIR *__wrap_opendir(const char *path)
{
	n_opendir++;
	return __real_opendir(path);
}

/* A directory of many shards is not read for each of them. */
static void test_reads_of_directories(void **state)
{
	static const struct ct_pack_opts opts[] = {{.shard_samples = 21, .threads = 1},
						   {.shard_samples = 1, .threads = 1}};
	static const char *const outs[] = {"few/t-%d.tar", "many/t-%d.tar"};
	char *dir = temp_dir(), *src = make_source(dir);
	struct ct_pack_report r;
	int n[2];

	(void)state;
	pack_write_text(src, "class a/broken.jpg", "no image"); /* its shard has a list of such files */
	for (int i = 0; i < 2; i++) {
		n_opendir = 0;
		pack_ok(dir, src, outs[i], opts[i], &r);
		n[i] = n_opendir;
		assert_int_equal(r.n_shards, i == 0 ? 2 : 22);
		ct_pack_report_release(&r);
	}
	assert_int_equal(n[0], n[1]);
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_keys(void **state)
{
	char *dir = temp_dir(), *src = ct_path_join(dir, "src");
	struct ct_pack_report r;

	(void)state;
	pack_write_image(src, "c/a.jpg", 8, 8);
	pack_write_image(src, "c/a.jpeg", 9, 9);
	pack_write_image(src, "c/my photo.of.me.JPG", 10, 10);
	pack_write_image(src, "c.d/x.jpg", 11, 11);
	pack_ok(dir, src, "t-%d.tar", (struct ct_pack_opts){.threads = 1}, &r);
	/* No spaces, and the extension begins at the first dot of the last part; equal keys are distinguished. */
	assert_true(has_line(dir, "t-0.idx", " c/a_jpg.jpg "));
	assert_true(has_line(dir, "t-0.idx", " c/a_jpeg.jpg "));
	assert_true(has_line(dir, "t-0.idx", " c/my_photo_of_me.jpg "));
	assert_true(has_line(dir, "t-0.idx", " c.d/x.jpg "));
	assert_true(has_line(dir, "classes.txt", "0 c\n1 c.d\n"));
	ct_pack_report_release(&r);
	pack_write_image(src, "c/a_jpg.png", 8, 8);
	pack_fails(dir, src, "u-%d.tar", (struct ct_pack_opts){0}, CT_DATA, "c/a_jpg");
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_left_out(void **state)
{
	char *dir = temp_dir(), *src = make_source(dir);
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = 90, .h = 80});
	char *left = ct_path_join(dir, "s-0.left-out.tsv"), *pipe = ct_path_join(src, "class a/pipe.jpg");
	struct ct_pack_report r;
	ct_dataset *d;

	(void)state;
	pack_write_text(dir, "s-0.left-out.tsv", "of shards that were removed");
	pack_ok(dir, src, "s-%d.tar", (struct ct_pack_opts){.shard_samples = 100}, &r);
	assert_false(ct_file_exists(left));
	ct_pack_report_release(&r);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	pack_write_text(src, "class a/empty.jpg", "");
	pack_write_text(src, "class b/page.jpg", "<html>not found</html>");
	pack_write_file(src, "class c/cut.jpg", b.p, b.n / 2);
	pack_ok(dir, src, "t-%d.tar", (struct ct_pack_opts){.shard_samples = 100, .short_side = 16}, &r);
	assert_int_equal(r.n_samples, 21);
	assert_int_equal(r.n_left_out, 4);
	assert_true(has_line(dir, "t-0.left-out.tsv", "class a/pipe.jpg\tempty: "));
	assert_true(has_line(dir, "t-0.left-out.tsv", "class a/empty.jpg\tempty: "));
	assert_true(has_line(dir, "t-0.left-out.tsv", "class b/page.jpg\tformat: "));
	assert_true(has_line(dir, "t-0.left-out.tsv", "class c/cut.jpg\tjpeg-"));
	d = pack_open_set("shards", ".", r.shards);
	assert_int_equal(ct_dataset_info(d)->n, 21);
	ct_dataset_close(d);
	ct_pack_report_release(&r);
	bytes_release(&b);
	ct_free(pipe);
	ct_free(left);
	ct_free(src);
	temp_dir_remove(dir);
}

static void check_labels(const char *shards, const int *labels, int n)
{
	ct_dataset *d = pack_open_set("shards", ".", shards);
	struct ct_bytes b = {0};

	assert_int_equal(ct_dataset_info(d)->n, n);
	for (int i = 0; i < n; i++) {
		int32_t label;

		assert_ok(ct_dataset_fetch(d, (uint32_t)i, &b, &label));
		assert_int_equal(label, labels[i]);
	}
	ct_free(b.data);
	ct_dataset_close(d);
}

static void test_val_maps(void **state)
{
	static const struct {
		const char *text;
		int labels[3];
		bool named;
	} good[] = {
		{"v_1.JPEG n02\nv_3.JPEG n03\r\nv_2.JPEG n01\n", {1, 0, 2}, true},
		{"v_2 n01\nv_1 n02\nv_3 n01", {1, 0, 0}, true},
		{"ImageId,PredictionString\nv_1,n03 85 1 499 272 \nv_2,n01 1 2 3 4 n01 5 6 7 8\nv_3,n02 0 0 1 1\n",
		 {2, 0, 1},
		 true},
		{"v_1.JPEG\t5\nv_2.JPEG\t0\nv_3.JPEG\t65\nv_other.JPEG\t7\n", {5, 0, 65}, false},
		{"n02\nn01\nn02\n", {1, 0, 1}, true},
	};
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"", "is empty"},
		{"490\n361\n171\n", "numbers the classes in a"},
		{"n01\nn02\n", "has 2 lines, but there are 3 images"},
		{"v_1.JPEG n01\nv_2.JPEG n01\n", "does not contain v_3.JPEG"},
		{"v_1.JPEG n01\nv_2.JPEG\nv_3.JPEG n01\n", "map:2: expected"},
		{"v_1.JPEG n01\nv_2.JPEG n01\nv_1.JPEG n02\n", "name the same file"},
		{"v_1.JPEG 1\nv_2.JPEG x\nv_3.JPEG 2\n", "map:2: \"x\" is not a number"},
	};
	char *dir = temp_dir(), *src = ct_path_join(dir, "src"), *map = ct_path_join(dir, "map"), name[32];
	struct ct_pack_opts o = {.val_map = map};
	struct ct_pack_report r;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		snprintf(name, sizeof(name), "v_%d.JPEG", i);
		pack_write_image(src, name, 10 + i, 12);
	}
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){0}, CT_DATA, "3 images are not in class directories");
	assert_non_null(strstr(ct_error_hint_text(), "--val-map"));
	for (size_t i = 0; i < CT_ARRAY_LEN(good); i++) {
		snprintf(name, sizeof(name), "good%zu/t-%%d.tar", i);
		pack_write_text(dir, "map", good[i].text);
		pack_ok(dir, src, name, o, &r);
		check_labels(r.shards, good[i].labels, 3);
		snprintf(name, sizeof(name), "good%zu/classes.txt", i);
		char *classes = ct_path_join(dir, name);
		assert_int_equal(ct_file_exists(classes), good[i].named);
		ct_free(classes);
		ct_pack_report_release(&r);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		pack_write_text(dir, "map", bad[i].text);
		pack_fails(dir, src, "bad-%d.tar", o, CT_DATA, bad[i].says);
	}
	ct_free(map);
	ct_free(src);
	temp_dir_remove(dir);
}

/* The labels of val mean what those of train do. */
static void test_class_lists(void **state)
{
	char *dir = temp_dir(), *src = make_source(dir), *val = ct_path_join(dir, "val");
	char *list = ct_path_join(dir, "list.txt");
	struct ct_pack_report r;

	(void)state;
	pack_ok(dir, src, "t-%d.tar", (struct ct_pack_opts){0}, &r);
	ct_pack_report_release(&r);
	pack_write_image(val, "class c/1.jpg", 9, 9);
	pack_write_image(val, "class b/1.jpg", 9, 9);
	pack_ok(dir, val, "v-%d.tar", (struct ct_pack_opts){0}, &r);
	check_labels(r.shards, (const int[]){1, 2}, 2);
	assert_int_equal(r.n_classes, 3);
	ct_pack_report_release(&r);
	pack_write_image(val, "class z/1.jpg", 9, 9);
	pack_fails(dir, val, "w-%d.tar", (struct ct_pack_opts){0}, CT_DATA, "class z: is not in the list of classes");
	pack_write_text(dir, "list.txt", "0 class z\n1 class c\n2 class b\n");
	pack_fails(dir, val, "w-%d.tar", (struct ct_pack_opts){.classes = list}, CT_USAGE,
		   "differs from the given class list");
	pack_ok(dir, val, "other/w-%d.tar", (struct ct_pack_opts){.classes = list}, &r);
	check_labels(r.shards, (const int[]){2, 1, 0}, 3);
	ct_pack_report_release(&r);
	pack_write_text(dir, "list.txt", "class z\nclass z\n");
	pack_fails(dir, val, "x/w-%d.tar", (struct ct_pack_opts){.classes = list}, CT_DATA,
		   "two classes have the name");
	ct_free(list);
	ct_free(val);
	ct_free(src);
	temp_dir_remove(dir);
}

static void test_what_cannot_be(void **state)
{
	static const char *const patterns[] = {
		"t.tar",    "t-%06d",    "t-%s.tar",    "t-%d-%d.tar", "t-{1..3}.tar", "t-{0..3.tar",  "t-{00..3}.tar",
		"%d/t.tar", "t-%6d.tar", "t-%010d.tar", "t-{0..}.tar", ".tar",         "t-{a..b}.tar", "t-%0xd.tar"};
	char *dir = temp_dir(), *src = make_source(dir), *empty = ct_path_join(dir, "empty"),
	     *absent = ct_path_join(dir, "absent"), *loose = ct_path_join(dir, "loose");

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(patterns); i++)
		pack_fails(dir, src, patterns[i], (struct ct_pack_opts){0}, CT_USAGE, patterns[i]);
	pack_fails(dir, src, "t-{00..21}.tar", (struct ct_pack_opts){0}, CT_USAGE, "there are only 21 images");
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){.shard_samples = 1, .shard_bytes = 1}, CT_USAGE, "size");
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){.quality = 50}, CT_USAGE, "requires a short side");
	pack_fails(dir, src, "t-%d.tar", (struct ct_pack_opts){.short_side = 20, .quality = 101}, CT_USAGE, "101");
	assert_ok(ct_dir_make(empty));
	pack_fails(dir, empty, "t-%d.tar", (struct ct_pack_opts){0}, CT_DATA, "contains no images");
	pack_fails(dir, absent, "t-%d.tar", (struct ct_pack_opts){0}, CT_NOT_FOUND, "absent");
	pack_write_image(loose, "c/1.jpg", 8, 8);
	pack_write_image(loose, "2.jpg", 8, 8);
	pack_fails(dir, loose, "t-%d.tar", (struct ct_pack_opts){0}, CT_DATA,
		   "1 images are next to the class directories");
	pack_write_text(dir, "other-3.tar", "another program's");
	pack_fails(dir, src, "other-%d.tar", (struct ct_pack_opts){0}, CT_USAGE, "shards with this name already exist");
	assert_true(has_line(dir, "other-3.tar", "another program's"));
	ct_free(loose);
	ct_free(absent);
	ct_free(empty);
	ct_free(src);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_samples),
		cmocka_unit_test(test_bytes_do_not_depend_on_threads),
		cmocka_unit_test(test_going_on),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_reads_of_directories),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_val_maps),
		cmocka_unit_test(test_class_lists),
		cmocka_unit_test(test_what_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
