/* The straggler: from the times of all ranks to the rank, the bucket and the phase. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "trainer/run/metrics/straggler.h"

enum { RANKS = 5, BUCKETS = 3, VALUES = CT_PACE_BUCKETS + BUCKETS };

/* 100 ms per step: 10 data, 30 forward, 50 backward, 8 optimizer, 2 other. The buckets are reached after 60, 80 and 100
 * ms. */
static const double calm[VALUES] = {0.010, 0.030, 0.050, 0.008, 0.002, 0.100, 0.110, 0.060, 0.080, 0.100};
static double all[RANKS][VALUES], scratch[RANKS];

static void reset(void)
{
	for (int r = 0; r < RANKS; r++)
		memcpy(all[r], calm, sizeof(calm));
}

static void lose(int rank, enum ct_pace phase, double seconds, int from_bucket)
{
	all[rank][phase] += seconds;
	all[rank][CT_PACE_BUSY] += seconds;
	for (int b = from_bucket; b < BUCKETS; b++)
		all[rank][CT_PACE_BUCKETS + b] += seconds;
}

static bool find(int n_ranks, struct ct_straggler *out)
{
	return ct_straggler_find(&all[0][0], n_ranks, BUCKETS, 1.25, scratch, out);
}

static void test_phases(void **state)
{
	struct ct_straggler f;

	(void)state;
	for (int n = 2; n <= RANKS; n++) {
		for (int rank = 0; rank < n; rank++) {
			for (int p = 0; p < CT_PACE_PHASES; p++) {
				reset();
				lose(rank, (enum ct_pace)p, 0.040, p == CT_PACE_BACKWARD ? 1 : 0);
				assert_true(find(n, &f));
				assert_int_equal(f.rank, rank);
				assert_int_equal(f.phase, p);
				assert_int_equal(f.bucket, p == CT_PACE_BACKWARD ? 1 : 0);
				assert_float_equal(f.late_s, 0.040, 1e-9);
				assert_float_equal(f.ratio, 1.4, 1e-9);
				assert_float_equal(f.phase_s, calm[p] + 0.040, 1e-9);
				assert_float_equal(f.others_s, calm[p], 1e-9);
			}
		}
	}
}

static void test_limit(void **state)
{
	struct ct_straggler f;

	(void)state;
	reset();
	assert_false(find(RANKS, &f));
	lose(2, CT_PACE_DATA, 0.024, 0);
	assert_false(find(RANKS, &f));
	lose(2, CT_PACE_DATA, 0.002, 0);
	assert_true(find(RANKS, &f));
	/* One other slow rank is not the median of the others. */
	lose(3, CT_PACE_FORWARD, 0.030, 0);
	assert_true(find(RANKS, &f));
	assert_int_equal(f.rank, 3);
	/* If most ranks are slow, none of them is a straggler. */
	for (int r = 0; r < RANKS; r++)
		lose(r, CT_PACE_FORWARD, 0.200, 0);
	assert_false(find(RANKS, &f));
	/* A delay of some microseconds does not matter, even if the steps are short. */
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < VALUES; i++)
			all[r][i] = calm[i] * 1e-3;
	lose(1, CT_PACE_DATA, 90e-6, 0);
	assert_false(find(RANKS, &f));
	lose(1, CT_PACE_DATA, 20e-6, 0);
	assert_true(find(RANKS, &f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_phases), cmocka_unit_test(test_limit)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
