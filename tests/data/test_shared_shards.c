/* The real and the malformed shards in ../shared/data, which is not part of the project. The test is skipped if that
 * directory is missing. */
#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/shards/shard_index.h"

struct expect {
	const char *file;
	uint32_t n, n_skipped;
};

/* Samples of the files that have not one of each. */
static const struct expect counts[] = {
	{"tar/good.tar", 3, 0},          {"tar/good-cls-first.tar", 2, 0}, {"tar/good-extras.tar", 1, 0},
	{"tar/good-upper.tar", 3, 0},    {"tar/good-dots.tar", 2, 0},      {"tar/unknown-type.tar", 1, 0},
	{"tar/after-eof.tar", 3, 0},     {"tar/missing-jpg.tar", 2, 1},    {"tar/duplicate-member.tar", 0, 1},
	{"tar/interleaved.tar", 0, 4},   {"tar/cls-word.tar", 2, 1},       {"tar/cls-hex.tar", 2, 1},
	{"tar/cls-empty.tar", 2, 1},     {"tar/cls-nul.tar", 2, 1},        {"tar/cls-two.tar", 2, 1},
	{"tar/cls-big.tar", 2, 1},       {"tar/empty-jpg.tar", 2, 1},      {"tar/traversal.tar", 3, 0},
	{"tar/control-names.tar", 3, 0},
};

static void check_counts(const char *file, const struct ct_shard_index *x)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(counts); i++) {
		if (strcmp(counts[i].file, file) == 0) {
			assert_int_equal(x->n, counts[i].n);
			assert_int_equal(x->n_skipped, counts[i].n_skipped);
			return;
		}
	}
	assert_in_range(x->n, 1, 3);
	assert_int_equal(x->n_skipped, 0);
}

static bool printable(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == 127)
			return false;
	}
	return true;
}

/* Reads every sample; none may lie outside of the file. */
static void read_samples(ct_tar *tar, const struct ct_shard_index *x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		uint8_t magic[2];

		assert_ok(ct_tar_read(tar, magic, 2, x->samples[i].offset));
		assert_int_equal(magic[0], 0xff);
		assert_int_equal(magic[1], 0xd8);
	}
}

static void check_tar(const char *file, const char *path, const char *verdict, const char *tag)
{
	struct ct_shard_index x = {0};
	enum ct_status st;
	ct_tar *tar;

	assert_ok(ct_tar_open(path, &tar));
	st = ct_shard_index_scan(tar, &x);
	if (strcmp(verdict, "reject") == 0) {
		if (st != CT_DATA || !strstr(ct_error_message(), tag))
			print_error("%s (%s): %s %s\n", file, tag, ct_status_name(st), ct_error_message());
		assert_int_equal(st, CT_DATA);
		assert_non_null(strstr(ct_error_message(), tag));
		assert_non_null(strstr(ct_error_message(), strchr(file, '/') + 1));
		assert_true(printable(ct_error_message()));
		ct_tar_close(tar);
		return;
	}
	if (st < 0)
		print_error("%s: %s\n", file, ct_error_message());
	assert_int_equal(st, CT_OK);
	check_counts(file, &x);
	read_samples(tar, &x);
	if (strcmp(verdict, "skip") == 0) {
		const char *reason = x.text + x.skipped[0].reason;

		if (strncmp(reason, tag, strlen(tag)) != 0)
			print_error("%s (%s): %s\n", file, tag, reason);
		assert_int_equal(strncmp(reason, tag, strlen(tag)), 0);
		assert_true(printable(reason));
	}
	assert_int_equal(x.n_unsafe, strcmp(verdict, "warn") ? 0 : strstr(file, "control") ? 2 : 3);
	assert_int_equal(x.goes_on, strcmp(file, "tar/after-eof.tar") == 0);
	ct_shard_index_release(&x);
	ct_tar_close(tar);
}

static void check_idx(const char *bad, const char *file, const char *path, const char *verdict, const char *tag)
{
	char *shard = ct_path_join(bad, "wdsidx/good.tar"), *text;
	struct ct_shard_index x, own;
	enum ct_status st;
	size_t len;
	ct_tar *tar;

	assert_ok(ct_tar_open(shard, &tar));
	assert_ok(ct_shard_index_scan(tar, &own));
	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	st = ct_shard_index_from_dali(tar, text, len, path, &x);
	if (strcmp(verdict, "ok") == 0) {
		assert_ok(st);
		assert_int_equal(x.n, 3);
		assert_int_equal(x.crc, own.crc);
		ct_shard_index_release(&x);
	} else {
		if (st != CT_DATA || !strstr(ct_error_message(), tag))
			print_error("%s (%s): %s %s\n", file, tag, ct_status_name(st), ct_error_message());
		assert_int_equal(st, CT_DATA);
		assert_non_null(strstr(ct_error_message(), tag));
		assert_non_null(strstr(ct_error_message(), strchr(file, '/') + 1));
		assert_true(printable(ct_error_message()));
		assert_non_null(strstr(ct_error_hint_text(), "delete the .idx"));
	}
	ct_shard_index_release(&own);
	ct_tar_close(tar);
	ct_free(text);
	ct_free(shard);
}

static void test_bad_files(void **state)
{
	char *bad = shared_path("data/bad"), *index, *text, *line, *rest;
	size_t before = peak_rss_bytes(), len;
	int n_tar = 0, n_idx = 0;

	(void)state;
	if (!bad)
		skip();
	index = ct_path_join(bad, "INDEX.tsv");
	assert_ok(ct_file_read(index, 1 << 20, &text, &len));
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *file = strsep(&line, "\t"), *verdict = strsep(&line, "\t"), *tag = strsep(&line, "\t");
		char *path = tag ? ct_path_join(bad, file) : NULL;

		if (tag && (strncmp(file, "tar/", 4) == 0 || strcmp(file, "wdsidx/good.tar") == 0)) {
			check_tar(file, path, verdict, tag);
			n_tar++;
		} else if (tag && strncmp(file, "wdsidx/", 7) == 0) {
			check_idx(bad, file, path, verdict, tag);
			n_idx++;
		}
		ct_free(path);
	}
	assert_in_range(n_tar, 46, 1000);
	assert_in_range(n_idx, 11, 1000);
	/* Sizes that are only declared cost nothing. */
	assert_true(peak_rss_bytes() - before < (size_t)16 << 20);
	ct_free(text);
	ct_free(index);
	ct_free(bad);
}

/* Nothing was made under the names that try. */
static void test_traversal(void **state)
{
	(void)state;
	assert_int_equal(access("/tmp/ctrain-evil-a.jpg", F_OK), -1);
	assert_int_equal(access("/tmp/ctrain-evil-b.jpg", F_OK), -1);
}

/* The shards of one half in a temporary directory, as links, with or without DALI's indexes. */
static void link_shards(const char *from, const char *to, const char *half, const char *extension)
{
	char **names;
	size_t n, found = 0;

	assert_ok(ct_dir_list(from, &names, &n));
	for (size_t i = 0; i < n; i++) {
		char *target = ct_path_join(from, names[i]), *path = ct_path_join(to, names[i]);
		size_t len = strlen(names[i]);

		if (strstr(names[i], half) && len > 4 && strcmp(names[i] + len - 4, extension) == 0) {
			assert_int_equal(symlink(target, path), 0);
			found++;
		}
		ct_free(path);
		ct_free(target);
	}
	assert_true(found > 0);
	ct_dir_list_free(names, n);
}

static void check_real(const char *half, uint32_t n, const char *first_key, int first_label)
{
	char *from = shared_path("data/imagenet-wds"), hex[2][65], key[200];
	struct ct_bytes b = {0};

	if (!from)
		skip();
	for (int dali = 0; dali < 2; dali++) {
		char *dir = temp_dir();
		struct ct_dataset_spec spec = {.name = "shards", .dir = dir, .threads = 2, .train = half[0] == 't'};
		ct_dataset *d;

		link_shards(from, dir, half, ".tar");
		if (dali)
			link_shards(from, dir, half, ".idx");
		for (int again = 0; again < 2; again++) {
			assert_ok(ct_dataset_open(&spec, &d));
			assert_int_equal(ct_dataset_info(d)->n, n);
			assert_int_equal(ct_dataset_info(d)->n_skipped, 0);
			ct_dataset_key(d, 0, key, sizeof(key));
			assert_string_equal(key, first_key);
			ct_dataset_digest(d, hex[dali]);
			assert_string_equal(hex[dali], hex[0]);
			for (uint32_t i = 0; i < n; i++) {
				int32_t y;

				assert_ok(ct_dataset_fetch(d, i, &b, &y));
				assert_in_range(y, 0, 999);
				assert_true(b.n > 500 && b.data[0] == 0xff && b.data[1] == 0xd8);
				assert_true(i > 0 || y == first_label);
			}
			ct_dataset_close(d);
		}
		temp_dir_remove(dir);
	}
	ct_free(b.data);
	ct_free(from);
}

static void test_real_train(void **state)
{
	(void)state;
	check_real("train", 320, "n04023962_punching_bag", 747);
}

static void test_real_val(void **state)
{
	(void)state;
	check_real("val", 80, "n02117135_hyena", 276);
}

/* The label is the place of the key's WNID in the sorted list. */
static void test_real_labels(void **state)
{
	char *from = shared_path("data/imagenet-wds"), *index, key[200];
	struct ct_dataset_spec spec = {.name = "shards", .dir = from, .path = "*.tar"};
	ct_dataset *d;

	(void)state;
	if (!from)
		skip();
	index = temp_dir();
	spec.index_dir = index;
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, 400);
	assert_int_equal(ct_dataset_info(d)->n_classes, 1000);
	for (uint32_t i = 0; i < 400; i++) {
		struct ct_bytes b = {0};
		const char *name;
		int32_t y;

		assert_ok(ct_dataset_fetch(d, i, &b, &y));
		ct_dataset_key(d, i, key, sizeof(key));
		name = ct_dataset_class_name(d, y);
		assert_non_null(name);
		/* n04023962_punching_bag is of class punching_bag. */
		assert_non_null(strchr(key, '_'));
		if (strncmp(strchr(key, '_') + 1, name, strlen(name)) != 0)
			print_error("%s: %s\n", key, name);
		assert_int_equal(strncmp(strchr(key, '_') + 1, name, strlen(name)), 0);
		ct_free(b.data);
	}
	ct_dataset_close(d);
	temp_dir_remove(index);
	ct_free(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_files), /* first: it looks at the peak of memory */
		cmocka_unit_test(test_traversal), cmocka_unit_test(test_real_train),
		cmocka_unit_test(test_real_val),  cmocka_unit_test(test_real_labels),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
