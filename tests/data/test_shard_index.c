/* The samples of a shard, and cached indexes. */
#include "tests/data/tar_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "data/shards/shard_index.h"

static enum ct_status scan_bytes(const struct bytes *t, struct ct_shard_index *x)
{
	enum ct_status st;
	ct_tar *tar;

	assert_ok(ct_tar_open_memory(t->p, t->n, "dir/mem.tar", &tar));
	st = ct_shard_index_scan(tar, x);
	ct_tar_close(tar);
	return st;
}

static void expect_skipped(const struct ct_shard_index *x, uint32_t i, const char *key, const char *reason)
{
	assert_true(i < x->n_skipped);
	assert_string_equal(x->text + x->skipped[i].key, key);
	if (!strstr(x->text + x->skipped[i].reason, reason))
		print_error("%s: %s\n", key, x->text + x->skipped[i].reason);
	assert_non_null(strstr(x->text + x->skipped[i].reason, reason));
}

static void test_samples(void **state)
{
	struct bytes t = {0};
	struct ct_shard_index x;

	(void)state;
	tar_text(&t, "notes.json", "{}");
	tar_text(&t, "dir.v1/a.cls", "7");
	tar_text(&t, "dir.v1/a.json", "{}");
	tar_text(&t, "dir.v1/.hidden.jpg", "x");
	tar_typed(&t, TAR_USTAR, "dir.v1/", '5', "", 0);
	tar_text(&t, "dir.v1/a.JPEG", "image");
	tar_text(&t, "b.seg.png", "mask");
	tar_text(&t, "b.Png", "png");
	tar_text(&t, "b.CLS", " \n1048575\r\n");
	/* The same key, not one next to it. */
	tar_text(&t, "dir.v1/a.jpg", "im");
	tar_text(&t, "dir.v1/a.cls", "0");
	tar_end(&t);
	assert_ok(scan_bytes(&t, &x));
	assert_int_equal(x.n, 3);
	assert_int_equal(x.n_skipped, 0);
	assert_int_equal(x.max_label, 1048575);
	assert_int_equal(x.max_size, 5);
	assert_int_equal(x.bytes, t.n);
	assert_string_equal(x.text, "mem.tar");
	expect_indexed(&x, 0, "dir.v1/a", 7, 5);
	assert_memory_equal(t.p + x.samples[0].offset, "image", 5);
	expect_indexed(&x, 1, "b", 1048575, 3);
	expect_indexed(&x, 2, "dir.v1/a", 0, 2);
	assert_int_equal(x.n_unsafe, 0);
	ct_shard_index_release(&x);
	bytes_release(&t);
}

static void test_skipped(void **state)
{
	static const char *const labels[] = {"",   "cat", "0x10",    "7 8",         "-1",
					     "+1", "1.0", "1048576", "99999999999", "\t"};
	struct bytes t = {0};
	struct ct_shard_index x;
	uint32_t k = 0;

	(void)state;
	tar_text(&t, "good.jpg", "x");
	tar_text(&t, "good.cls", "1");
	tar_text(&t, "nolabel.jpg", "x");
	tar_text(&t, "noimage.cls", "1");
	tar_text(&t, "empty.jpg", "");
	tar_text(&t, "empty.cls", "1");
	tar_text(&t, "twice.jpg", "x");
	tar_text(&t, "twice.png", "x");
	tar_text(&t, "twice.cls", "1");
	tar_text(&t, "two.jpg", "x");
	tar_text(&t, "two.cls", "1");
	tar_text(&t, "two.cls", "2");
	tar_typed(&t, TAR_USTAR, "link.jpg", '2', "", 0);
	tar_text(&t, "link.cls", "1");
	for (size_t i = 0; i < CT_ARRAY_LEN(labels); i++) {
		char *image = ct_strfmt("l%zu.jpg", i), *cls = ct_strfmt("l%zu.cls", i);

		tar_text(&t, image, "x");
		tar_text(&t, cls, labels[i]);
		ct_free(image);
		ct_free(cls);
	}
	tar_text(&t, "nul.jpg", "x");
	tar_member(&t, "nul.cls", "7\0", 2);
	tar_end(&t);
	assert_ok(scan_bytes(&t, &x));
	assert_int_equal(x.n, 1);
	expect_indexed(&x, 0, "good", 1, 1);
	expect_skipped(&x, k++, "nolabel", "no-label: ");
	expect_skipped(&x, k++, "noimage", "no-image: ");
	expect_skipped(&x, k++, "empty", "empty: ");
	expect_skipped(&x, k++, "twice", "duplicate: 2 images");
	expect_skipped(&x, k++, "two", "duplicate: 1 images and 2 labels");
	expect_skipped(&x, k++, "link", "link: ");
	for (size_t i = 0; i < CT_ARRAY_LEN(labels); i++, k++) {
		char *key = ct_strfmt("l%zu", i);

		expect_skipped(&x, k, key, "label: ");
		ct_free(key);
	}
	expect_skipped(&x, k++, "nul", "\\x00");
	assert_int_equal(x.n_skipped, k);
	ct_shard_index_release(&x);
	bytes_release(&t);
}

static void test_nothing(void **state)
{
	struct bytes t = {0};
	struct ct_shard_index x;

	(void)state;
	tar_text(&t, "readme", "x");
	tar_text(&t, ".jpg", "x");
	tar_end(&t);
	assert_int_equal(scan_bytes(&t, &x), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "mem.tar: empty: "));
	bytes_release(&t);
}

static void test_unsafe_names(void **state)
{
	static const char *const bad[] = {"/a", "../a", "a/../b", "a\nb", "a\033b"}, *const good[] = {"a/b", "x y",
												      "\351"};
	struct bytes t = {0};
	struct ct_shard_index x;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		tar_sample(&t, bad[i], 1, 10);
	for (size_t i = 0; i < CT_ARRAY_LEN(good); i++)
		tar_sample(&t, good[i], 1, 10);
	assert_ok(scan_bytes(&t, &x));
	assert_int_equal(x.n, CT_ARRAY_LEN(bad) + CT_ARRAY_LEN(good));
	assert_int_equal(x.n_unsafe, CT_ARRAY_LEN(bad));
	ct_shard_index_release(&x);
	bytes_release(&t);
}

/* The oddities of a usable shard are reported even if its index comes from a file. */
static void test_oddities(void **state)
{
	struct bytes t = {0};
	struct ct_shard_index x, again;
	uint8_t *data;
	size_t n;

	(void)state;
	tar_sample(&t, "a", 1, 10);
	tar_sample(&t, "b", 2, 10);
	tar_sample(&t, "a", 3, 10);
	tar_sample(&t, "ab", 3, 10);
	tar_sample(&t, "a", 4, 10);
	assert_ok(scan_bytes(&t, &x));
	assert_int_equal(x.n, 5);
	assert_int_equal(x.n_repeated, 2);
	assert_int_equal(x.padding_cut, 0);
	ct_shard_index_release(&x);
	t.n -= 200;
	assert_ok(scan_bytes(&t, &x));
	assert_int_equal(x.n, 5);
	assert_int_equal(x.padding_cut, 1);
	assert_ok(ct_shard_index_pack(&x, &data, &n));
	assert_ok(ct_shard_index_unpack(data, n, "mem.tar", x.bytes, x.mtime_ns, &again));
	assert_int_equal(again.n_repeated, 2);
	assert_int_equal(again.padding_cut, 1);
	assert_int_equal(again.goes_on, 0);
	ct_shard_index_release(&again);
	ct_free(data);
	/* The labels that are too large go, the rest stays in order. */
	assert_ok(ct_shard_index_limit_labels(&x, 3));
	assert_int_equal(x.n, 2);
	assert_int_equal(x.max_label, 2);
	expect_indexed(&x, 0, "a", 1, 10);
	expect_indexed(&x, 1, "b", 2, 10);
	assert_int_equal(x.n_skipped, 3);
	expect_skipped(&x, 0, "a", "label: 3 is out of range: there are 3 classes");
	expect_skipped(&x, 1, "ab", "label: 3 is out of range");
	expect_skipped(&x, 2, "a", "label: 4 is out of range");
	assert_ok(ct_shard_index_limit_labels(&x, 3));
	assert_int_equal(x.n_skipped, 3);
	ct_shard_index_release(&x);
	bytes_release(&t);
}

static void test_kept(void **state)
{
	struct shard_place p = shard_place_make();
	struct timespec times[2] = {{1600000000, 0}, {1600000000, 1}};
	size_t n;
	char *data;

	(void)state;
	expect_open(&p, CT_SHARD_SCANNED, 5);
	expect_open(&p, CT_SHARD_CACHED, 5);
	/* Another time of the same second. */
	assert_int_equal(utimensat(AT_FDCWD, p.shard, times, 0), 0);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	times[1].tv_nsec = 2;
	assert_int_equal(utimensat(AT_FDCWD, p.shard, times, 0), 0);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	expect_open(&p, CT_SHARD_CACHED, 5);
	/* Another size, at the same time. */
	shard_write(p.dir, "s.tar", "k", 6, 10);
	assert_int_equal(utimensat(AT_FDCWD, p.shard, times, 0), 0);
	expect_open(&p, CT_SHARD_SCANNED, 6);
	/* Every byte matters, and so does the length. */
	assert_ok(ct_file_read(p.kept, 1 << 20, &data, &n));
	for (size_t i = 0; i < n; i += 7) {
		data[i] ^= 1;
		assert_ok(ct_file_replace(p.kept, data, n));
		expect_open(&p, CT_SHARD_SCANNED, 6);
		data[i] ^= 1;
	}
	for (size_t i = 0; i < n; i += 31) {
		assert_ok(ct_file_replace(p.kept, data, i));
		expect_open(&p, CT_SHARD_SCANNED, 6);
	}
	expect_open(&p, CT_SHARD_CACHED, 6);
	/* One of another version (behind the name of the format), nothing else being wrong. */
	data[8] ^= 1;
	ct_shard_index_seal((uint8_t *)data, n);
	assert_ok(ct_file_replace(p.kept, data, n));
	expect_open(&p, CT_SHARD_SCANNED, 6);
	expect_open(&p, CT_SHARD_CACHED, 6);
	/* A temporary file of a process that is writing the same index, which a killed process leaves. */
	char *temp = ct_strfmt("%s.tmp", p.kept);
	assert_int_equal(unlink(p.kept), 0);
	assert_ok(ct_file_replace(temp, data, n / 2));
	expect_open(&p, CT_SHARD_SCANNED, 6);
	assert_false(ct_file_exists(p.kept));
	assert_int_equal(utimensat(AT_FDCWD, temp, times, 0), 0);
	expect_open(&p, CT_SHARD_SCANNED, 6);
	expect_open(&p, CT_SHARD_CACHED, 6);
	assert_false(ct_file_exists(temp));
	ct_free(temp);
	/* A directory where the file should be. */
	assert_int_equal(unlink(p.kept), 0);
	assert_int_equal(mkdir(p.kept, 0700), 0);
	expect_open(&p, CT_SHARD_SCANNED, 6);
	ct_free(data);
	shard_place_remove(&p);
}

/* With the checksum made right again, entries that cannot be are still refused. */
static void test_forged(void **state)
{
	struct bytes t = {0};
	struct ct_shard_index x, y;
	uint8_t *data;
	size_t n, refused = 0;

	(void)state;
	tar_sample(&t, "a", 1, 100);
	tar_text(&t, "b.jpg", "x");
	assert_ok(scan_bytes(&t, &x));
	assert_ok(ct_shard_index_pack(&x, &data, &n));
	assert_ok(ct_shard_index_unpack(data, n, "mem.tar", x.bytes, x.mtime_ns, &y));
	assert_int_equal(y.crc, x.crc);
	assert_int_equal(y.n, x.n);
	assert_int_equal(y.n_skipped, 1);
	ct_shard_index_release(&y);
	assert_int_equal(ct_shard_index_unpack(data, n, "x.tar", x.bytes, x.mtime_ns, &y), CT_DATA);
	assert_int_equal(ct_shard_index_unpack(data, n, "mem.tar", x.bytes + 1, x.mtime_ns, &y), CT_DATA);
	assert_int_equal(ct_shard_index_unpack(data, n, "mem.tar", x.bytes, x.mtime_ns + 1, &y), CT_DATA);
	for (size_t i = 0; i < n; i++) {
		for (int bit = 0; bit < 8; bit++) {
			data[i] ^= (uint8_t)(1 << bit);
			ct_shard_index_seal(data, n);
			if (ct_shard_index_unpack(data, n, "mem.tar", x.bytes, x.mtime_ns, &y) == CT_OK) {
				assert_true(y.samples[0].offset + y.samples[0].size <= x.bytes);
				assert_true(y.samples[0].label >= 0);
				assert_true(y.samples[0].key + (uint64_t)y.samples[0].key_len < y.text_len);
				assert_true(y.skipped[0].key + (uint64_t)y.skipped[0].key_len < y.text_len);
				assert_true(y.skipped[0].reason < y.text_len);
				ct_shard_index_release(&y);
			} else {
				refused++;
			}
			data[i] ^= (uint8_t)(1 << bit);
		}
	}
	assert_in_range(refused, 300, 8 * n);
	ct_free(data);
	ct_shard_index_release(&x);
	bytes_release(&t);
}

/* A read-only directory: the index goes to the user's cache; where that cannot be written either, nowhere. */
static void test_places(void **state)
{
	struct shard_place p = shard_place_make();
	char *cache = temp_dir(), *own = ct_strfmt("%s/ctrain/index", cache),
	     *beside = ct_strfmt("%s/.ctrain-index", p.dir), *file = ct_path_join(cache, "file"), *kept;
	enum ct_shard_source source;
	struct ct_shard_index x;

	(void)state;
	assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
	assert_int_equal(chmod(p.dir, 0500), 0);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	expect_open(&p, CT_SHARD_CACHED, 5);
	assert_false(ct_file_exists(beside));
	kept = ct_shard_index_path(p.shard, own);
	assert_true(ct_file_exists(kept));
	/* Not a directory. */
	file_write(cache, "file", "x", 1);
	assert_int_equal(setenv("XDG_CACHE_HOME", file, 1), 0);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	/* A directory of one's own choice is the only place. */
	assert_ok(ct_shard_index_open(p.shard, own, &x, &source));
	assert_int_equal(source, CT_SHARD_CACHED);
	ct_shard_index_release(&x);
	assert_ok(ct_shard_index_open(p.shard, file, &x, &source));
	assert_int_equal(source, CT_SHARD_SCANNED);
	ct_shard_index_release(&x);
	assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
	assert_int_equal(chmod(p.dir, 0700), 0);
	ct_free(kept);
	ct_free(file);
	ct_free(beside);
	ct_free(own);
	temp_dir_remove(cache);
	shard_place_remove(&p);
}

/* Processes and threads that index one shard at the same time, from nothing and from a damaged file. */
static void *open_often(void *arg)
{
	const struct shard_place *p = arg;

	for (int i = 0; i < 20; i++) {
		enum ct_shard_source source;
		struct ct_shard_index x;

		if (ct_shard_index_open(p->shard, NULL, &x, &source) < 0 || x.n != 5)
			return arg;
		ct_shard_index_release(&x);
		if (i % 5 == 4)
			unlink(p->kept);
	}
	return NULL;
}

static void test_at_once(void **state)
{
	struct shard_place p = shard_place_make();
	char *directory = ct_path_dir(p.kept), **names;
	size_t n;

	(void)state;
	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			pthread_t a, b;
			void *ra, *rb;

			pthread_create(&a, NULL, open_often, &p);
			pthread_create(&b, NULL, open_often, &p);
			pthread_join(a, &ra);
			pthread_join(b, &rb);
			_exit(ra || rb);
		}
	}
	for (int i = 0; i < 4; i++) {
		int status;

		assert_true(wait(&status) > 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	expect_open(&p, CT_SHARD_SCANNED, 5);
	expect_open(&p, CT_SHARD_CACHED, 5);
	/* No temporary file is left. */
	assert_ok(ct_dir_list(directory, &names, &n));
	assert_int_equal(n, 1);
	ct_dir_list_free(names, n);
	ct_free(directory);
	shard_place_remove(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_samples),      cmocka_unit_test(test_skipped),  cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_unsafe_names), cmocka_unit_test(test_oddities), cmocka_unit_test(test_kept),
		cmocka_unit_test(test_forged),       cmocka_unit_test(test_places),   cmocka_unit_test(test_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
