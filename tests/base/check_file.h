/* Checks of files for unit tests. */
#ifndef CT_TESTS_BASE_CHECK_FILE_H
#define CT_TESTS_BASE_CHECK_FILE_H

#include "tests/base/check.h"

static inline void assert_holds(const char *path, const char *expected)
{
	char *text;
	size_t len;

	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	assert_int_equal(len, strlen(expected));
	assert_string_equal(text, expected);
	ct_free(text);
}

/* Makes a new directory in the scratch directory. Returns its path, owned. */
static inline char *sub_folder(void **state, const char *name)
{
	char *dir = ct_path_join(*state, name);

	assert_ok(ct_dir_make(dir));
	return dir;
}

#endif
