/* A directory for the plan cache of a test, and the log that the test reads. */
#ifndef CT_TESTS_NN_CUDA_PLAN_CACHE_CHECK_H
#define CT_TESTS_NN_CUDA_PLAN_CACHE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "nn/plan_cache.h"
#include "tests/nn/nn_check.h"

static char dir[64]; /* XDG_CACHE_HOME */

static inline int new_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ctrain-tune-XXXXXX");
	if (!mkdtemp(dir) || setenv("XDG_CACHE_HOME", dir, 1) != 0)
		return -1;
	return 0;
}

static inline int remove_dir(void **state)
{
	(void)state;
	ct_log_close();
	return ct_dir_remove(dir) == CT_OK ? 0 : -1;
}

/* The log, which the caller frees. */
static inline char *logged(void)
{
	char *path = ct_path_join(dir, "log"), *text;
	size_t n;

	assert_ok(ct_file_read(path, 1 << 20, &text, &n));
	ct_free(path);
	return text;
}

static inline void open_log(void)
{
	char *path = ct_path_join(dir, "log");

	assert_ok(ct_log_open_file(path));
	ct_free(path);
}

static inline bool has_logged(const char *what)
{
	char *text = logged();
	const bool found = strstr(text, what);

	ct_free(text);
	return found;
}

static inline ct_plan_cache *open_cache(const char *of)
{
	ct_plan_cache *c;

	assert_ok(ct_plan_cache_create(of, &c));
	assert_ok(ct_plan_cache_load(c));
	return c;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, new_dir, remove_dir)

#endif
