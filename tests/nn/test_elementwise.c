/* Compares the element-wise loops of the oneDNN engine with formulas, and checks that results do not depend on the
 * number of threads. Sizes are large enough for several ranges, or odd, with one to four channels. */
#include "nn/onednn/kernels/elementwise.h"

#include <math.h>

#include "tests/nn/nn_check.h"

#define MAX_THREADS 4

static float of_bf16(uint16_t x)
{
	const uint32_t bits = (uint32_t)x << 16;
	float y;

	memcpy(&y, &bits, sizeof(y));
	return y;
}

/* Round to nearest, ties to even, in double: the bfloat16 numbers next to x are compared. */
static uint16_t nearest_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	const uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
	const double below = fabs((double)x - (double)of_bf16(low)), above = fabs((double)of_bf16(high) - (double)x);
	return below < above || (below == above && low % 2 == 0) ? low : high;
}

static void check_normalise(int n, struct ct_shape s)
{
	const float mean[4] = {0.1f, 0.5f, 0.25f, 0.9f}, std[4] = {0.3f, 0.2f, 1.0f, 0.7f};
	const size_t plane = (size_t)s.h * (size_t)s.w, c_count = (size_t)s.c, elems = (size_t)n * c_count * plane;
	uint8_t *x = CT_NEW_ARRAY(uint8_t, elems);
	float *first = CT_NEW_ARRAY(float, elems), *y = CT_NEW_ARRAY(float, elems);
	uint16_t *h = CT_NEW_ARRAY(uint16_t, elems);

	for (size_t i = 0; i < elems; i++)
		x[i] = (uint8_t)(i * 2654435761u >> 13);
	ct__onednn_normalise(1, x, n, s, mean, std, first);
	for (size_t i = 0; i < elems; i++) {
		const size_t c = i / plane % c_count, image = i / (plane * c_count), at = i % plane;
		const double want =
			((double)x[(image * plane + at) * c_count + c] / 255 - (double)mean[c]) / (double)std[c];

		assert_float_equal((double)first[i], want, 1e-5);
	}
	for (int threads = 1; threads <= MAX_THREADS; threads++) {
		memset(y, 0xff, elems * sizeof(*y));
		ct__onednn_normalise(threads, x, n, s, mean, std, y);
		assert_memory_equal(y, first, elems * sizeof(*y));
		memset(h, 0xff, elems * sizeof(*h));
		ct__onednn_normalise_bf16(threads, x, n, s, mean, std, h);
		for (size_t i = 0; i < elems; i++)
			assert_int_equal(h[i], nearest_bf16(first[i]));
	}
	ct_free(h);
	ct_free(y);
	ct_free(first);
	ct_free(x);
}

static void test_normalise(void **state)
{
	(void)state;
	for (int c = 1; c <= 4; c++) {
		check_normalise(1, (struct ct_shape){c, 5, 7});
		check_normalise(67, (struct ct_shape){c, 29, 31});
		check_normalise(3, (struct ct_shape){c, 150, 151});
	}
}

static void check_products(size_t n)
{
	float *a = CT_NEW_ARRAY(float, n), *b = CT_NEW_ARRAY(float, n), *y = CT_NEW_ARRAY(float, n);
	uint16_t *ha = CT_NEW_ARRAY(uint16_t, n), *hb = CT_NEW_ARRAY(uint16_t, n);

	fill_floats(1, a, n);
	fill_floats(2, b, n);
	for (int threads = 1; threads <= MAX_THREADS; threads++) {
		memset(y, 0xff, n * sizeof(*y));
		ct__onednn_multiply(threads, y, a, b, n);
		for (size_t i = 0; i < n; i++)
			assert_true(y[i] == a[i] * b[i]);
		memset(ha, 0xff, n * sizeof(*ha));
		ct__onednn_to_bf16(threads, ha, a, n);
		ct__onednn_to_bf16(threads, hb, b, n);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(ha[i], nearest_bf16(a[i]));
		ct__onednn_multiply_bf16(threads, ha, ha, hb, n);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(ha[i], nearest_bf16(of_bf16(nearest_bf16(a[i])) * of_bf16(hb[i])));
	}
	ct_free(hb);
	ct_free(ha);
	ct_free(y);
	ct_free(b);
	ct_free(a);
}

static void test_products(void **state)
{
	(void)state;
	check_products(1);
	check_products(33);
	check_products(100003);
}

static void test_scale_rows(void **state)
{
	enum { ROWS = 37, ELEMS = 2049 };
	const size_t n = (size_t)ROWS * ELEMS;
	float *x = CT_NEW_ARRAY(float, n), *y = CT_NEW_ARRAY(float, n), factor[ROWS];

	(void)state;
	fill_floats(3, x, n);
	for (int i = 0; i < ROWS; i++)
		factor[i] = i % 3 ? 1.25f : 0;
	for (int threads = 1; threads <= MAX_THREADS; threads++) {
		memset(y, 0xff, n * sizeof(*y));
		ct__onednn_scale_rows(threads, y, x, factor, ROWS, ELEMS);
		for (size_t i = 0; i < n; i++)
			assert_true(y[i] == x[i] * factor[i / ELEMS]);
	}
	ct_free(y);
	ct_free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normalise),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_scale_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
