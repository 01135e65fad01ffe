/* Placement of buffers by their lifetimes. */
#include "tests/base/check.h"

#include "base/rng.h"
#include "nn/memory_plan.h"

#define MAX 60

static struct ct_plan_buffer live(size_t bytes, int first, int last)
{
	struct ct_plan_buffer b = CT_PLAN_BUFFER(bytes);

	ct_plan_buffer_use(&b, last);
	ct_plan_buffer_use(&b, first);
	return b;
}

static void test_a_chain_needs_two_buffers(void **state)
{
	struct ct_plan_buffer b[10];
	struct ct_memory_plan plan;

	(void)state;
	for (int i = 0; i < 10; i++)
		b[i] = live(100, i, i + 1);
	assert_ok(ct_memory_plan(b, 10, 64, &plan));
	assert_int_equal(plan.bytes, 2 * 128);
	assert_int_equal(plan.unplanned_bytes, 10 * 128);
	for (int i = 0; i < 10; i++)
		assert_int_equal(b[i].lost, i < 8 ? i + 2 : INT32_MAX);
}

static void test_small_buffers_fill_gaps(void **state)
{
	struct ct_plan_buffer b[] = {live(640, 0, 9), live(640, 0, 3), live(640, 6, 9), live(64, 4, 5),
				     live(128, 3, 6)};
	struct ct_memory_plan plan;

	(void)state;
	assert_ok(ct_memory_plan(b, CT_ARRAY_LEN(b), 64, &plan));
	assert_int_equal(b[1].offset, b[2].offset);
	assert_int_equal(plan.bytes, 640 + 640 + 128);
	assert_true(b[3].offset >= 640 && b[3].offset < 1280);
}

static void test_unused_buffers_need_nothing(void **state)
{
	struct ct_plan_buffer b[] = {CT_PLAN_BUFFER(1000), live(64, 2, 2)};
	struct ct_memory_plan plan;

	(void)state;
	assert_ok(ct_memory_plan(b, 2, 64, &plan));
	assert_int_equal(plan.bytes, 64);
	assert_int_equal(plan.unplanned_bytes, 64);
	assert_ok(ct_memory_plan(b, 0, 64, &plan));
	assert_int_equal(plan.bytes, 0);
}

static bool overlap(const struct ct_plan_buffer *a, const struct ct_plan_buffer *b)
{
	return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* What a task sees in memory: nothing that it needs may have been overwritten, and `lost` is the first task that
 * overwrites. */
static void check(const struct ct_plan_buffer *b, size_t n, const struct ct_memory_plan *plan)
{
	size_t sum = 0, largest_at_once = 0;

	for (size_t i = 0; i < n; i++) {
		int lost = INT32_MAX;

		for (size_t j = 0; j < n; j++) {
			if (i == j || !overlap(&b[i], &b[j]))
				continue;
			assert_true(b[i].last < b[j].first || b[j].last < b[i].first);
			if (b[j].first > b[i].last && b[j].first < lost)
				lost = b[j].first;
		}
		assert_int_equal(b[i].lost, lost);
		assert_int_equal(b[i].offset % 64, 0);
		assert_true(b[i].offset + b[i].bytes <= plan->bytes);
		sum += b[i].bytes;
	}
	for (int task = 0; task < MAX; task++) {
		size_t now = 0;

		for (size_t i = 0; i < n; i++)
			now += b[i].first <= task && task <= b[i].last ? b[i].bytes : 0;
		largest_at_once = now > largest_at_once ? now : largest_at_once;
	}
	assert_int_equal(plan->unplanned_bytes, sum);
	assert_in_range(plan->bytes, largest_at_once, largest_at_once + largest_at_once / 2);
}

static void test_drawn_lifetimes(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct ct_plan_buffer b[MAX];
		struct ct_memory_plan plan;
		struct ct_rng r;

		ct_rng_init(&r, seed, CT_RNG_TEST, 0, 0);
		for (int i = 0; i < MAX; i++) {
			const int first = (int)ct_rng_below(&r, MAX), last = first + (int)ct_rng_below(&r, 12);

			b[i] = live(1 + ct_rng_below(&r, i % 2 ? 100 : 5000), first, last < MAX ? last : MAX - 1);
		}
		assert_ok(ct_memory_plan(b, MAX, 64, &plan));
		check(b, MAX, &plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_chain_needs_two_buffers),
		cmocka_unit_test(test_small_buffers_fill_gaps),
		cmocka_unit_test(test_unused_buffers_need_nothing),
		cmocka_unit_test(test_drawn_lifetimes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
