#include "tests/base/check.h"

static void assert_owned(char *got, const char *expected)
{
	assert_string_equal(got, expected);
	ct_free(got);
}

static void test_paths(void **state)
{
	(void)state;
	assert_owned(ct_path_join("a", "b"), "a/b");
	assert_owned(ct_path_join("a/", "b"), "a/b");
	assert_owned(ct_path_join("a", "/b"), "/b");
	assert_owned(ct_path_join("", "b"), "b");
	assert_owned(ct_path_dir("a/b"), "a");
	assert_owned(ct_path_dir("a//b/"), "a");
	assert_owned(ct_path_dir("b"), ".");
	assert_owned(ct_path_dir("/b"), "/");
	assert_owned(ct_path_dir("/"), "/");
	assert_owned(ct_path_dir(""), ".");
	assert_string_equal(ct_path_name("a/b"), "b");
	assert_string_equal(ct_path_name("/a/b/"), "");
	assert_string_equal(ct_path_name("b"), "b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
