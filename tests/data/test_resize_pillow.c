/* Compares random resizes with those of the installed Pillow. The test is skipped if Pillow is missing. */
#include "tests/data/resize_cases.h"

#include <stdlib.h>
#include <sys/wait.h>

static void test_pillow(void **state)
{
	struct resize_result sum;
	FILE *lines;
	int rc;

	(void)state;
	lines = popen("for p in /usr/bin/python3 python3; do $p -c 'import PIL' 2>/dev/null && "
		      "exec $p " CT_SOURCE_DIR "/tests/data/make_resize_golden.py 60 1; done; exit 77",
		      "r");
	assert_non_null(lines);
	sum = resize_cases_run(lines);
	rc = pclose(lines);
	if (WEXITSTATUS(rc) == 77) {
		print_message("skipped: no python3 with Pillow\n");
		skip();
	}
	assert_int_equal(rc, 0);
	print_message("%d cases, %ld of %ld values differ, by %d at most\n", sum.cases, sum.different, sum.values,
		      sum.most);
	assert_int_equal(sum.cases, 60);
	assert_in_range(sum.most, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pillow)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
