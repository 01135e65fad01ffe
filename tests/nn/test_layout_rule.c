/* The rule that chooses the layout of a net from the rates of convolutions, and the measurement of these rates. */
#include "nn/onednn/plan/onednn_plan.h"

#include "tests/base/check.h"

static void test_rule(void **state)
{
	static const struct {
		enum ct_precision precision;
		bool matrix_units;
		struct ct__conv_rates rates;
		enum ct_plan_layout want;
	} cases[] = {
		{CT_PRECISION_FP32, false, {0, 0}, CT_LAYOUT_BLOCKED},
		{CT_PRECISION_FP32, true, {1e11, 2e12}, CT_LAYOUT_BLOCKED},
		{CT_PRECISION_BF16, false, {0, 0}, CT_LAYOUT_BLOCKED},
		{CT_PRECISION_BF16, false, {1e11, 2e12}, CT_LAYOUT_BLOCKED},
		{CT_PRECISION_BF16, true, {1e11, 1.5e12}, CT_LAYOUT_NHWC},  /* matrix units */
		{CT_PRECISION_BF16, true, {1e11, 2e11}, CT_LAYOUT_BLOCKED}, /* oneDNN does not use them */
		{CT_PRECISION_BF16, true, {1e11, 5e10}, CT_LAYOUT_BLOCKED}, /* bfloat16 instructions at half the rate */
		{CT_PRECISION_BF16, true, {1e11, 0}, CT_LAYOUT_BLOCKED},    /* no implementation */
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		assert_int_equal(ct__onednn_layout_for(cases[i].precision, cases[i].matrix_units, &cases[i].rates),
				 cases[i].want);
}

static void test_probe(void **state)
{
	struct ct__conv_rates rates = {0};
	ct_dnnl *c;

	(void)state;
	assert_ok(ct__dnnl_open(&c));
	assert_ok(ct__onednn_probe(c, &rates));
	assert_true(rates.fp32 > 0);
	assert_true(rates.bf16 > 0 || !ct__dnnl_has_bf16());
	ct__dnnl_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_probe)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
