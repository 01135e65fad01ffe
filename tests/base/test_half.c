/* All 65,536 values of both 16-bit formats, and rounding between all adjacent values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"

struct format {
	const char *name;
	int exponent_bits, mantissa_bits;
	float (*to_f32)(uint16_t v);
	uint16_t (*from_f32)(float f);
};
static const struct format formats[] = {
	{"bf16", 8, 7, ct_bf16_to_f32, ct_bf16_from_f32},
	{"f16", 5, 10, ct_f16_to_f32, ct_f16_from_f32},
};

/* The value according to the definition of the format. */
static double defined(const struct format *f, unsigned v)
{
	const int bias = (1 << (f->exponent_bits - 1)) - 1, all_ones = (1 << f->exponent_bits) - 1;
	const int exponent = (int)(v >> f->mantissa_bits) & all_ones, mantissa = (int)v & ((1 << f->mantissa_bits) - 1);
	double x;

	if (exponent == all_ones)
		x = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		x = ldexp(mantissa, 1 - bias - f->mantissa_bits);
	else
		x = ldexp((1 << f->mantissa_bits) + mantissa, exponent - bias - f->mantissa_bits);
	return v & 0x8000 ? -x : x;
}

static void check_values(const struct format *f)
{
	for (unsigned v = 0; v <= UINT16_MAX; v++) {
		const double want = defined(f, v);
		const float got = f->to_f32((uint16_t)v);

		if (isnan(want)) {
			assert_true(isnan(got) && isnan(f->to_f32(f->from_f32(got))));
			continue;
		}
		if (got != want || !signbit(got) != !(v & 0x8000))
			fail_msg("%s 0x%04x is %g instead of %g", f->name, v, (double)got, want);
		if (f->from_f32(got) != v)
			fail_msg("%s 0x%04x comes back as 0x%04x", f->name, v, f->from_f32(got));
	}
}

static void expect_rounded(const struct format *f, float x, unsigned want)
{
	if (f->from_f32(x) != want)
		fail_msg("%s: %.9g becomes 0x%04x instead of 0x%04x", f->name, (double)x, f->from_f32(x), want);
	if (f->from_f32(-x) != (want | 0x8000))
		fail_msg("%s: %.9g becomes 0x%04x", f->name, -(double)x, f->from_f32(-x));
}

static void check_rounding(const struct format *f)
{
	const unsigned infinite = 0x7fffu >> f->mantissa_bits << f->mantissa_bits;

	for (unsigned v = 0; v < infinite; v++) {
		const double above = v + 1 == infinite ? 2 * defined(f, v) - defined(f, v - 1) : defined(f, v + 1);
		const float middle = (float)((defined(f, v) + above) / 2);

		expect_rounded(f, middle, v & 1 ? v + 1 : v);
		expect_rounded(f, nextafterf(middle, 0), v);
		expect_rounded(f, nextafterf(middle, INFINITY), v + 1);
	}
	expect_rounded(f, INFINITY, infinite);
	assert_true(isnan(f->to_f32(f->from_f32(NAN))));
}

static void test_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		check_values(&formats[i]);
}

static void test_rounding(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		check_rounding(&formats[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_rounding),
	};

	return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
