/* The table that the shared object of test_module.c exports. */
#ifndef CT_TESTS_BASE_MODULE_FIXTURE_H
#define CT_TESTS_BASE_MODULE_FIXTURE_H

#include "base/process/module.h"

struct ct_fixture {
	struct ct_module_head head;
	enum ct_status (*raise)(enum ct_status, const char *, int, const char *, ...);
};

#endif
