/* The table of NCCL's defects. Neither the version that scripts/setup_cuda.sh installs nor a config meets it. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "dist/settings/nccl_defects.h"

static void refused(int version, const char *says)
{
	assert_int_equal(ct_nccl_check_defects(version, true), CT_UNSUPPORTED);
	assert_non_null(strstr(ct_error_message(), says));
	assert_non_null(strstr(ct_error_hint_text(), "dist.nccl_windows=false"));
	ct_error_clear();
	assert_int_equal(ct_nccl_check_defects(version, false), CT_OK);
}

static void test_versions(void **state)
{
	(void)state;
	assert_int_equal(ct_nccl_check_defects(22707, true), CT_OK);
	refused(22803, "NCCL 2.28.3 may compute wrong sums of small messages");
	refused(22806, "NCCL 2.28.6 may compute wrong sums of small messages");
	refused(22807, "NCCL 2.28.7 may read registered windows before the gradients in them are complete");
	refused(23006, "NCCL 2.30.6 may read registered windows before the gradients in them are complete");
	assert_int_equal(ct_nccl_check_defects(23007, true), CT_OK);
	assert_int_equal(ct_nccl_check_defects(23203, true), CT_OK);
}

/* Returns the version of NCCL in a list of wheels, or -1. */
static int pinned_in(const char *wheels)
{
	const char *line = strstr(wheels, "\nnvidia-nccl-cu13==");
	int major, minor, patch;

	if (!line || sscanf(line, "\nnvidia-nccl-cu13==%d.%d.%d ", &major, &minor, &patch) != 3)
		return -1;
	return major * 10000 + minor * 100 + patch;
}

static char *text_of(const char *path)
{
	char *text;
	size_t len;

	assert_int_equal(ct_file_read(path, 1 << 20, &text, &len), CT_OK);
	return text;
}

static bool uses_windows(const char *config)
{
	return strstr(config, "nccl_windows: true") != NULL;
}

static void test_pinned_version(void **state)
{
	char *wheels = text_of(CT_SOURCE_DIR "/scripts/cuda_wheels.txt");
	const int pinned = pinned_in(wheels);
	glob_t configs;

	(void)state;
	ct_free(wheels);
	assert_int_equal(pinned_in("#\nnvidia-nccl-cu13==2.28.9 \\\n"), 22809);
	assert_true(uses_windows("dist:\n  nccl_windows: true\n"));
	/* The options of the command line, too. */
	assert_int_equal(ct_nccl_check_defects(pinned, false), CT_OK);
	assert_int_equal(ct_nccl_check_defects(pinned, true), CT_OK);
	assert_true(pinned > 0);
	/* An installed NCCL may be older. */
	assert_int_equal(glob(CT_SOURCE_DIR "/configs/*.yaml", 0, NULL, &configs), 0);
	for (size_t i = 0; i < configs.gl_pathc; i++) {
		char *config = text_of(configs.gl_pathv[i]);

		if (uses_windows(config))
			fail_msg("%s uses windows, which NCCL 2.28 must not have", configs.gl_pathv[i]);
		ct_free(config);
	}
	globfree(&configs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_pinned_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
