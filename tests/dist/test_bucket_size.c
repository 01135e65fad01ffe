/* The choice of the bucket size for known durations of all-reduces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "dist/bucket_size.h"

enum { MIB = 1 << 20 };

/* Chooses for 100 MiB of gradients in slices of 1/2 MiB, if an all-reduce takes alpha + n beta. */
static size_t choose(double alpha_us, double mib_per_ms)
{
	struct ct_bucket_slice slices[200];
	struct ct_allreduce_time times[4];
	double ready[CT_ARRAY_LEN(slices)];
	size_t cap = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(slices); i++) {
		slices[i] = (struct ct_bucket_slice){i * MIB / 8, MIB / 8, CT_F32};
		ready[i] = (double)(i + 1) / CT_ARRAY_LEN(slices);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(times); i++) {
		times[i].bytes = (size_t)MIB << (2 * i);
		times[i].ns = (int64_t)(1e3 * alpha_us + 1e6 * (double)(1 << (2 * i)) / mib_per_ms);
	}
	assert_int_equal(
		ct_bucket_choose_size(slices, ready, CT_ARRAY_LEN(slices), MIB, times, CT_ARRAY_LEN(times), &cap),
		CT_OK);
	return cap;
}

static void test_interpolation(void **state)
{
	const struct ct_allreduce_time t[] = {{100, 50}, {200, 60}, {400, 100}};

	(void)state;
	assert_true(ct_allreduce_ns(t, 3, 1) == 50);
	assert_true(ct_allreduce_ns(t, 3, 100) == 50);
	assert_true(ct_allreduce_ns(t, 3, 150) == 55);
	assert_true(ct_allreduce_ns(t, 3, 200) == 60);
	assert_true(ct_allreduce_ns(t, 3, 300) == 80);
	assert_true(ct_allreduce_ns(t, 3, 400) == 100);
	assert_true(ct_allreduce_ns(t, 3, 500) == 120);
	assert_true(ct_allreduce_ns(t, 1, 50) == 50);
	assert_true(ct_allreduce_ns(t, 1, 300) == 150);
}

/* The best size is near sqrt(total alpha / beta). */
static void test_latency_against_bandwidth(void **state)
{
	(void)state;
	assert_int_equal(choose(0, 1), 1 * MIB);       /* large buckets save nothing */
	assert_int_equal(choose(10, 1), 1 * MIB);      /* 1 MiB */
	assert_int_equal(choose(160, 1), 4 * MIB);     /* 4 MiB */
	assert_int_equal(choose(40, 16), 8 * MIB);     /* 8 MiB */
	assert_int_equal(choose(40, 64), 16 * MIB);    /* 16 MiB */
	assert_int_equal(choose(100, 100), 32 * MIB);  /* 32 MiB */
	assert_int_equal(choose(1e6, 1000), 64 * MIB); /* latency only */
}

/* A cost per byte that grows with the size, as outside the caches of a CPU, speaks against large buckets. */
static void test_caches(void **state)
{
	const struct ct_allreduce_time flat[] = {{MIB, 1000000}, {4 * MIB, 1700000}, {16 * MIB, 4500000}},
				       steep[] = {{MIB, 1000000}, {4 * MIB, 1700000}, {16 * MIB, 20000000}};
	struct ct_bucket_slice slices[64];
	double ready[64];
	size_t cap = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(slices); i++) {
		slices[i] = (struct ct_bucket_slice){i * MIB / 4, MIB / 4, CT_F32};
		ready[i] = (double)(i + 1) / 64;
	}
	assert_int_equal(ct_bucket_choose_size(slices, ready, 64, MIB, flat, 3, &cap), CT_OK);
	assert_int_equal(cap, 16 * MIB);
	assert_int_equal(ct_bucket_choose_size(slices, ready, 64, MIB, steep, 3, &cap), CT_OK);
	assert_int_equal(cap, 4 * MIB);
}

/* If all gradients but the first MiB are complete late, small buckets do not help. If all but the last MiB are complete
 * early, only the last bucket has to be small. */
static void test_ready(void **state)
{
	const struct ct_allreduce_time times[] = {{MIB, 1100000}, {16 * MIB, 16100000}}; /* 0.1 ms and 1 ms per MiB */
	struct ct_bucket_slice slices[64];
	double early[64], late[64], even[64];
	size_t cap = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(slices); i++) {
		slices[i] = (struct ct_bucket_slice){i * MIB / 4, MIB / 4, CT_F32};
		early[i] = i < 63 ? 0.01 : 1;
		late[i] = i < 1 ? 0.5 : 1;
		even[i] = (double)(i + 1) / 64;
	}
	assert_int_equal(ct_bucket_choose_size(slices, even, 64, MIB, times, 2, &cap), CT_OK);
	assert_int_equal(cap, 2 * MIB);
	assert_int_equal(ct_bucket_choose_size(slices, early, 64, MIB, times, 2, &cap), CT_OK);
	assert_int_equal(cap, 4 * MIB);
	assert_int_equal(ct_bucket_choose_size(slices, late, 64, MIB, times, 2, &cap), CT_OK);
	assert_int_equal(cap, 64 * MIB);
}

static void test_bad_slices(void **state)
{
	const struct ct_bucket_slice slices[] = {{0, 10, CT_F32}, {5, 10, CT_F32}};
	const struct ct_allreduce_time t = {100, 50};
	const double ready[] = {0.5, 1};
	size_t cap;

	(void)state;
	assert_int_equal(ct_bucket_choose_size(slices, ready, 2, MIB, &t, 1, &cap), CT_BUG);
	ct_error_clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interpolation), cmocka_unit_test(test_latency_against_bandwidth),
		cmocka_unit_test(test_caches),        cmocka_unit_test(test_ready),
		cmocka_unit_test(test_bad_slices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
