/* Compares the weights of a resize with weights that are computed individually, as in Pillow (Resample.c,
 * precompute_coeffs). */
#include "data/transform/resize_axis_impl.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tests/data/fixture.h"

static double triangle(double x)
{
	return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

struct interval {
	double at, len;
	int lo, hi, n;
};

/* Weights of pixel i for all of lo..hi. */
static void reference(const struct interval *v, int i, int taps, int32_t *k)
{
	double scale = v->len / v->n, support = scale < 1 ? 1 : scale, center = v->at + (i + 0.5) * scale;
	double narrow = 1 / support, sum = 0, carry = 0;
	int first = center - support + 0.5 <= v->lo ? v->lo : (int)(center - support + 0.5);
	int end = center + support + 0.5 >= v->hi ? v->hi : (int)(center + support + 0.5);

	first = first > v->hi - 1 ? v->hi - 1 : first;
	end = end <= first ? first + 1 : end;
	assert_true(end - first <= taps);
	for (int x = first; x < end; x++)
		sum += triangle((x - center + 0.5) * narrow);
	for (int x = v->lo; x < v->hi; x++) {
		double w = 0;

		if (x >= first && x < end && sum > 0)
			w = triangle((x - center + 0.5) * narrow) / sum;
		w = w * (1 << CT_RESIZE_BITS) + carry;
		k[x - v->lo] = (int32_t)(0.5 + w);
		if (taps > 4096 && x >= first) /* ours pass on what rounding took */
			carry = x < end - 1 ? w - k[x - v->lo] : 0;
	}
	if (sum <= 0)
		k[first - v->lo] = 1 << CT_RESIZE_BITS;
}

static void check(const struct interval *v, bool mirror, int unit)
{
	int32_t *k = malloc((size_t)(v->hi - v->lo) * sizeof(*k));
	struct ct_resize_axis a = {0};
	int first, end;

	assert_ok(ct__resize_axis_set(&a, v->at, v->len, v->lo, v->hi, v->n, mirror, unit));
	ct__resize_axis_range(v->at, v->len, v->lo, v->hi, v->n, &first, &end);
	assert_int_equal(a.n, v->n);
	assert_true(a.taps % unit == 0 || a.taps == v->hi - v->lo);
	for (int i = 0; i < v->n; i++) {
		int at = mirror ? v->n - 1 - i : i;
		const int32_t *ours = a.k + (size_t)at * (size_t)a.taps;

		reference(v, i, a.taps, k);
		assert_in_range(a.from[at], 0, v->hi - v->lo - a.taps);
		for (int x = 0; x < v->hi - v->lo; x++) {
			int t = x - a.from[at];

			assert_int_equal(t >= 0 && t < a.taps ? ours[t] : 0, k[x]);
			assert_true(k[x] == 0 || (x + v->lo >= first && x + v->lo < end));
		}
	}
	ct__resize_axis_release(&a);
	free(k);
}

static void test_weights(void **state)
{
	struct ct_rng rng;

	(void)state;
	ct_rng_init(&rng, 1, CT_RNG_TEST, 0, 0);
	for (int i = 0; i < 3000; i++) {
		int width = 1 + (int)ct_rng_below(&rng, i % 3 == 0 ? 8 : 200);
		struct interval v = {.hi = width, .n = 1 + (int)ct_rng_below(&rng, 60)};

		v.len = i % 2 ? width : 0.5 + ct_rng_uniform(&rng) * (width - 0.5);
		v.at = ct_rng_uniform(&rng) * (width - v.len);
		if (i % 5 == 0)
			v.lo = (int)ct_rng_below(&rng, (uint32_t)width);
		check(&v, i % 7 < 3, 1 + i % 4);
	}
}

/* Decoded at a scale, a box may begin where the source ends: no pixel has any height, and one is taken all the same. */
static void test_nothing_under_it(void **state)
{
	(void)state;
	check(&(struct interval){10, 3, 0, 8, 9}, false, 1);
	check(&(struct interval){0, 3, 6, 8, 9}, true, 2);
}

static void test_many_taps(void **state)
{
	(void)state;
	check(&(struct interval){0, 9001, 0, 9001, 3}, false, 1);
	check(&(struct interval){100.5, 20000, 0, 30000, 6}, true, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_nothing_under_it),
		cmocka_unit_test(test_many_taps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
