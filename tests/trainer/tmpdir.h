/* Includes cmocka and the headers that it needs, and provides a temporary directory for one test program. tmpdir_setup
 * creates the directory, and tmpdir_teardown removes it with its contents. */
#ifndef CT_TESTS_TRAINER_TMPDIR_H
#define CT_TESTS_TRAINER_TMPDIR_H

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

static char tmpdir[256];

static inline int tmpdir_setup(void **state)
{
	const char *root = getenv("TMPDIR");

	(void)state;
	snprintf(tmpdir, sizeof(tmpdir), "%s/ctrain-test-XXXXXX", root && *root ? root : "/tmp");
	return mkdtemp(tmpdir) ? 0 : -1;
}

static inline int tmpdir_teardown(void **state)
{
	(void)state;
	return ct_dir_remove(tmpdir) < 0 ? -1 : 0;
}

/* Returns the path of `name` in the temporary directory. The 8 most recent results remain valid. */
static inline const char *in_tmpdir(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", tmpdir, name);
	return path;
}

/* Fails the test with the error message unless the call succeeds. */
#define assert_ok(expr)                                                                                   \
	do {                                                                                              \
		enum ct_status assert_ok_st_ = (expr);                                                    \
		if (assert_ok_st_ != CT_OK)                                                               \
			fail_msg("%s: %s: %s", #expr, ct_status_name(assert_ok_st_), ct_error_message()); \
	} while (0)
/* Fails the test unless the call returns `status` and the error message contains `text`. */
#define assert_fails(expr, status, text)                                                                        \
	do {                                                                                                    \
		enum ct_status assert_fails_st_ = (expr);                                                       \
		if (assert_fails_st_ != (status) || !strstr(ct_error_message(), (text)))                        \
			fail_msg("%s: %s: \"%s\", not %s with \"%s\"", #expr, ct_status_name(assert_fails_st_), \
				 ct_error_message(), ct_status_name(status), (text));                           \
	} while (0)

#endif
