#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/base/check.h"

#define MAX_RANGES 128

struct record {
	int64_t n;
	atomic_uchar *seen; /* [n] how often an item was computed */
	atomic_int ranges;
	int64_t begin[MAX_RANGES], end[MAX_RANGES];
	pthread_t thread[MAX_RANGES];
};

static void record_range(void *arg, int64_t begin, int64_t end)
{
	struct record *r = arg;
	const int at = atomic_fetch_add(&r->ranges, 1);

	if (at < MAX_RANGES) {
		r->begin[at] = begin;
		r->end[at] = end;
		r->thread[at] = pthread_self();
	}
	for (int64_t i = begin; i < end; i++)
		atomic_fetch_add(&r->seen[i], 1);
}

static void run_recorded(struct record *r, int threads, int64_t n, int64_t grain)
{
	*r = (struct record){.n = n, .seen = ct_calloc((size_t)n + 1, sizeof(*r->seen))};
	assert_non_null(r->seen);
	ct_parallel_for(threads, n, grain, record_range, r);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(r->seen[i], 1);
	ct_free(r->seen);
}

static bool has_range(const struct record *r, int64_t begin, int64_t end)
{
	for (int i = 0; i < r->ranges; i++) {
		if (r->begin[i] == begin && r->end[i] == end)
			return true;
	}
	return false;
}

/* Every item is computed once, in ranges that depend only on the arguments. */
static void test_partition(void **state)
{
	const int64_t sizes[] = {1, 2, 3, 7, 8, 64, 1000, 4097};
	struct record r;

	(void)state;
	for (size_t s = 0; s < CT_ARRAY_LEN(sizes); s++) {
		for (int threads = 1; threads <= 9; threads++) {
			const int64_t n = sizes[s], want = n < threads ? n : threads;

			run_recorded(&r, threads, n, 1);
			assert_int_equal(r.ranges, want);
			for (int64_t i = 0; i < want; i++)
				assert_true(has_range(&r, n * i / want, n * (i + 1) / want));
		}
	}
}

static void test_grain(void **state)
{
	struct record r;

	(void)state;
	run_recorded(&r, 4, 99, 100);
	assert_int_equal(r.ranges, 1);
	run_recorded(&r, 4, 199, 100);
	assert_int_equal(r.ranges, 1);
	run_recorded(&r, 4, 200, 100);
	assert_int_equal(r.ranges, 2);
	run_recorded(&r, 4, 10000, 100);
	assert_int_equal(r.ranges, 4);
	run_recorded(&r, 4, 10, 0);
	assert_int_equal(r.ranges, 4);
}

/* A single range is a plain call. Without items there is no call. */
static void test_serial(void **state)
{
	struct record r;

	(void)state;
	for (int threads = -1; threads <= 1; threads++) {
		run_recorded(&r, threads, 50, 1);
		assert_int_equal(r.ranges, 1);
		assert_true(pthread_equal(r.thread[0], pthread_self()));
	}
	run_recorded(&r, 4, 0, 1);
	assert_int_equal(r.ranges, 0);
}

static void test_uses_threads(void **state)
{
	struct record r;
	bool other = false;

	(void)state;
	run_recorded(&r, 3, 300, 1);
	for (int i = 0; i < r.ranges; i++)
		other = other || !pthread_equal(r.thread[i], pthread_self());
	assert_true(other);
}

struct nested {
	atomic_int items;
};

static void count_items(void *arg, int64_t begin, int64_t end)
{
	atomic_fetch_add(&((struct nested *)arg)->items, (int)(end - begin));
}

static void loop_inside(void *arg, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		ct_parallel_for(3, 11, 1, count_items, arg);
}

static void test_nested(void **state)
{
	struct nested n = {0};

	(void)state;
	ct_parallel_for(4, 10, 1, loop_inside, &n);
	assert_int_equal(n.items, 110);
}

/* More threads than this machine has or the build can start. */
static void test_many_threads(void **state)
{
	struct record r;

	(void)state;
	run_recorded(&r, 100, 1000, 1);
	assert_int_equal(r.ranges, 100);
	for (int64_t i = 0; i < 100; i++)
		assert_true(has_range(&r, 10 * i, 10 * i + 10));
}

static void check_large(void *arg, int64_t begin, int64_t end)
{
	atomic_fetch_add((atomic_llong *)arg, end - begin);
}

/* Computing the ranges does not overflow. */
static void test_large(void **state)
{
	const int64_t n = INT64_MAX / 2;
	atomic_llong items = 0;

	(void)state;
	ct_parallel_for(5, n, 1, check_large, &items);
	assert_true(items == n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_partition),    cmocka_unit_test(test_grain),  cmocka_unit_test(test_serial),
		cmocka_unit_test(test_uses_threads), cmocka_unit_test(test_nested), cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
