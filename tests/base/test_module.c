#include "base/process/module.h"

#include <unistd.h>

#include "base/device/cuda_module.h"
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

/* A library is loaded from `path`, else by the dynamic linker, else from `last`; and its path is known. */
static void test_library(void **state)
{
	char path[512], cwd[512];

	(void)state;
	assert_fails(ct_library_open("", "libct_nothing.so", "/nowhere"), CT_UNSUPPORTED, "libct_nothing.so");
	assert_null(ct_library_symbol("libct_nothing.so", "x"));
	assert_ok(ct_library_open("/nowhere", "libm.so.6", NULL));
	ct_library_path(ct_library_symbol("libm.so.6", "cos"), path, sizeof(path));
	assert_true(path[0] == '/' && strstr(path, "libm"));
	assert_int_equal(ct_file_replace("ct_no_library.so.1", "no library", 10), CT_OK);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_fails(ct_library_open(cwd, "ct_no_library.so.1", NULL), CT_UNSUPPORTED, "ct_no_library.so.1");
	assert_fails(ct_library_open("", "ct_no_library.so.1", cwd), CT_UNSUPPORTED, cwd);
	assert_int_equal(remove("ct_no_library.so.1"), 0);
	ct_library_path(NULL, path, sizeof(path));
	assert_string_equal(path, "");
}

/* The directories in which pip installs libraries, those of the active environment first. */
static void test_wheel_path(void **state)
{
	char *nvidia = ct_strfmt("%s/lib/python3.11/site-packages/nvidia", (char *)*state);
	char *cu13 = ct_strfmt("%s/cu13/lib", nvidia), *cudnn = ct_strfmt("%s/cudnn/lib", nvidia);
	char *want = ct_strfmt("%s:%s", cu13, cudnn);
	struct ct_str path = {0};

	assert_ok(ct_dir_make(cudnn));
	assert_ok(ct_dir_make(cu13));
	assert_int_equal(setenv("VIRTUAL_ENV", *state, 1), 0);
	assert_ok(ct_cuda_wheel_path(&path));
	assert_int_equal(strncmp(ct_str_text(&path), want, strlen(want)), 0);
	ct_str_release(&path);
	ct_free(want);
	ct_free(cudnn);
	ct_free(cu13);
	ct_free(nvidia);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_back),
		cmocka_unit_test(test_not_there),
		cmocka_unit_test(test_other_build),
		cmocka_unit_test(test_no_module),
		cmocka_unit_test(test_library),
		cmocka_unit_test_setup_teardown(test_wheel_path, make_scratch, drop_scratch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
