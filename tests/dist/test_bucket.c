#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "dist/bucket.h"

#define KIB 256 /* elements of one KiB of fp32 */

static struct ct_bucket *plan(const size_t *n, int n_slices, size_t first, size_t cap, int *n_buckets)
{
	struct ct_bucket_slice slices[64];
	struct ct_bucket *b;
	size_t at = 0;

	assert_true(n_slices <= 64);
	for (int i = 0; i < n_slices; i++) {
		slices[i] = (struct ct_bucket_slice){at, n[i], CT_F32};
		at += (n[i] + 15) & ~(size_t)15; /* as an arena aligns */
	}
	assert_int_equal(ct_bucket_plan(slices, n_slices, first, cap, &b, n_buckets), CT_OK);
	/* Whatever the caps: all slices, in order, once, and within their buckets. */
	int next = 0;
	size_t end = 0;
	for (int k = 0; k < *n_buckets; k++) {
		assert_int_equal(b[k].first_slice, next);
		assert_true(b[k].n_slices > 0);
		assert_true(b[k].offset >= end);
		next += b[k].n_slices;
		end = b[k].offset + b[k].n;
		assert_int_equal(b[k].offset, slices[b[k].first_slice].offset);
		assert_int_equal(end, slices[next - 1].offset + n[next - 1]);
	}
	assert_int_equal(next, n_slices);
	return b;
}

static void test_caps(void **state)
{
	const size_t n[] = {100 * KIB, 100 * KIB, 100 * KIB, 400 * KIB, 300 * KIB, 200 * KIB, 600 * KIB, 1};
	struct ct_bucket *b;
	int k;

	(void)state;
	b = plan(n, 8, 250 << 10, 700 << 10, &k);
	/* 300 reach 250; 400 + 300 reach 700; 200 + 600 reach 700; the rest. */
	assert_int_equal(k, 4);
	assert_int_equal(b[0].n_slices, 3);
	assert_int_equal(b[1].n_slices, 2);
	assert_int_equal(b[2].n_slices, 2);
	assert_int_equal(b[3].n_slices, 1);
	assert_int_equal(b[3].n, 1);
	ct_free(b);
}

/* What is half full does not wait for a slice as big as a bucket; what is small does, rather than be a bucket of its
 * own. */
static void test_big_slices(void **state)
{
	const size_t half[] = {512 * KIB, 4096 * KIB, 16}, little[] = {2, 4096 * KIB, 2, 4096 * KIB};
	struct ct_bucket *b;
	int k;

	(void)state;
	b = plan(half, 3, 1 << 20, 4 << 20, &k);
	assert_int_equal(k, 3);
	assert_int_equal(b[0].n_slices, 1);
	ct_free(b);
	b = plan(little, 4, 1 << 20, 4 << 20, &k);
	assert_int_equal(k, 2);
	assert_int_equal(b[0].n_slices, 2);
	assert_int_equal(b[1].n_slices, 2);
	ct_free(b);
}

static void test_edges(void **state)
{
	const size_t n[] = {5, 7, 0, 3};
	const struct ct_bucket_slice overlap[] = {{0, 5, CT_F32}, {4, 7, CT_F32}},
				     wrap[] = {{16, 16, CT_F32}, {SIZE_MAX, SIZE_MAX, CT_F32}};
	struct ct_bucket *b;
	int k;

	(void)state;
	b = plan(n, 4, 0, 0, &k); /* no caps: a bucket each */
	assert_int_equal(k, 4);
	ct_free(b);
	b = plan(n, 4, SIZE_MAX, SIZE_MAX, &k);
	assert_int_equal(k, 1);
	ct_free(b);
	b = plan(NULL, 0, 1, 1, &k);
	assert_int_equal(k, 0);
	ct_free(b);
	assert_int_equal(ct_bucket_plan(overlap, 2, 1, 1, &b, &k), CT_BUG);
	assert_null(b);
	assert_int_equal(ct_bucket_plan(wrap, 2, 1, 1, &b, &k), CT_BUG);
}

/* A bucket holds slices of one type; offsets count per type. */
static void test_types(void **state)
{
	const struct ct_bucket_slice slices[] = {
		{0, 100, CT_BF16}, {128, 50, CT_BF16}, {0, 8, CT_F32}, {16, 8, CT_F32}, {256, 70, CT_BF16}};
	struct ct_bucket *b;
	int k;

	(void)state;
	assert_int_equal(ct_bucket_plan(slices, 5, 1 << 20, 1 << 20, &b, &k), CT_OK);
	assert_int_equal(k, 3);
	assert_int_equal(b[0].dtype, CT_BF16);
	assert_int_equal(b[0].n, 178);
	assert_int_equal(b[1].dtype, CT_F32);
	assert_int_equal(b[1].offset, 0);
	assert_int_equal(b[1].n, 24);
	assert_int_equal(b[2].dtype, CT_BF16);
	assert_int_equal(b[2].offset, 256);
	assert_int_equal(b[2].first_slice, 4);
	ct_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caps),
		cmocka_unit_test(test_big_slices),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
