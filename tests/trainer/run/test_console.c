/* The calculations of the console: fitting lines, durations, rates, the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/process/terminal.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/run/metrics/console_impl.h"
#include "trainer/run/metrics/wrap.h"

static void expect_status(const struct ct_progress *p, struct ct__console_style style, int width, const char *want)
{
	struct ct_str out = {0};

	ct__console_status(p, NULL, style, width, &out);
	assert_string_equal(ct_str_text(&out), want);
	ct_str_release(&out);
}

static const struct ct_progress middle = {.step = 1234,
					  .total_steps = 9380,
					  .epoch = 1,
					  .epochs = 5,
					  .loss = 0.1234,
					  .images_per_sec = 45200,
					  .eta_seconds = 187,
					  .best_top1 = 0.98125,
					  .share = {0.02, 0.31, 0.52, 0.08, 0.05, 0.02},
					  .memory_bytes = 1288490189,
					  .phase = CT_RANK_TRAINING};

static void test_status_widths(void **state)
{
	static const struct {
		int width;
		const char *lines;
	} cases[] = {
		{200, "epoch 2/5  ###.....................  13%  step 1234/9380  45.2k img/s  eta 3m07s\n"
		      "loss 0.1234  best top1 0.9812  compute 88% wait 8% data 2% other 2%  mem 1.20 GiB"},
		{80, "epoch 2/5  ###....................  13%  step 1234/9380  45.2k img/s  eta 3m07s\n"
		     "loss 0.1234  best top1 0.9812  compute 88% wait 8% data 2% other 2%"},
		{66,
		 "epoch 2/5  #........  13%  step 1234/9380  45.2k img/s  eta 3m07s\nloss 0.1234  best top1 0.9812"},
		{54, "epoch 2/5  13%  step 1234/9380  eta 3m07s\nloss 0.1234  best top1 0.9812"},
		{40, "epoch 2/5  13%  step 1234/9380\nloss 0.1234  best top1 0.9812"},
		{29, "epoch 2/5  step 1234/9380\nloss 0.1234"},
		{20, "epoch 2/5\nloss 0.1234"},
		{9, "epoch 2/\nloss 0.1"},
		{2, "e\nl"},
		{1, "\n"},
		{0, "\n"},
		{-5, "\n"},
	};
	struct ct_spark spark = {0};
	struct ct_str out = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		expect_status(&middle, (struct ct__console_style){0}, cases[i].width, cases[i].lines);
	/* Whatever the width and the style, each line stays below the width. */
	for (int i = 0; i < 1000; i++)
		ct_spark_add(&spark, 2 - 0.001 * i);
	for (int width = 1; width < 200; width++) {
		for (int style = 0; style < 4; style++) {
			char *save = NULL;

			ct_str_clear(&out);
			ct__console_status(&middle, &spark,
					   (struct ct__console_style){.colors = style & 1, .utf8 = style & 2}, width,
					   &out);
			for (char *line = strtok_r(out.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
				assert_true(ct_text_columns(line) < (size_t)width);
		}
	}
	ct_str_release(&out);
}

static void test_status_states(void **state)
{
	struct ct_progress p = {.step = 0, .loss = NAN, .phase = CT_RANK_TRAINING};
	struct ct__console_style plain = {0}, one = {.one_line = true};

	(void)state;
	expect_status(&p, plain, 100, "epoch 1  step 0");
	p.step = 7;
	p.loss = INFINITY;
	expect_status(&p, plain, 100, "epoch 1  step 7\nloss inf");
	expect_status(&p, one, 100, "epoch 1  step 7");
	p.phase = CT_RANK_EVALUATING;
	p.epochs = 5;
	p.epoch = 5; /* after the last one */
	p.total_steps = 7;
	p.loss = 1e-9;
	expect_status(&p, plain, 100, "eval  epoch 5/5  ########################  100%  step 7/7\nloss 1e-09");
	p.step = UINT64_MAX;
	p.total_steps = UINT64_MAX;
	p.epoch = UINT32_MAX;
	p.epochs = UINT32_MAX;
	p.loss = -1.7976931348623157e308;
	p.images_per_sec = 1e300;
	p.eta_seconds = INFINITY;
	struct ct_str out = {0};
	ct__console_status(&p, NULL, plain, 1000, &out);
	assert_non_null(strstr(out.s, "eta ?"));
	ct_str_release(&out);
}

static void test_status_colors(void **state)
{
	struct ct__console_style style = {.colors = true, .utf8 = true};
	struct ct_progress p = middle;
	struct ct_str out = {0};

	(void)state;
	ct__console_status(&p, NULL, style, 100, &out);
	assert_non_null(strstr(out.s, "\033[36m\u2501\u2501\u2501\u2500"));
	assert_non_null(strstr(out.s, "\033[32mbest top1 0.9812\033[0m"));
	assert_null(strstr(out.s, "\033[31m"));
	ct_str_clear(&out);
	p.share[3] = 0.4; /* much waiting */
	ct__console_status(&p, NULL, style, 100, &out);
	assert_non_null(strstr(out.s, "\033[31mcompute"));
	ct_str_release(&out);
}

static void test_epoch_line(void **state)
{
	const struct ct_epoch_metrics e = {
		.epoch = 2, .images = 60000, .timed = 60000, .train_loss = 0.12345, .seconds = 12.4};
	const struct ct_eval_metrics v = {.epoch = 2, .loss = 0.2345, .top1 = 0.95, .top5 = 1};
	static const struct {
		int width;
		bool e, v, best;
		const char *line;
	} cases[] = {
		{100, true, true, true,
		 "epoch 3  loss 0.1235  evaluation loss 0.2345  top1 0.9500 best  12s  4.84k img/s"},
		{80, true, true, false, "epoch 3  loss 0.1235  evaluation loss 0.2345  top1 0.9500  12s  4.84k img/s"},
		{60, true, true, false, "epoch 3  loss 0.1235  evaluation loss 0.2345  top1 0.9500"},
		{40, true, true, false, "epoch 3  loss 0.1235  top1 0.9500"},
		{80, true, false, false, "epoch 3  loss 0.1235  12s  4.84k img/s"},
		{80, false, true, false, "epoch 3  evaluation loss 0.2345  top1 0.9500"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_str out = {0};

		ct__console_epoch_line(cases[i].e ? &e : NULL, cases[i].v ? &v : NULL, cases[i].best,
				       (struct ct__console_style){0}, cases[i].width, &out);
		assert_string_equal(out.s, cases[i].line);
		ct_str_release(&out);
	}
}

static void test_spark(void **state)
{
	struct ct_spark s = {0};
	char text[128];

	(void)state;
	ct_spark_draw(&s, 10, false, text, sizeof(text));
	assert_string_equal(text, "");
	ct_spark_add(&s, 1);
	ct_spark_add(&s, NAN);
	ct_spark_draw(&s, 10, false, text, sizeof(text));
	assert_string_equal(text, "");
	for (int i = 2; i <= 8; i++)
		ct_spark_add(&s, i);
	ct_spark_draw(&s, 10, false, text, sizeof(text));
	assert_string_equal(text, "_.-~=+*#");
	ct_spark_draw(&s, 4, true, text, sizeof(text));
	assert_string_equal(text, "\u2581\u2583\u2586\u2588");
	/* As many values as it likes, with the same shape: one half high, one half low. */
	memset(&s, 0, sizeof(s));
	for (int i = 0; i < 100000; i++)
		ct_spark_add(&s, i < 50000 ? 5 : 1);
	ct_spark_draw(&s, 8, false, text, sizeof(text));
	assert_string_equal(text, "####____");
	ct_spark_draw(&s, 100, false, text, sizeof(text));
	assert_true(strlen(text) <= CT_SPARK_MAX);
	/* All values are the same. */
	memset(&s, 0, sizeof(s));
	ct_spark_add(&s, 3);
	ct_spark_add(&s, 3);
	ct_spark_draw(&s, 8, false, text, sizeof(text));
	assert_string_equal(text, "__");
	ct_spark_draw(&s, 8, true, text, 5);
	assert_int_equal(strlen(text), 3);
}

static void test_wrap(void **state)
{
	static const struct {
		int width;
		const char *text, *want;
	} cases[] = {
		{0, "one two\n", "one two\n"},
		{7, "one two\n", "one two\n"},
		{6, "one two\n", "one\n  two\n"},
		{24, "  model   a b c d e f g h\n", "  model   a b c d e f g\n          h\n"},
		{30, "epoch 3  bound by data: much waiting here\nx\n",
		 "epoch 3  bound by data: much\n         waiting here\nx\n"},
		/* Colors take no columns. */
		{14, "a \033[36mbcdef\033[39m ghij\n", "a \033[36mbcdef\033[39m ghij\n"},
		{11, "a \033[36mbcdef\033[39m ghij\n", "a \033[36mbcdef\033[39m\n  ghij\n"},
		{10, "  a/very/long/path end\n", "  a/very/long/path\n  end\n"},
		{5, "", ""},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct ct_str out = {0};

		ct_wrap(cases[i].text, cases[i].width, &out);
		assert_string_equal(ct_str_text(&out), cases[i].want);
		ct_str_release(&out);
	}
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
		ct_console_span(cases[i].v, text, sizeof(text));
		assert_string_equal(text, cases[i].span);
		ct_console_rate(cases[i].v, text, sizeof(text));
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
	assert_ok(ct_console_table(&s, false, &out));
	assert_null(strchr(out.s, '\033'));
	assert_non_null(strstr(out.s, "9,380 (5 epochs)"));
	assert_non_null(strstr(out.s, "300,000, 3.61k/s in training"));
	assert_non_null(strstr(out.s, "best top1     0.9912"));
	assert_non_null(strstr(out.s, "backward 52%"));
	assert_non_null(strstr(out.s, "training loss 0.0231 in the last step"));
	ct_str_clear(&out);
	s.best_top1 = -1;
	s.last_loss = NAN;
	s.step = UINT64_MAX;
	memset(s.share, 0, sizeof(s.share));
	s.steps_per_epoch = 1000;
	assert_ok(ct_console_table(&s, true, &out));
	assert_non_null(strstr(out.s, "\033[1mdone\033[0m"));
	assert_null(strstr(out.s, "best top1"));
	assert_null(strstr(out.s, "training loss"));
	assert_null(strstr(out.s, "step time"));
	assert_non_null(strstr(out.s, "18,446,744,073,709,551,615"));
	ct_str_clear(&out);
	s.step = 30;
	s.epoch = 0;
	assert_ok(ct_console_table(&s, false, &out));
	assert_non_null(strstr(out.s, "30 (0.03 epochs)"));
	ct_str_release(&out);
}

static void test_modes(void **state)
{
	ct_console *c;

	(void)state;
	assert_ok(ct_console_create(CT_CFG_CONSOLE_LIVE, &c));
	assert_true(ct_console_is_live(c));
	ct_console_destroy(c);
	assert_ok(ct_console_create(CT_CFG_CONSOLE_OFF, &c));
	assert_false(ct_console_is_live(c));
	ct_console_destroy(c);
	ct_console_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status_widths), cmocka_unit_test(test_status_states),
		cmocka_unit_test(test_status_colors), cmocka_unit_test(test_epoch_line),
		cmocka_unit_test(test_spark),         cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_numbers),       cmocka_unit_test(test_table),
		cmocka_unit_test(test_modes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
