/* The calculations of the console: fitting a line, durations, rates, the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/report/console_impl.h"

static void test_line_widths(void **state)
{
	static const struct {
		int width;
		const char *line;
	} cases[] = {
		{200, "epoch 2/5  step 1234/9380  13%  45.2k img/s  loss 0.1234  eta 3m07s"},
		{68, "epoch 2/5  step 1234/9380  13%  45.2k img/s  loss 0.1234  eta 3m07s"},
		{67, "epoch 2/5  step 1234/9380  13%  loss 0.1234  eta 3m07s"},
		{54, "epoch 2/5  step 1234/9380  13%  loss 0.1234"},
		{40, "epoch 2/5  step 1234/9380  loss 0.1234"},
		{30, "epoch 2/5  step 1234/9380"},
		{26, "epoch 2/5  step 1234/9380"},
		{25, "epoch 2/5"},
		{10, "epoch 2/5"},
		{9, "epoch 2/"},
		{2, "e"},
		{1, ""},
		{0, ""},
		{-5, ""},
	};
	struct ct_progress p = {.step = 1234,
				.total_steps = 9380,
				.epoch = 1,
				.epochs = 5,
				.loss = 0.1234,
				.images_per_sec = 45200,
				.eta_seconds = 187,
				.phase = "train"};
	char line[256];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct__console_line(&p, cases[i].width, line, sizeof(line));
		assert_string_equal(line, cases[i].line);
	}
	/* Whatever the width and the buffer, the line stays within both. */
	for (int width = 0; width < 300; width++) {
		for (size_t size = 1; size < 90; size += 11) {
			memset(line, 'x', sizeof(line));
			ct__console_line(&p, width, line, size);
			assert_true(strlen(line) < size && (width == 0 || strlen(line) < (size_t)width));
			assert_true(line[size] == 'x');
		}
	}
}

static void test_line_states(void **state)
{
	struct ct_progress p = {.step = 7, .loss = NAN, .phase = "train"};
	char line[256];

	(void)state;
	ct__console_line(&p, 100, line, sizeof(line));
	assert_string_equal(line, "epoch 1  step 7  loss nan");
	p.phase = "eval";
	p.epochs = 5;
	p.epoch = 5; /* after the last one */
	p.total_steps = 7;
	p.loss = 1e-9;
	ct__console_line(&p, 100, line, sizeof(line));
	assert_string_equal(line, "eval  epoch 5/5  step 7/7  100%  loss 1e-09");
	p.step = UINT64_MAX;
	p.total_steps = UINT64_MAX;
	p.epoch = UINT32_MAX;
	p.epochs = UINT32_MAX;
	p.loss = -1.7976931348623157e308;
	p.images_per_sec = 1e300;
	p.eta_seconds = INFINITY;
	ct__console_line(&p, 1000, line, sizeof(line));
	assert_non_null(strstr(line, "eta ?"));
}

static void test_numbers(void **state)
{
	static const struct {
		double v;
		const char *span, *rate;
	} cases[] = {
		{0, "0.00s", "0.0"},
		{0.42, "0.42s", "0.4"},
		{0.996, "1.0s", "1.0"},
		{9.94, "9.9s", "9.9"},
		{9.96, "10s", "10"},
		{59.4, "59s", "59"},
		{59.6, "1m00s", "60"},
		{187, "3m07s", "187"},
		{999.6, "16m40s", "1.00k"},
		{3599.7, "1h00m", "3.60k"},
		{86399, "23h59m", "86.4k"},
		{86400, "1d00h", "86.4k"},
		{1e6, "11d13h", "1.00M"},
		{999600, "11d13h", "1.00M"},
		{-1, "?", "?"},
		{NAN, "?", "?"},
		{INFINITY, "?", "?"},
	};
	char text[16];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct__console_span(cases[i].v, text, sizeof(text));
		assert_string_equal(text, cases[i].span);
		ct__console_rate(cases[i].v, text, sizeof(text));
		assert_string_equal(text, cases[i].rate);
	}
}

static void test_table(void **state)
{
	struct ct_run_summary s = {.status = "done",
				   .step = 9380,
				   .images = 300000,
				   .epoch = 5,
				   .seconds = 83,
				   .best_top1 = 0.9912,
				   .last_loss = 0.0231,
				   .images_per_sec = 3612,
				   .startup_seconds = 0.12,
				   .weights_digest = "abcdef",
				   .checkpoint = "",
				   .share = {0.02, 0.31, 0.52, 0.08, 0.05, 0.02}};
	struct ct_str out = {0};

	(void)state;
	assert_ok(ct__console_table(&s, false, &out));
	assert_null(strchr(out.s, '\033'));
	assert_non_null(strstr(out.s, "9,380 (5 epochs)"));
	assert_non_null(strstr(out.s, "300,000, 3.61k/s in training"));
	assert_non_null(strstr(out.s, "best top1     0.9912"));
	assert_non_null(strstr(out.s, "backward 52%"));
	assert_non_null(strstr(out.s, "training loss 0.0231"));
	ct_str_clear(&out);
	s.best_top1 = -1;
	s.last_loss = NAN;
	s.step = UINT64_MAX;
	memset(s.share, 0, sizeof(s.share));
	assert_ok(ct__console_table(&s, true, &out));
	assert_non_null(strstr(out.s, "\033[1mdone\033[0m"));
	assert_null(strstr(out.s, "best top1"));
	assert_null(strstr(out.s, "training loss"));
	assert_null(strstr(out.s, "step time"));
	assert_non_null(strstr(out.s, "18,446,744,073,709,551,615"));
	ct_str_release(&out);
}

static void test_modes(void **state)
{
	ct_console *c;

	(void)state;
	assert_ok(ct__console_create(CT_CFG_CONSOLE_LIVE, &c));
	assert_true(ct__console_is_live(c));
	ct__console_destroy(c);
	assert_ok(ct__console_create(CT_CFG_CONSOLE_OFF, &c));
	assert_false(ct__console_is_live(c));
	ct__console_destroy(c);
	ct__console_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line_widths), cmocka_unit_test(test_line_states), cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_table),       cmocka_unit_test(test_modes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
