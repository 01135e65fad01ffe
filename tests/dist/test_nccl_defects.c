/* The table of NCCL's defects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
