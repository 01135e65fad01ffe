/* Colors, locale and the width of text. */
#include <stdlib.h>
#include <unistd.h>

#include "base/process/terminal.h"
#include "tests/base/check.h"

static void test_columns(void **state)
{
	static const struct {
		const char *text;
		size_t columns, limit, bytes;
	} cases[] = {
		{"", 0, 5, 0},
		{"abc", 3, 2, 2},
		{"abc", 3, 3, 3},
		{"a\xE2\x96\x81z", 3, 2, 4},        /* a block element has three bytes */
		{"a\033[1;31mb\033[0mc", 3, 2, 13}, /* escape sequences are not counted, and not divided */
		{"\033[1mab", 2, 0, 4},
		{"\xE2", 1, 5, 1}, /* incomplete */
		{"a\033", 2, 5, 2},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(ct_text_columns(cases[i].text), cases[i].columns);
		assert_int_equal(ct_text_cut(cases[i].text, cases[i].limit), cases[i].bytes);
	}
}

static void set(const char *name, const char *value)
{
	if (value)
		assert_int_equal(setenv(name, value, 1), 0);
	else
		assert_int_equal(unsetenv(name), 0);
}

static void test_colors(void **state)
{
	static const struct {
		const char *no, *force, *cli_force;
		bool colors;
	} cases[] = {
		{NULL, NULL, NULL, false}, {NULL, "1", NULL, true}, {NULL, NULL, "1", true}, {NULL, "", "", false},
		{NULL, "0", "0", false},   {"1", "1", "1", false},  {"", "1", NULL, true},
	};
	int pipe_ends[2];

	(void)state;
	assert_int_equal(pipe(pipe_ends), 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		set("NO_COLOR", cases[i].no);
		set("FORCE_COLOR", cases[i].force);
		set("CLICOLOR_FORCE", cases[i].cli_force);
		assert_int_equal(ct_terminal_has_colors(pipe_ends[1]), cases[i].colors);
		assert_false(ct_terminal_is_live(pipe_ends[1]));
	}
	assert_int_equal(ct_terminal_columns(pipe_ends[1], 77), 77);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

static void test_locale(void **state)
{
	(void)state;
	set("LC_ALL", NULL);
	set("LC_CTYPE", NULL);
	set("LANG", NULL);
	assert_false(ct_terminal_is_utf8());
	set("LANG", "de_DE.UTF-8");
	assert_true(ct_terminal_is_utf8());
	set("LC_CTYPE", "C.utf8");
	assert_true(ct_terminal_is_utf8());
	set("LC_ALL", "C");
	assert_false(ct_terminal_is_utf8());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_colors),
		cmocka_unit_test(test_locale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
