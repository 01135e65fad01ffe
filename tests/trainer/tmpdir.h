/* cmocka with what it needs, and a temporary directory of one test program: tmpdir_setup creates it, tmpdir_teardown removes
 * it with everything in it. */
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

/* Path of `name` in the folder; each of the last 8 results stays valid. */
static inline const char *in_tmpdir(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", tmpdir, name);
	return path;
}

/* The call went well, or the test fails with the error's message. */
#define assert_ok(expr)                                                                                   \
	do {                                                                                              \
		enum ct_status assert_ok_st_ = (expr);                                                    \
		if (assert_ok_st_ != CT_OK)                                                               \
			fail_msg("%s: %s: %s", #expr, ct_status_name(assert_ok_st_), ct_error_message()); \
	} while (0)
/* The call failed with this status, and the message holds the text. */
#define assert_fails(expr, status, text)                                                                        \
	do {                                                                                                    \
		enum ct_status assert_fails_st_ = (expr);                                                       \
		if (assert_fails_st_ != (status) || !strstr(ct_error_message(), (text)))                        \
			fail_msg("%s: %s: \"%s\", not %s with \"%s\"", #expr, ct_status_name(assert_fails_st_), \
				 ct_error_message(), ct_status_name(status), (text));                           \
	} while (0)

#endif
