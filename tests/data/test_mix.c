/* Mixup and CutMix: shares are drawn from Beta(alpha, alpha), and the mixed pixels correspond exactly to the share. */
#include "tests/data/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/transform/mix.h"

enum { H = 20, W = 30, C = 3, BYTES = H * W * C, DRAWS = 20000 };

/* Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)); its two halves mirror each other. */
static void test_beta(void **state)
{
	static const float alphas[] = {0.05f, 0.2f, 0.4f, 1, 2, 50};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(alphas); i++) {
		double sum = 0, squares = 0, want = 1 / (4 * (2 * (double)alphas[i] + 1));
		int low = 0;

		for (uint32_t place = 0; place < DRAWS; place++) {
			struct ct_mix m;

			ct_mix_draw(alphas[i], 0, 3, 1, place, H, W, &m);
			assert_false(m.cut);
			assert_in_range(m.weight, 0, 256);
			assert_true(m.share == (float)m.weight / 256);
			sum += (double)m.share;
			squares += ((double)m.share - 0.5) * ((double)m.share - 0.5);
			low += m.share < 0.5f;
		}
		assert_true(fabs(sum / DRAWS - 0.5) < 0.012);
		assert_true(fabs(squares / DRAWS - want) < 0.03 * want + 1e-4);
		assert_true(abs(low - DRAWS / 2) < DRAWS / 25);
	}
}

/* Uniform shares: each tenth holds a tenth. */
static void test_uniform(void **state)
{
	int bins[10] = {0};

	(void)state;
	for (uint32_t place = 0; place < DRAWS; place++) {
		struct ct_mix m;

		ct_mix_draw(1, 0, 4, 1, place, H, W, &m);
		bins[m.weight == 256 ? 9 : m.weight * 10 / 256]++;
	}
	for (int i = 0; i < 10; i++)
		assert_in_range(bins[i], DRAWS / 10 - 200, DRAWS / 10 + 200);
}

static void fill(uint8_t *a, uint8_t *b)
{
	for (int i = 0; i < BYTES; i++) {
		a[i] = (uint8_t)(i * 7);
		b[i] = (uint8_t)(255 - i * 3);
	}
}

static void test_pixels(void **state)
{
	uint8_t a[BYTES], b[BYTES], x[BYTES], y[BYTES];
	int cuts = 0;

	(void)state;
	fill(a, b);
	for (uint32_t place = 0; place < 2000; place++) {
		struct ct_mix m;
		int swapped = 0;

		ct_mix_draw(1, 1, 3, 1, place, H, W, &m);
		memcpy(x, a, BYTES);
		memcpy(y, b, BYTES);
		ct_mix_apply(&m, H, W, C, x, y);
		cuts += m.cut;
		for (int i = 0; i < BYTES; i++) {
			int row = i / C / W, column = i / C % W;
			bool inside = m.cut && row >= m.y0 && row < m.y1 && column >= m.x0 && column < m.x1;

			if (m.cut) {
				assert_int_equal(x[i], inside ? b[i] : a[i]);
				assert_int_equal(y[i], inside ? a[i] : b[i]);
				swapped += inside;
			} else {
				assert_int_equal(x[i], (a[i] * m.weight + b[i] * (256 - m.weight) + 128) / 256);
				assert_int_equal(y[i], (b[i] * m.weight + a[i] * (256 - m.weight) + 128) / 256);
			}
		}
		assert_true(!m.cut || fabs((double)m.share - (1 - (double)swapped / BYTES)) < 1e-6);
	}
	assert_in_range(cuts, 900, 1100);
}

/* The same pair, the same mix; any other key, another one. */
static void test_keyed(void **state)
{
	struct ct_mix m, again, other;

	(void)state;
	ct_mix_draw(0.4f, 0, 3, 1, 8, H, W, &m);
	ct_mix_draw(0.4f, 0, 3, 1, 8, H, W, &again);
	assert_memory_equal(&m, &again, sizeof(m));
	ct_mix_draw(0.4f, 0, 4, 1, 8, H, W, &other);
	assert_true(m.share != other.share);
	ct_mix_draw(0.4f, 0, 3, 2, 8, H, W, &other);
	assert_true(m.share != other.share);
	ct_mix_draw(0.4f, 0, 3, 1, 10, H, W, &other);
	assert_true(m.share != other.share);
	/* One pixel, and alphas that leave nothing or all. */
	for (uint32_t place = 0; place < 1000; place++) {
		uint8_t x[3] = {1, 2, 3}, y[3] = {4, 5, 6};

		ct_mix_draw(0.001f, 0.001f, 3, 1, place, 1, 1, &m);
		assert_true(m.share >= 0 && m.share <= 1);
		ct_mix_apply(&m, 1, 1, 3, x, y);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beta),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_pixels),
		cmocka_unit_test(test_keyed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
