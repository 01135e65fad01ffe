/* DALI's shard indexes are used only if they are correct and complete. */
#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"

static const char dali_head[] = "v1.2 5\n";

/* DALI's index of the shard of shard_place_make: members at 512 + ..., 700 + i bytes of image, then the label. */
static char *dali_text(int version, const char *head)
{
	struct ct_str s = {0};
	uint64_t at = 0;

	ct_str_add(&s, head);
	for (int i = 0; i < 5; i++) {
		uint64_t cls = at + 512 + 1024 + 512;

		if (version == 2)
			ct_str_addf(&s, "jpg %llu %d k%03d.jpg cls %llu 2 k%03d.cls\n", (unsigned long long)at + 512,
				    700 + i, i, (unsigned long long)cls, i);
		else
			ct_str_addf(&s, "jpg %llu %d cls %llu 2\n", (unsigned long long)at + 512, 700 + i,
				    (unsigned long long)cls);
		at = cls + 512;
	}
	assert_ok(ct_str_status(&s));
	return s.s;
}

static void test_taken(void **state)
{
	struct shard_place p = shard_place_make();
	struct ct_shard_index own, x;
	enum ct_shard_source source;
	ct_tar *tar;
	char *text = dali_text(2, dali_head);

	(void)state;
	assert_ok(ct_tar_open(p.shard, &tar));
	assert_ok(ct_shard_index_scan(tar, &own));
	ct_tar_close(tar);
	for (int v = 1; v <= 2; v++) {
		char *old = dali_text(v, v == 2 ? dali_head : "v1.1 5\n");

		assert_ok(ct_tar_open(p.shard, &tar));
		assert_ok(ct_shard_index_from_dali(tar, old, strlen(old), "s.idx", &x));
		assert_int_equal(x.n, own.n);
		assert_int_equal(x.crc, own.crc);
		for (uint32_t i = 0; i < x.n; i++)
			assert_string_equal(x.text + x.samples[i].key, own.text + own.samples[i].key);
		ct_shard_index_release(&x);
		ct_tar_close(tar);
		ct_free(old);
	}
	/* Beside the shard it is taken; and what it said is kept. */
	file_write(p.dir, "s.idx", text, strlen(text));
	expect_open(&p, CT_SHARD_DALI, 5);
	expect_open(&p, CT_SHARD_CACHED, 5);
	/* The shard grew: its index no longer fits, and is not ignored silently. */
	shard_write(p.dir, "s.tar", "k", 6, 10);
	assert_int_equal(ct_shard_index_open(p.shard, NULL, &x, &source), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "idx-stale"));
	assert_non_null(strstr(ct_error_hint_text(), "delete the .idx"));
	shard_write(p.dir, "s.tar", "longer-key", 5, 10);
	assert_int_equal(ct_shard_index_open(p.shard, NULL, &x, &source), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "idx-stale"));
	ct_shard_index_release(&own);
	ct_free(text);
	shard_place_remove(&p);
}

/* A pipe instead of DALI's index is not used as one: reading it would wait forever. */
static void test_pipe(void **state)
{
	struct shard_place p = shard_place_make();
	char *pipe = ct_path_join(p.dir, "s.idx");

	(void)state;
	assert_int_equal(mkfifo(pipe, 0600), 0);
	expect_open(&p, CT_SHARD_SCANNED, 5);
	ct_free(pipe);
	shard_place_remove(&p);
}

static void test_damage(void **state)
{
	static const struct {
		const char *text, *tag;
	} cases[] = {
		{"", "empty"},
		{"v1.2", "idx-version"},
		{"v2.0 1\n", "idx-version"},
		{"v1.2\n", "idx-parse"},
		{"v1.2 x\n", "idx-parse"},
		{"v1.2 1 2\n", "idx-parse"},
		{"v1.2 99999999999999999999\n", "idx-parse"},
		{"v1.2 999999999999\n", "idx-count"},
		{"v1.2 1\n\n", "idx-parse"},
		{"v1.2 1\njpg 512 700", "idx-parse"},
		{"v1.2 1\njpg 512 700\n", "idx-parse"},
		{"v1.2 1\njpg 5l2 700 k000.jpg\n", "idx-parse"},
		{"v1.2 1\njpg 512 99999999999999999999 k000.jpg\n", "idx-parse"},
		{"v1.2 1\njpg -512 700 k000.jpg\n", "idx-range"},
		{"v1.2 1\njpg 512 999999999999999999 k000.jpg\n", "idx-range"},
		{"v1.2 1\njpg 0 700 k000.jpg\n", "idx-stale: line 2: no member's data"},
		{"v1.2 1\njpg 513 700 k000.jpg\n", "idx-stale"},
		{"v1.2 1\njpg 512 701 k000.jpg\n", "idx-stale: line 2: another member"},
		{"v1.2 1\njpg 512 700 k001.jpg\n", "idx-stale: line 2: another member"},
		{"v1.2 1\ncls 512 700 k000.jpg\n", "another extension"},
		{"v1.2 1\njpg 512 700 k000.jpg cls 2048 2 k000.cls\n",
		 "line 2: no line contains the image \"k001.jpg\" at byte 3072"},
		{"v1.2 1\njpg 512 700 k000.jpg\njpg", "idx-count"},
	};
	struct shard_place p = shard_place_make();

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_shard_index x;
		enum ct_status st;
		ct_tar *tar;

		assert_ok(ct_tar_open(p.shard, &tar));
		st = ct_shard_index_from_dali(tar, cases[i].text, strlen(cases[i].text), "s.idx", &x);
		if (st != CT_DATA || !strstr(ct_error_message(), cases[i].tag))
			print_error("%s: %s\n", cases[i].text, ct_error_message());
		assert_int_equal(st, CT_DATA);
		assert_non_null(strstr(ct_error_message(), cases[i].tag));
		ct_tar_close(tar);
	}
	shard_place_remove(&p);
}

/* Of the index of the shard of shard_place_make: so many lines of it, in this order. */
static enum ct_status pick_lines(const char *shard, const int *lines, size_t n, struct ct_shard_index *x)
{
	char *whole = dali_text(2, "");
	struct ct_str some = {0};
	enum ct_status st;
	ct_tar *tar;

	ct_str_addf(&some, "v1.2 %zu\n", n);
	for (size_t i = 0; i < n; i++) {
		const char *line = whole;

		for (int k = 0; k < lines[i]; k++)
			line = strchr(line, '\n') + 1;
		ct_str_add_bytes(&some, line, strcspn(line, "\n") + 1);
	}
	assert_ok(ct_str_status(&some));
	assert_ok(ct_tar_open(shard, &tar));
	st = ct_shard_index_from_dali(tar, some.s, some.len, "s.idx", x);
	ct_tar_close(tar);
	ct_str_release(&some);
	ct_free(whole);
	return st;
}

/* Any order will do, but no sample is lost or counted double without a word. */
static void test_chain(void **state)
{
	static const int backwards[] = {4, 3, 2, 1, 0};
	struct shard_place p = shard_place_make();
	struct ct_shard_index x;

	(void)state;
	assert_ok(pick_lines(p.shard, backwards, 5, &x));
	assert_int_equal(x.n, 5);
	expect_indexed(&x, 1, "k003", 13, 703);
	ct_shard_index_release(&x);
	for (int out = 0; out < 5; out++) {
		int rest[6], n = 0;
		char says[64];

		for (int i = 0; i < 5; i++) {
			if (i != out)
				rest[n++] = i;
		}
		assert_int_equal(pick_lines(p.shard, rest, 4, &x), CT_DATA);
		snprintf(says, sizeof(says), "no line contains the image \"k%03d.jpg\" at byte ", out);
		assert_non_null(strstr(ct_error_message(), "s.idx: idx-stale: line "));
		assert_non_null(strstr(ct_error_message(), says));
		rest[n++] = out;
		rest[n++] = out;
		assert_int_equal(pick_lines(p.shard, rest, 6, &x), CT_DATA);
		assert_non_null(strstr(ct_error_message(), "is listed twice"));
	}
	shard_place_remove(&p);
}

/* Adds to an index the member that is to be appended to t. */
static void list_next(struct ct_str *s, const struct bytes *t, const char *ext, size_t n, const char *name)
{
	ct_str_addf(s, "%s %zu %zu %s ", ext, t->n + CT_TAR_BLOCK, n, name);
}

/* Between the listed members may lie what wds2idx leaves out, and headers for long names; behind the last one the
 * padding may be missing. */
static void test_gaps(void **state)
{
	struct bytes t = {0};
	struct ct_str s = {0};
	struct ct_shard_index own, x;
	char *record = pax_record("path", "long/b.jpg");
	ct_tar *tar;
	size_t end;

	(void)state;
	ct_str_add(&s, "v1.2 2\n");
	tar_text(&t, "README", "x");
	tar_typed(&t, TAR_USTAR, "dir/", '5', "", 0);
	tar_text(&t, "dir/.hidden.jpg", "x");
	list_next(&s, &t, "jpg", 3, "dir/a.jpg");
	tar_text(&t, "dir/a.jpg", "aaa");
	tar_text(&t, "dir/a.json", "{}");
	list_next(&s, &t, "cls", 1, "dir/a.cls");
	tar_text(&t, "dir/a.cls", "1");
	ct_str_add(&s, "\n");
	tar_typed(&t, TAR_USTAR, "PaxHeader", 'x', record, strlen(record));
	list_next(&s, &t, "jpg", 4, "long/b.jpg");
	tar_text(&t, "long/b.jpg", "bbbb");
	list_next(&s, &t, "cls", 1, "long/b.cls");
	end = t.n + CT_TAR_BLOCK + 1;
	tar_text(&t, "long/b.cls", "2");
	ct_str_add(&s, "\n");
	assert_ok(ct_str_status(&s));
	for (int whole = 0; whole < 2; whole++) {
		if (whole)
			tar_end(&t);
		assert_ok(ct_tar_open_memory(t.p, whole ? t.n : end, "x.tar", &tar));
		assert_ok(ct_shard_index_scan(tar, &own));
		assert_ok(ct_shard_index_from_dali(tar, s.s, s.len, "x.idx", &x));
		assert_int_equal(x.n, 2);
		assert_int_equal(x.crc, own.crc);
		ct_shard_index_release(&own);
		ct_shard_index_release(&x);
		ct_tar_close(tar);
	}
	ct_free(record);
	ct_str_release(&s);
	bytes_release(&t);
}

/* A member inside of the data of another one. */
static void test_inside(void **state)
{
	struct bytes inner = {0}, t = {0};
	struct ct_shard_index x;
	struct ct_str s = {0};
	ct_tar *tar;

	(void)state;
	tar_text(&inner, "a.jpg", "aaa");
	tar_text(&inner, "a.cls", "1");
	ct_str_addf(&s, "v1.2 1\njpg 1024 3 a.jpg cls 2048 1 a.cls\n");
	tar_member(&t, "inner.bin", inner.p, inner.n);
	tar_end(&t);
	assert_ok(ct_str_status(&s));
	assert_ok(ct_tar_open_memory(t.p, t.n, "x.tar", &tar));
	assert_int_equal(ct_shard_index_from_dali(tar, s.s, s.len, "x.idx", &x), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "the member at byte 1024 is inside another one"));
	ct_tar_close(tar);
	ct_str_release(&s);
	bytes_release(&inner);
	bytes_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken), cmocka_unit_test(test_pipe), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_chain), cmocka_unit_test(test_gaps), cmocka_unit_test(test_inside),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
