/* Data sets of shards: lists of names, random access, and shards that change while they are read. */
#include "tests/data/tar_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/shards/shard_list_impl.h"

static enum ct_status open_in(const char *dir, const char *path, ct_dataset **d)
{
	struct ct_dataset_spec spec = {.name = "shards", .dir = dir, .path = path, .threads = 3};

	return ct_dataset_open(&spec, d);
}

/* Sample i of shards made by shard_write is whole. */
static void expect_sample(const ct_dataset *d, uint32_t i, const char *key, int label, size_t n)
{
	struct ct_bytes b = {0};
	char got[64];
	int32_t y = -1;

	assert_ok(ct_dataset_fetch(d, i, &b, &y));
	assert_int_equal(y, label);
	assert_int_equal(b.n, n);
	assert_int_equal(b.data[0], 0xff);
	assert_int_equal(b.data[n - 1], (uint8_t)((n - 1) * 5 + (size_t)label));
	ct_dataset_key(d, i, got, sizeof(got));
	assert_string_equal(got, key);
	ct_free(b.data);
}

static void test_reading(void **state)
{
	char *dir = temp_dir(), text[200], hex[2][65], *path;
	const struct ct_dataset_info *info;
	ct_dataset *d;

	(void)state;
	shard_write(dir, "t-00.tar", "a", 3, 0);
	shard_write(dir, "t-01.tar", "b", 1, 7);
	shard_write(dir, "t-02.tar", "c", 4, 2);
	text_write(dir, "classes.txt", "zero\none\ntwo\n");
	assert_ok(open_in(dir, "t-{00..02}.tar", &d));
	info = ct_dataset_info(d);
	assert_int_equal(info->kind, CT_SAMPLE_ENCODED);
	assert_int_equal(info->n, 8);
	assert_int_equal(info->n_classes, 8);
	assert_int_equal(info->max_encoded_bytes, 703);
	assert_int_equal(info->n_groups, 3);
	assert_int_equal(info->group_first[1], 3);
	assert_int_equal(info->group_first[2], 4);
	assert_int_equal(info->group_first[3], 8);
	assert_true(info->mean[0] > 0.48f && info->mean[0] < 0.49f && info->std[2] > 0.22f && info->std[2] < 0.23f);
	expect_sample(d, 7, "c003", 5, 703);
	expect_sample(d, 0, "a000", 0, 700);
	expect_sample(d, 3, "b000", 7, 700);
	expect_sample(d, 4, "c000", 2, 700);
	ct_dataset_describe(d, 3, text, sizeof(text));
	assert_string_equal(text, "t-01.tar: key \"b000\" at byte 512");
	assert_string_equal(ct_dataset_class_name(d, 1), "one");
	assert_null(ct_dataset_class_name(d, 3));
	assert_null(ct_dataset_class_name(d, -1));
	assert_int_equal(ct_dataset_fetch(d, 8, NULL, NULL), CT_BUG);
	assert_int_equal(ct_dataset_read(d, 0, text, NULL, NULL), CT_BUG);
	ct_dataset_digest(d, hex[0]);
	ct_dataset_close(d);
	/* By another path, from cached indexes: the same content. */
	path = ct_path_join(dir, "*.tar");
	assert_ok(open_in("/", path, &d));
	ct_free(path);
	ct_dataset_digest(d, hex[1]);
	assert_string_equal(hex[0], hex[1]);
	ct_dataset_close(d);
	shard_write(dir, "t-01.tar", "b", 1, 6);
	assert_ok(open_in(dir, "*.tar", &d));
	ct_dataset_digest(d, hex[1]);
	assert_string_not_equal(hex[0], hex[1]);
	ct_dataset_close(d);
	temp_dir_remove(dir);
}

static void expect_list(const char *dir, const char *text, const char *want)
{
	struct ct_str got = {0};
	char **paths;
	size_t n;

	assert_ok(ct__shard_list(dir, text, true, &paths, &n));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(strncmp(paths[i], dir, strlen(dir)), 0);
		ct_str_addf(&got, "%s%s", i ? " " : "", paths[i] + strlen(dir) + 1);
	}
	assert_string_equal(ct_str_text(&got), want);
	ct_dir_list_free(paths, n);
	ct_str_release(&got);
}

static void expect_no_list(const char *dir, const char *text, enum ct_status want, const char *says)
{
	char **paths;
	size_t n;
	enum ct_status st = ct__shard_list(dir, text, true, &paths, &n);

	if (st != want || !strstr(ct_error_message(), says))
		print_error("%s: %s %s\n", text, ct_status_name(st), ct_error_message());
	assert_int_equal(st, want);
	assert_non_null(strstr(ct_error_message(), says));
}

static void test_lists(void **state)
{
	char *top = temp_dir(), *dir = ct_strfmt("%s/odd [dir]*{a}", top), *sub = ct_path_join(dir, "sub");

	(void)state;
	assert_ok(ct_dir_make(sub));
	for (int i = 8; i < 12; i++) {
		char *name = ct_strfmt("t-%03d.tar", i);

		file_write(dir, name, "x", 1);
		ct_free(name);
	}
	file_write(dir, "7.tar", "x", 1);
	file_write(sub, "b.tar", "x", 1);
	file_write(sub, "a.tar", "x", 1);
	file_write(sub, "a.idx", "x", 1);
	expect_list(dir, "t-{008..011}.tar", "t-008.tar t-009.tar t-010.tar t-011.tar");
	expect_list(dir, " t-{010,008}.tar\t7.tar ", "t-010.tar t-008.tar 7.tar");
	expect_list(dir, "{7..7}.tar", "7.tar");
	expect_list(dir, "{t,sub/../t}-{010..011}.tar", "t-010.tar t-011.tar sub/../t-010.tar sub/../t-011.tar");
	expect_list(dir, "t-*.tar", "t-008.tar t-009.tar t-010.tar t-011.tar");
	expect_list(dir, "sub/{b,a}.tar", "sub/b.tar sub/a.tar");
	expect_list(dir, "sub", "sub/a.tar sub/b.tar");
	expect_no_list(dir, "t-{007..012}.tar", CT_NOT_FOUND, "2 of 6 shards are missing");
	expect_no_list(dir, "t-{007..012}.tar", CT_NOT_FOUND, "t-007.tar, t-012.tar");
	expect_no_list(dir, "x-{000..999}.tar", CT_NOT_FOUND, "and 992 more");
	expect_no_list(dir, "u-*.tar", CT_NOT_FOUND, "no shard matches u-*.tar");
	assert_non_null(strstr(ct_error_hint_text(), "data.dir"));
	expect_no_list(dir, NULL, CT_NOT_FOUND, "no shards");
	expect_no_list(dir, "  ", CT_CONFIG, "empty");
	expect_no_list(dir, "t-{008..011.tar", CT_CONFIG, "do not match");
	expect_no_list(dir, "t-008}.tar", CT_CONFIG, "do not match");
	expect_no_list(dir, "t-{{008}}.tar", CT_CONFIG, "do not match");
	expect_no_list(dir, "t-{008}.tar", CT_CONFIG, "neither a range nor a list");
	expect_no_list(dir, "t-{a..b}.tar", CT_CONFIG, "neither a range nor a list");
	expect_no_list(dir, "t-{011..008}.tar", CT_CONFIG, "decrease");
	expect_no_list(dir, "t-{0..999999999}.tar", CT_CONFIG, "more than");
	expect_no_list(dir, "7.tar sub 7.tar", CT_CONFIG, "twice");
	expect_no_list(dir, "s3://bucket/x.tar", CT_UNSUPPORTED, "file system");
	expect_no_list(dir, "pipe:cat", CT_UNSUPPORTED, "file system");
	file_write(dir, "my-train-0.tar", "x", 1);
	expect_list(dir, NULL, "my-train-0.tar");
	ct_free(sub);
	sub = ct_path_join(dir, "train");
	assert_ok(ct_dir_make(sub));
	file_write(sub, "0.tar", "x", 1);
	expect_list(dir, "", "train/0.tar");
	ct_free(sub);
	ct_free(dir);
	temp_dir_remove(top);
}

static void expect_bad(const ct_dataset *d, uint32_t i, const char *says)
{
	struct ct_bytes b = {0};
	int32_t y;
	enum ct_status st = ct_dataset_fetch(d, i, &b, &y);

	if (st != CT_DATA || !strstr(ct_error_message(), says))
		print_error("%s %s\n", ct_status_name(st), ct_error_message());
	assert_int_equal(st, CT_DATA);
	assert_non_null(strstr(ct_error_message(), says));
	assert_int_equal(b.n, 0);
	ct_free(b.data);
}

/* The sample is named, the others go on; nothing dies. */
static void test_changes(void **state)
{
	char *dir = temp_dir(), *path = ct_path_join(dir, "s-1.tar"), *away = ct_path_join(dir, "away");
	struct timespec times[2] = {{1600000000, 0}, {1600000000, 0}};
	struct stat sb;
	ct_dataset *d;

	(void)state;
	shard_write(dir, "s-0.tar", "a", 2, 0);
	shard_write(dir, "s-1.tar", "b", 2, 0);
	assert_ok(open_in(dir, "s-*.tar", &d));
	/* Before its descriptor is open: gone. Back again: as before. */
	assert_int_equal(rename(path, away), 0);
	expect_bad(d, 2, "s-1.tar: No such file");
	expect_sample(d, 0, "a000", 0, 700);
	assert_int_equal(rename(away, path), 0);
	expect_sample(d, 2, "b000", 0, 700);
	/* With the descriptor open: gone is all right, the file is still there. */
	assert_int_equal(rename(path, away), 0);
	expect_sample(d, 3, "b001", 1, 701);
	assert_int_equal(rename(away, path), 0);
	assert_int_equal(stat(path, &sb), 0);
	/* Touched, then set back. */
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	expect_bad(d, 2, "the shard has changed since it was indexed");
	times[0] = sb.st_atim;
	times[1] = sb.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	expect_sample(d, 2, "b000", 0, 700);
	/* Cut off inside of the second sample's image, with the old time on it. */
	assert_int_equal(truncate(path, 3300), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	expect_bad(d, 3, "the shard has changed");
	expect_bad(d, 2, "the shard has changed");
	expect_sample(d, 1, "a001", 1, 701);
	assert_int_equal(truncate(path, 0), 0);
	expect_bad(d, 2, "the shard has changed");
	ct_dataset_close(d);
	ct_free(away);
	ct_free(path);
	temp_dir_remove(dir);
}

static enum ct_status note_damaged(void *user, const struct ct_refusal *why)
{
	struct ct_str *all = user;

	assert_int_equal(strncmp(why->reason, why->tag, strlen(why->tag)), 0);
	ct_str_addf(all, "%s [%s] %s\n", why->where, why->tag, why->reason);
	return all->len > 1000 ? CT_FAIL(CT_IO, "that is enough") : CT_OK;
}

/* Who wants to hear of damaged shards gets the others; all of them may be damaged. */
static void test_damaged(void **state)
{
	char *dir = temp_dir();
	struct ct_str told = {0};
	struct ct_dataset_spec spec = {.name = "shards",
				       .dir = dir,
				       .path = "s-*.tar",
				       .threads = 3,
				       .on_damaged = note_damaged,
				       .user = &told};
	const char *first, *second;
	ct_dataset *d;

	(void)state;
	shard_write(dir, "s-1.tar", "b", 2, 0);
	text_write(dir, "s-0.tar", "<html>");
	text_write(dir, "s-2.tar", "");
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 2);
	assert_int_equal(ct_dataset_info(d)->n_groups, 3);
	expect_sample(d, 1, "b001", 1, 701);
	ct_dataset_close(d);
	first = strstr(ct_str_text(&told), "s-0.tar [tar-header] tar-header: ");
	second = strstr(ct_str_text(&told), "s-2.tar [empty] empty: ");
	assert_true(first && second && first < second);
	text_write(dir, "s-1.tar", "PK\3\4");
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 0);
	ct_dataset_close(d);
	/* An error of the listener is the opening's. */
	while (told.len < 1000)
		ct_str_add(&told, "...");
	assert_int_equal(ct_dataset_open(&spec, &d), CT_IO);
	ct_str_release(&told);
	spec.on_damaged = NULL;
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	temp_dir_remove(dir);
}

static void test_classes(void **state)
{
	char *dir = temp_dir();
	struct ct_refusal why;
	struct ct_dataset_spec spec = {.name = "shards", .dir = dir, .path = "*.tar", .n_classes = 3};
	ct_dataset *d, *v;
	struct bytes t = {0};

	(void)state;
	shard_write(dir, "a.tar", "k", 3, 1);
	/* One label too many: that sample is skipped, and named. */
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 2);
	assert_int_equal(ct_dataset_info(d)->n_skipped, 1);
	assert_int_equal(ct_dataset_info(d)->n_classes, 3);
	ct_dataset_skipped(d, 0, &why);
	assert_non_null(strstr(why.where, "a.tar: key \"k002\" at byte"));
	assert_string_equal(why.tag, "label");
	assert_string_equal(why.reason, "label: 3 is out of range: there are 3 classes");
	ct_dataset_close(d);
	/* Where it is most of them, data.classes is wrong. */
	spec.n_classes = 2;
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "2 of 3 labels are out of range: there are 2 classes"));
	assert_non_null(strstr(ct_error_message(), "a.tar: key \"k001\" at byte"));
	spec.n_classes = 10;
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n_classes, 10);
	ct_dataset_close(d);
	/* More names than labels: the names count. Fewer: the labels. */
	text_write(dir, "five", "# names\n3 n01440764 tench, Tinca\n0 a\n1 b\n2 c\n4 \033[2J\n");
	spec.n_classes = 0;
	spec.classes = "five";
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n_classes, 5);
	assert_string_equal(ct_dataset_class_name(d, 3), "tench, Tinca");
	assert_string_equal(ct_dataset_class_name(d, 4), "\\x1b[2J");
	text_write(dir, "two", "a\nb\n");
	spec.classes = "two";
	assert_ok(ct_dataset_open(&spec, &v));
	assert_int_equal(ct_dataset_info(v)->n_classes, 4);
	assert_ok(ct_dataset_check_classes(d, v));
	assert_int_equal(ct_dataset_check_classes(v, d), CT_DATA);
	ct_dataset_close(v);
	text_write(dir, "two", "a\nB\n");
	assert_ok(ct_dataset_open(&spec, &v));
	assert_int_equal(ct_dataset_check_classes(d, v), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "class 1 is \"b\""));
	ct_dataset_close(v);
	ct_dataset_close(d);
	text_write(dir, "two", "0 a\n2 b\n");
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	spec.classes = "none";
	assert_int_equal(ct_dataset_open(&spec, &d), CT_NOT_FOUND);
	/* Skipped samples are told, over shards. */
	spec.classes = NULL;
	tar_text(&t, "x\n.jpg", "x");
	tar_text(&t, "y.jpg", "x");
	file_write(dir, "b.tar", t.p, t.n);
	bytes_release(&t);
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n_skipped, 2);
	ct_dataset_skipped(d, 0, &why);
	assert_string_equal(why.where, "b.tar: key \"x\\x0a\" at byte 0");
	assert_string_equal(why.tag, "no-label");
	ct_dataset_close(d);
	spec.path = "b.tar";
	assert_int_equal(ct_dataset_open(&spec, &d), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "no sample can be used: 2 are skipped"));
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading), cmocka_unit_test(test_lists),   cmocka_unit_test(test_changes),
		cmocka_unit_test(test_damaged), cmocka_unit_test(test_classes),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
