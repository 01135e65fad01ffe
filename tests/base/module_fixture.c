/* The shared object of test_module.c: a table with a function of the program that loads it, and tables of other
 * builds. */
#include "tests/base/module_fixture.h"

#define FIXTURE(name, number, id)            \
	extern const struct ct_fixture name; \
	const struct ct_fixture name = {{number, id}, ct_error_set}

FIXTURE(ct_fixture, CT_MODULE_ABI, CT_BUILD_ID);
FIXTURE(ct_fixture_other_abi, CT_MODULE_ABI + 1, CT_BUILD_ID);
FIXTURE(ct_fixture_other_build, CT_MODULE_ABI, "0.0.9-abc");
