/* The loops of the optimizers for each vector width: all of them compute the same bits. */
#include "nn/optim/optim_kernels_impl.h"

#include <math.h>

#include "base/half.h"
#include "tests/nn/optim_rig.h"

/* Every vector width gives the same bits. */
static void test_kernels_agree(void **state)
{
	static const struct ct_sgd_coefs cs[] = {{0.1f, 0.9f, 1e-3f, 0.7f, false}, {0.1f, 0.9f, 1e-3f, 1, true}};
	static const struct ct_lamb_coefs cl = {1.5f, 0.1f, 0.999f, 0.001f, 3, 1e-6f, 0.9f, 0.01f, 0.05f};
	static const struct ct_adam_coefs ca = {0.02f, 0.999f, 0.01f, 0.1f, 0.999f, 0.001f, 3, 1e-8f, 0.9f};
	const size_t n = 1003;
	float *want = CT_NEW_ARRAY(float, 4 * n), *got = CT_NEW_ARRAY(float, 4 * n), *g = CT_NEW_ARRAY(float, n);
	const struct ct_optim_kernels *k;

	(void)state;
	fill_floats(9, g, n);
	for (size_t i = 0; (k = ct__optim_kernels_at(i)); i++) {
		float *x = i ? got : want;

		fill_floats(10, x, 4 * n);
		for (size_t j = 3 * n; j < 4 * n; j++)
			x[j] = fabsf(x[j]);
		k->sgd(n, x, g, NULL, &cs[0]);
		k->sgd(n, x, g, x + n, &cs[0]);
		k->sgd(n, x, g, x + n, &cs[1]);
		k->adam(n, x, g, x + 2 * n, x + 3 * n, &ca);
		double sums[2];
		k->lamb_moments(n, x, g, x + 2 * n, x + 3 * n, &cl, sums);
		x[0] += (float)sums[0] + (float)sums[1];
		k->lamb_apply(n, x, x + 2 * n, x + 3 * n, &cl);
		k->average(n, x + n, g, 0.99f, 0.01f);
		printf("%s\n", k->target);
		assert_memory_equal(i ? got : want, want, 4 * n * sizeof(float));
		assert_true(k->sum_squares(n, g) == ct__optim_kernels_at(0)->sum_squares(n, g));
	}
	ct_free(g);
	ct_free(got);
	ct_free(want);
}

/* Conversions of more than one chunk: every vector width rounds as base/half.h does. */
static void test_conversions(void **state)
{
	static const enum ct_dtype types[] = {CT_BF16, CT_F16};
	const size_t n = 3 * 65536 + 77;
	float *x = CT_NEW_ARRAY(float, n), *back = CT_NEW_ARRAY(float, n);
	uint16_t *half = CT_NEW_ARRAY(uint16_t, n), *want = CT_NEW_ARRAY(uint16_t, n);
	struct rig r;

	(void)state;
	open_rig(&r);
	fill_floats(1, x, n);
	for (size_t i = 0; i < n; i++)
		x[i] = ldexpf(x[i], (int)(i % 300) - 150);
	x[3] = INFINITY;
	x[4] = NAN;
	x[5] = 1e5f;
	for (int t = 0; t < 2; t++) {
		const struct ct_conversion to = {half, x, n, types[t], CT_F32},
					   from = {back, half, n, CT_F32, types[t]};

		assert_ok(ct_net_post_conversion(r.net, &to, ct_engine_stream(r.engine)));
		assert_ok(ct_net_post_conversion(r.net, &from, ct_engine_stream(r.engine)));
		for (size_t i = 0; i < n; i++) {
			const float b = t ? ct_f16_to_f32(half[i]) : ct_bf16_to_f32(half[i]);

			assert_int_equal(half[i], t ? ct_f16_from_f32(x[i]) : ct_bf16_from_f32(x[i]));
			assert_true(back[i] == b || (isnan(b) && isnan(back[i])));
		}
		for (int k = 0; ct__optim_kernels_at((size_t)k); k++) {
			ct__optim_kernels_at((size_t)k)->to_half(n, want, x, types[t]);
			assert_memory_equal(half, want, n * sizeof(*half));
		}
	}
	const struct ct_conversion copy = {back, x, n, CT_F32, CT_F32};
	assert_ok(ct_net_post_conversion(r.net, &copy, ct_engine_stream(r.engine)));
	assert_memory_equal(back, x, n * sizeof(*x));
	ct_free(want);
	ct_free(half);
	ct_free(back);
	ct_free(x);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_agree),
		cmocka_unit_test(test_conversions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
