#include "tests/base/check.h"

static void test_growing(void **state)
{
	struct ct_str b = {0};
	char *s;

	(void)state;
	assert_string_equal(ct_str_text(&b), "");
	for (int i = 0; i < 1000; i++)
		ct_str_addf(&b, "%d,", i);
	ct_str_add(&b, "end");
	ct_str_add_bytes(&b, "\0x", 2);
	assert_ok(ct_str_status(&b));
	assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 3 + 2);
	assert_memory_equal(b.s, "0,1,2,3,", 8);
	assert_int_equal(b.s[b.len], 0);
	ct_str_clear(&b);
	assert_string_equal(ct_str_text(&b), "");
	ct_str_add(&b, "again");
	assert_string_equal(ct_str_text(&b), "again");
	ct_str_release(&b);
	ct_str_release(&b);

	s = ct_strfmt("%s-%d", "a", 5);
	assert_string_equal(s, "a-5");
	ct_free(s);
	s = ct_strfmt("%s", "");
	assert_string_equal(s, "");
	ct_free(s);
	s = ct_strndup("abcdef", 3);
	assert_string_equal(s, "abc");
	ct_free(s);
	s = ct_strndup("ab", 3);
	assert_string_equal(s, "ab");
	ct_free(s);
}

static void test_out_of_memory_is_sticky(void **state)
{
	struct ct_str b = {0};

	(void)state;
	ct_str_add(&b, "first");
	ct_mem_fail_after(1);
	ct_str_addf(&b, "%200d", 1);
	ct_str_add(&b, "x");
	assert_string_equal(ct_str_text(&b), "first");
	assert_fails(ct_str_status(&b), CT_NOMEM, "out of memory");
	ct_str_release(&b);
	assert_ok(ct_str_status(&b));
	ct_mem_fail_after(1);
	assert_null(ct_strfmt("%d", 1));
	ct_error_clear();
}

static void test_escapes(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"plain", "plain"},
		{"a\tb\nc\x7f", "a\\x09b\\x0ac\\x7f"},
		{"h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
		{"\xC2\x9B[m", "\\xc2\\x9b[m"}, /* a control character of two bytes */
		{"\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAF",
		 "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\xE2\x80\xAF"}, /* line breaks of YAML */
		/* Controls of the direction of writing, and their neighbors. */
		{"\xD8\x9B\xD8\x9C\xD8\x9D", "\xD8\x9B\\xd8\\x9c\xD8\x9D"},
		{"\xE2\x80\x8D\xE2\x80\x8E\xE2\x80\x8F\xE2\x80\x90",
		 "\xE2\x80\x8D\\xe2\\x80\\x8e\\xe2\\x80\\x8f\xE2\x80\x90"},
		{"\xE2\x80\xAA|\xE2\x80\xAE", "\\xe2\\x80\\xaa|\\xe2\\x80\\xae"},
		{"\xE2\x81\xA5\xE2\x81\xA6|\xE2\x81\xA9\xE2\x81\xAA",
		 "\xE2\x81\xA5\\xe2\\x81\\xa6|\\xe2\\x81\\xa9\xE2\x81\xAA"},
		{"\xC0\xAF", "\\xc0\\xaf"}, /* overlong */
		{"\xE0\x80\xAF", "\\xe0\\x80\\xaf"},
		{"\xED\xA0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
		{"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* past U+10FFFF */
		{"\xE2\x82", "\\xe2\\x82"},                   /* ends early */
		{"\x80x\xFF", "\\x80x\\xff"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_str b = {0};

		ct_str_add_escaped(&b, cases[i].in, strlen(cases[i].in), 100);
		assert_string_equal(ct_str_text(&b), cases[i].out);
		assert_int_equal(ct_utf8_valid(cases[i].in, strlen(cases[i].in)), i <= 8);
		ct_str_release(&b);
	}
}

static void test_csv(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"", ""},
		{"cat", "cat"},
		{"a,b", "\"a,b\""},
		{"a;b", "\"a;b\""},
		{"say \"a\"\n", "\"say \"\"a\"\"\n\""},
		{"=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""},
		{"@SUM(1)", "\"'@SUM(1)\""},
		{"+1+cmd", "\"'+1+cmd\""},
		{"-2+3", "\"'-2+3\""},
		{"-", "\"'-\""},
		{"\t=1", "\"'\t=1\""},
		{"\xEF\xBC\x9D"
		 "1",
		 "\"'\xEF\xBC\x9D"
		 "1\""},
		{"\xEF\xBC\x90", "\xEF\xBC\x90"},
		{"-12.5e3", "-12.5e3"},
		{"+7", "+7"},
		{"a=b", "a=b"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_str b = {0};

		ct_str_add_csv(&b, cases[i].in);
		assert_string_equal(ct_str_text(&b), cases[i].out);
		ct_str_release(&b);
	}
}

static void test_escaped_cut(void **state)
{
	struct ct_str b = {0};

	(void)state;
	ct_str_add_escaped(&b, "abcdef", 6, 6);
	assert_string_equal(ct_str_text(&b), "abcdef");
	ct_str_clear(&b);
	ct_str_add_escaped(&b, "abcdefg", 7, 6);
	assert_string_equal(ct_str_text(&b), "abcdef...");
	ct_str_clear(&b);
	ct_str_add_escaped(&b, "ab\xC3\xA9", 4, 3); /* a character is never split */
	assert_string_equal(ct_str_text(&b), "ab...");
	ct_str_clear(&b);
	ct_str_add_escaped(&b, "a\0b", 3, 10);
	assert_string_equal(ct_str_text(&b), "a\\x00b");
	ct_str_clear(&b);
	ct_str_add_lines(&b, "a\033[2J\n\n\xC3\xA9\r\xFF");
	assert_string_equal(ct_str_text(&b), "a\\x1b[2J\n\n\xC3\xA9\\x0d\\xff");
	ct_str_release(&b);
}

static void test_bytes(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 bytes"},
		{1, "1 byte"},
		{1023, "1023 bytes"},
		{1024, "1.00 KiB"},
		{1536, "1.50 KiB"},
		{1670077749888u, "1.52 TiB"},
		{(uint64_t)10 << 30, "10.0 GiB"},
		{(uint64_t)999 << 20, "999 MiB"},
		{((uint64_t)1 << 30) - 1, "1.00 GiB"},
		{UINT64_MAX, "16.0 EiB"},
	};
	char text[CT_BYTES_TEXT];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		assert_string_equal(ct_bytes_text(cases[i].bytes, text), cases[i].text);
}

static void test_suggest(void **state)
{
	static const char *const words[] = {"batch", "cosine", "constant", "resnet18", "resnet50", "sgd",
					    "adamw", "global", "lr",       "info",     "per_rank"};
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"bacth", "batch"},
		{"resnet5", "resnet50"},
		{"ResNet18", "resnet18"},
		{"cos", "cosine"},
		{"sdg", "sgd"},
		{"adam", "adamw"},
		{"gobal", "global"},
		{"per-rank", "per_rank"},
		{"constnat", "constant"},
		{"inof", "info"},
		{"zzz", NULL},
		{"", NULL},
		{"x", NULL},
		{"transformer", NULL},
		{"ab", NULL},
		{"lt", "lr"},
	};
	char big[2000];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		const char *got = ct_suggest(cases[i].in, words, CT_ARRAY_LEN(words));

		if (!cases[i].out)
			assert_null(got);
		else if (!got || strcmp(got, cases[i].out) != 0)
			fail_msg("\"%s\": %s, not %s", cases[i].in, got ? got : "nothing", cases[i].out);
	}
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_null(ct_suggest(big, words, CT_ARRAY_LEN(words)));
	assert_null(ct_suggest("batch", words, 0));
}

static void test_whole_numbers(void **state)
{
	static const char *const bad[] = {"",
					  " 1",
					  "1 ",
					  "1.0",
					  "0x10",
					  "1e3",
					  "+",
					  "-",
					  "--1",
					  "one",
					  "1\n",
					  "1,",
					  "9223372036854775808",
					  "-9223372036854775809",
					  "1-1"};
	int64_t v = 77;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		assert_int_equal(ct_parse_i64(bad[i], &v), CT_USAGE);
		assert_int_equal(v, 77);
	}
	assert_ok(ct_parse_i64("9223372036854775807", &v));
	assert_int_equal(v, INT64_MAX);
	assert_ok(ct_parse_i64("-9223372036854775808", &v));
	assert_int_equal(v, INT64_MIN);
	assert_ok(ct_parse_i64("007", &v));
	assert_int_equal(v, 7);
	assert_ok(ct_parse_i64("+5", &v));
	assert_int_equal(v, 5);
	assert_fails(ct_parse_i64("12\x1bx", &v), CT_USAGE, "\"12\\x1bx\"");
}

static void test_env_numbers(void **state)
{
	(void)state;
	assert_int_equal(setenv("CT_TEST_NUMBER", "-12", 1), 0);
	assert_int_equal(ct_env_i64("CT_TEST_NUMBER", 5), -12);
	assert_int_equal(setenv("CT_TEST_NUMBER", "12x", 1), 0);
	CT_FAIL(CT_IO, "an earlier error");
	assert_int_equal(ct_env_i64("CT_TEST_NUMBER", 5), 5);
	assert_string_equal(ct_error_message(), "an earlier error");
	ct_error_clear();
	assert_int_equal(unsetenv("CT_TEST_NUMBER"), 0);
	assert_int_equal(ct_env_i64("CT_TEST_NUMBER", 5), 5);
}

static void test_ranges(void **state)
{
	static const char *const bad[] = {"",     "-",     "1-",  "-5",   "5",    "5-4", "0-5",
					  "5-11", "1-2-3", "1,2", " 1-2", "1-2 ", "a-b", "99999999999999999999-5"};
	int64_t a, b;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		if (ct_parse_range(bad[i], 1, 10, &a, &b))
			fail_msg("\"%s\" was accepted", bad[i]);
	}
	assert_true(ct_parse_range("1-10", 1, 10, &a, &b) && a == 1 && b == 10);
	assert_true(ct_parse_range("7-7", 1, 10, &a, &b) && a == 7 && b == 7);
}

static void test_real_numbers(void **state)
{
	static const char *const bad[] = {"",   " 1", "1 ", "nan",   "inf",   "-inf", "0x1p3",
					  "1e", "e5", ".",  "1.2.3", "1e999", "1,5"};
	double v = 77;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		assert_int_equal(ct_parse_f64(bad[i], &v), CT_USAGE);
		assert_true(v == 77);
	}
	assert_ok(ct_parse_f64("1e-4", &v));
	assert_true(v == 1e-4);
	assert_ok(ct_parse_f64("-.5", &v));
	assert_true(v == -0.5);
	assert_ok(ct_parse_f64("3", &v));
	assert_true(v == 3);
	assert_ok(ct_parse_f64("1e-999", &v)); /* underflow gives zero */
	assert_true(v == 0);
}

static void test_sort(void **state)
{
	char a[] = "a", upper[] = "B", b[] = "b", accent[] = "\xc3\xa9", *texts[] = {accent, b, a, upper};

	(void)state;
	ct_strings_sort(texts, CT_ARRAY_LEN(texts));
	assert_true(texts[0] == upper && texts[1] == a && texts[2] == b && texts[3] == accent);
	ct_strings_sort(NULL, 0);
}

static void test_shell_words(void **state)
{
	static const struct {
		const char *word, *quoted;
	} cases[] = {
		{"a/b.c=1,2", "a/b.c=1,2"}, {"", "''"},           {"a b", "'a b'"},
		{"it's", "'it'\\''s'"},     {"$HOME", "'$HOME'"}, {"a\nb", "'a\nb'"},
	};
	struct ct_str out = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct_str_add_shell(&out, cases[i].word);
		assert_string_equal(ct_str_text(&out), cases[i].quoted);
		ct_str_clear(&out);
	}
	ct_str_release(&out);
}

static void test_word_in(void **state)
{
	(void)state;
	assert_true(ct_word_in("nodes nnodes n", "nnodes", 6));
	assert_true(ct_word_in("master-addr", "master_addr", 11));
	assert_true(ct_word_in("a b", "b=1", 1));
	assert_false(ct_word_in("nodes nnodes n", "node", 4));
	assert_false(ct_word_in("nodes", "nodes2", 6));
	assert_false(ct_word_in("", "a", 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_growing),      cmocka_unit_test(test_out_of_memory_is_sticky),
		cmocka_unit_test(test_csv),          cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_escaped_cut),  cmocka_unit_test(test_suggest),
		cmocka_unit_test(test_bytes),        cmocka_unit_test(test_whole_numbers),
		cmocka_unit_test(test_real_numbers), cmocka_unit_test(test_sort),
		cmocka_unit_test(test_shell_words),  cmocka_unit_test(test_word_in),
		cmocka_unit_test(test_env_numbers),  cmocka_unit_test(test_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
