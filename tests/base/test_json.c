#include "base/json.h"

#include <math.h>

#include "tests/base/check.h"

static ct_json *parse(const char *text)
{
	ct_json *j = NULL;

	if (ct_json_parse(text, strlen(text), "t.json", &j) < 0)
		fail_msg("%s: %s", text, ct_error_message());
	return j;
}

static void assert_dumps(const ct_json *j, bool pretty, const char *expected)
{
	struct ct_str b = {0};

	assert_ok(ct_json_dump(j, pretty, &b));
	assert_string_equal(ct_str_text(&b), expected);
	ct_str_release(&b);
}

static void test_build_and_dump(void **state)
{
	ct_json *o = ct_json_object(), *list = ct_json_array(), *sub = ct_json_object();

	(void)state;
	ct_json_set_i64(o, "z", INT64_MIN);
	ct_json_set_str(o, "a", "q\"\\\n\x01\t/\xC3\xA9");
	ct_json_set_f64(o, "f", 0.1);
	ct_json_set_bool(o, "b", true);
	ct_json_push_i64(list, 1);
	ct_json_push_str(list, "two");
	ct_json_push(list, ct_json_array());
	ct_json_set(o, "list", list);
	ct_json_set_f64(sub, "nan", NAN);
	ct_json_set_str(sub, "null", NULL);
	ct_json_set(o, "sub", sub);
	ct_json_set(o, "empty", ct_json_object());
	assert_dumps(o, false,
		     "{\"z\":-9223372036854775808,\"a\":\"q\\\"\\\\\\n\\u0001\\t/\xC3\xA9\",\"f\":0.1,\"b\":true,"
		     "\"list\":[1,\"two\",[]],\"sub\":{\"nan\":null,\"null\":null},\"empty\":{}}");
	ct_json_destroy(o);
	o = parse("{\"b\":[1,{\"c\":2.5}],\"a\":{}}");
	assert_dumps(o, true, "{\n  \"b\": [\n    1,\n    {\n      \"c\": 2.5\n    }\n  ],\n  \"a\": {}\n}");
	ct_json_destroy(o);
	ct_json_destroy(NULL);
}

static void test_doubles_survive(void **state)
{
	static const struct {
		double v;
		const char *text;
	} cases[] = {
		{0.1, "0.1"},
		{1, "1.0"},
		{-0.0, "-0.0"},
		{1e300, "1e+300"},
		{1.0 / 3, "0.3333333333333333"},
		{5e-324, NULL},
		{1.7976931348623157e308, NULL},
		{123456789012345678.0, NULL},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct_json *o = ct_json_object(), *back;
		struct ct_str b = {0};
		double v = 0;

		ct_json_set_f64(o, "v", cases[i].v);
		assert_ok(ct_json_dump(o, false, &b));
		if (cases[i].text)
			assert_non_null(strstr(b.s, cases[i].text));
		back = parse(b.s);
		assert_ok(ct_json_get_f64(back, "v", &v));
		assert_memory_equal(&v, &cases[i].v, sizeof(v));
		/* A double never becomes an integer. */
		assert_false(ct_json_as_i64(ct_json_get(back, "v"), &(int64_t){0}));
		ct_json_destroy(o);
		ct_json_destroy(back);
		ct_str_release(&b);
	}
}

static void test_strings_of_any_bytes(void **state)
{
	ct_json *o = ct_json_object();

	(void)state;
	ct_json_set_str(o, "k", "ok \xff\n");
	ct_json_set_str(o, "\xfe", "x");
	assert_dumps(o, false, "{\"k\":\"ok \\\\xff\\\\x0a\",\"\\\\xfe\":\"x\"}");
	ct_json_destroy(o);
}

static void test_readers(void **state)
{
	ct_json *o =
		parse("{\"s\":\"x\\u00e9\\ud83d\\ude00\",\"i\":5,\"f\":2.5,\"t\":true,\"n\":null,\"a\":[1,\"b\"]}");
	const ct_json *value = NULL, *a = ct_json_get(o, "a");
	const char *s = NULL;
	void *cursor = NULL;
	int64_t i = 0;
	double f = 0;
	bool t = false;

	(void)state;
	assert_ok(ct_json_get_str(o, "s", &s));
	assert_string_equal(s, "x\xC3\xA9\xF0\x9F\x98\x80");
	assert_ok(ct_json_get_i64(o, "i", &i));
	assert_int_equal(i, 5);
	assert_ok(ct_json_get_f64(o, "i", &f));
	assert_true(f == 5);
	assert_ok(ct_json_get_f64(o, "f", &f));
	assert_true(f == 2.5);
	assert_ok(ct_json_get_bool(o, "t", &t));
	assert_true(t);
	assert_fails(ct_json_get_i64(o, "f", &i), CT_DATA, "\"f\"");
	assert_fails(ct_json_get_str(o, "i", &s), CT_DATA, "an integer, not a string");
	assert_fails(ct_json_get_bool(o, "n", &t), CT_DATA, "null");
	assert_fails(ct_json_get_f64(o, "s", &f), CT_DATA, "a string");
	assert_fails(ct_json_get_i64(o, "none", &i), CT_DATA, "\"none\" is missing");
	assert_fails(ct_json_get_i64(a, "x", &i), CT_DATA, "missing");
	assert_fails(ct_json_get_i64(NULL, "x", &i), CT_DATA, "missing");
	assert_int_equal(i, 5);

	assert_true(ct_json_is_object(o) && ct_json_is_array(a) && !ct_json_is_array(o) && !ct_json_is_object(NULL));
	assert_int_equal(ct_json_len(o), 6);
	assert_int_equal(ct_json_len(a), 2);
	assert_int_equal(ct_json_len(ct_json_get(o, "s")), 0);
	assert_int_equal(ct_json_len(NULL), 0);
	assert_true(ct_json_as_i64(ct_json_at(a, 0), &i) && i == 1);
	double real = 0;
	assert_true(ct_json_as_f64(ct_json_at(a, 0), &real) && real == 1);
	assert_false(ct_json_as_f64(a, &real));
	assert_string_equal(ct_json_as_str(ct_json_at(a, 1)), "b");
	assert_null(ct_json_as_str(ct_json_at(a, 0)));
	assert_null(ct_json_at(a, 2));
	assert_null(ct_json_at(o, 0));
	size_t n = 0;
	while ((s = ct_json_next(o, &cursor, &value))) {
		assert_ptr_equal(value, ct_json_get(o, s));
		n++;
		if (n == 6)
			assert_true(strcmp(s, "a") == 0 && value == a); /* in the order of insertion */
	}
	assert_int_equal(n, 6);
	ct_json_destroy(o);
}

static void test_bad_input(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "t.json:1:"},
		{"{", "t.json:1:"},
		{"{\"a\":1,\n \"b\":}", "t.json:2:"},
		{"{\"a\":1,\"a\":2}", "duplicate"},
		{"{\"a\":1} x", "t.json:1:"},
		{"[1,]", "t.json:1:"},
		{"{'a':1}", "t.json:1:"},
		{"[NaN]", "t.json:1:"},
		{"[01]", "t.json:1:"},
		{"[9223372036854775808]", "integer"},
		{"[1e999]", "real number overflow"},
		{"[\"\\u0000\"]", "u0000"},
		{"[\"\\ud800\"]", "t.json:1:"},
		{"[\"\xff\"]", "t.json:1:"},
		{"[\"a\nb\"]", "newline"},
		{"[\"\x1b[31m]", "t.json:1:"},
		{"]]]]", "t.json:1:"},
		{"\"", "t.json:1:"},
		{"\"\\", "t.json:1:"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct_json *j = NULL;

		if (ct_json_parse(cases[i].text, strlen(cases[i].text), "t.json", &j) == CT_OK)
			fail_msg("\"%s\" was taken", cases[i].text);
		assert_int_equal(ct_error_status(), CT_DATA);
		if (!strstr(ct_error_message(), cases[i].message))
			fail_msg("%s: no \"%s\"", ct_error_message(), cases[i].message);
		assert_null(strpbrk(ct_error_message(), "\n\x1b\xff"));
		assert_null(j);
	}
	ct_error_clear();
}

static void test_limits(void **state)
{
	size_t n = 3000000;
	char *text = ct_calloc(n, 1);
	ct_json *j = NULL;

	(void)state;
	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	assert_fails(ct_json_parse(text, 130, "t.json", &j), CT_DATA, "t.json:1:65: nested deeper than 64");
	assert_ok(ct_json_parse(text + 1, 128, "t.json", &j));
	ct_json_destroy(j);
	/* Brackets in strings do not count, and an escaped quote does not end a string. */
	memset(text, '[', 200);
	memcpy(text, "[\"\\\"", 4);
	memcpy(text + 198, "\"]", 2);
	assert_ok(ct_json_parse(text, 200, "t.json", &j));
	ct_json_destroy(j);
	for (size_t i = 1; i < n; i += 2)
		memcpy(text + i, "1,", i + 1 < n ? 2 : 1);
	text[0] = '[';
	text[n - 1] = ']';
	assert_fails(ct_json_parse(text, n, "t.json", &j), CT_DATA, "more than 1000000 values");
	assert_fails(ct_json_parse(text, ((size_t)64 << 20) + 1, "t.json", &j), CT_DATA, "over the limit");
	ct_free(text);
	ct_error_clear();
}

static enum ct_status build(struct ct_str *out)
{
	ct_json *o = ct_json_object(), *list = ct_json_array(), *sub = ct_json_object();
	enum ct_status st;

	ct_json_push_str(list, "x");
	ct_json_push_i64(list, 1);
	ct_json_set(o, "list", list);
	ct_json_set_str(sub, "bad", "\xff");
	ct_json_set(o, "sub", sub);
	ct_json_set_f64(o, "f", 0.5);
	st = ct_json_dump(o, false, out);
	ct_json_destroy(o);
	return st;
}

static void test_out_of_memory_shows_at_the_dump(void **state)
{
	static const char expected[] = "{\"list\":[\"x\",1],\"sub\":{\"bad\":\"\\\\xff\"},\"f\":0.5}";
	enum ct_status st = CT_NOMEM;
	uint64_t n;

	(void)state;
	for (n = 1; st < 0; n++) {
		struct ct_str b = {0};
		ct_json *j = NULL;

		ct_mem_fail_after(n);
		st = build(&b);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			assert_string_equal(ct_str_text(&b), expected);
		else
			assert_int_equal(st, CT_NOMEM);
		ct_str_release(&b);
		ct_mem_fail_after(n);
		if (ct_json_parse(expected, strlen(expected), "t.json", &j) < 0)
			assert_int_equal(ct_error_status(), CT_NOMEM);
		ct_mem_fail_after(0);
		ct_json_destroy(j);
	}
	assert_true(n > 10);
	ct_error_clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_build_and_dump),
		cmocka_unit_test(test_doubles_survive),
		cmocka_unit_test(test_strings_of_any_bytes),
		cmocka_unit_test(test_readers),
		cmocka_unit_test(test_bad_input),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_out_of_memory_shows_at_the_dump),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
