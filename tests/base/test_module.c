#include "base/module.h"

#include "tests/base/check.h"
#include "tests/base/module_fixture.h"

/* A call from the module uses this program's error chain, not a separate one. */
static void test_calls_back(void **state)
{
	const struct ct_fixture *fixture;
	const void *symbol, *again;

	(void)state;
	assert_ok(ct_module_open("ct_fixture.so", "ct_fixture", &symbol));
	fixture = symbol;
	assert_fails(fixture->raise(CT_DATA, "f", 1, "from %s", "outside"), CT_DATA, "from outside");
	assert_ok(ct_module_open("ct_fixture.so", "ct_fixture", &again));
	assert_ptr_equal(symbol, again);
}

static void test_not_there(void **state)
{
	const void *symbol;

	(void)state;
	assert_fails(ct_module_open("ct_nothing.so", "x", &symbol), CT_UNSUPPORTED, "cannot find ct_nothing.so in ");
	assert_non_null(strstr(ct_error_hint_text(), "do not move one"));
	assert_null(symbol);
	assert_fails(ct_module_open("ct_fixture.so", "ct_other", &symbol), CT_UNSUPPORTED,
		     "ct_fixture.so is not a module of this program");
	assert_null(symbol);
}

/* A module from an earlier or later build is refused before anything in it is called. */
static void test_other_build(void **state)
{
	const void *symbol;

	(void)state;
	assert_fails(ct_module_open("ct_fixture.so", "ct_fixture_other_abi", &symbol), CT_UNSUPPORTED,
		     "ct_fixture.so has module interface 2, but this program has 1");
	assert_null(symbol);
	assert_fails(ct_module_open("ct_fixture.so", "ct_fixture_other_build", &symbol), CT_UNSUPPORTED,
		     "ct_fixture.so is from build 0.0.9-abc, but this program is from build " CT_BUILD_ID);
	assert_non_null(strstr(ct_error_hint_text(), "together"));
	assert_null(symbol);
}

static void test_no_module(void **state)
{
	const void *symbol;

	(void)state;
	assert_ok(ct_file_replace("ct_text.so", "no module", 9));
	/* The working directory is searched only if the program is in it. */
	if (ct_module_open("ct_text.so", "x", &symbol) == CT_OK || !strstr(ct_error_message(), "ct_text.so"))
		fail_msg("\"%s\"", ct_error_message());
	assert_int_equal(remove("ct_text.so"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_back),
		cmocka_unit_test(test_not_there),
		cmocka_unit_test(test_other_build),
		cmocka_unit_test(test_no_module),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
