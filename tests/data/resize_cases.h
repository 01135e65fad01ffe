/* Runs ctrain's resize on the test cases that make_resize_golden.py prints. */
#ifndef CT_TESTS_DATA_RESIZE_CASES_H
#define CT_TESTS_DATA_RESIZE_CASES_H

#include <stdio.h>

#include "tests/data/fixture.h"

struct resize_result {
	int cases;
	long values, different; /* number of values that differ from Pillow's */
	int most;               /* the largest difference */
};
struct resize_result resize_cases_run(FILE *lines);

#endif
