/* cmocka with the headers that it requires, and a scratch directory for tests that write files. */
#ifndef CT_TESTS_BASE_CHECK_H
#define CT_TESTS_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

#define assert_ok(expr) assert_int_equal((expr), CT_OK)
/* Asserts that the call fails with status `st` and that the message contains `part`. */
#define assert_fails(expr, st, part)                                                                    \
	do {                                                                                            \
		assert_int_equal((expr), (st));                                                         \
		assert_int_equal(ct_error_status(), (st));                                              \
		if (!strstr(ct_error_message(), (part)))                                                \
			fail_msg("message \"%s\" does not contain \"%s\"", ct_error_message(), (part)); \
	} while (0)

/* Set-up and tear-down functions of a test group. *state is the path of a directory, which is empty at the start. */
static inline int make_scratch(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char *path = ct_path_join(tmp && *tmp ? tmp : "/tmp", "ctrain-test-XXXXXX");

	*state = path;
	return path && mkdtemp(path) ? 0 : -1;
}

static inline int drop_scratch(void **state)
{
	int rc = ct_dir_remove(*state) == CT_OK ? 0 : -1;

	ct_free(*state);
	return rc;
}

#endif
