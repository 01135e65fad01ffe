/* Help pages, the search, the man page and the completions contain every command, and fit on a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/trainer/pages.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/help/help.h"

/* Parses a line of words that are separated by spaces; "..." and '...' hold words together. */
static enum ct_status parse(const char *text)
{
	char line[200], *argv[32] = {(char[]){"ctrain"}}, quote = 0;
	struct ct_cli cli;
	enum ct_status st;
	int argc = 1;

	snprintf(line, sizeof(line), "%s", text);
	for (char *s = line, *to = line; *s;) {
		argv[argc++] = to;
		for (; *s && (quote || *s != ' '); s++) {
			if (*s == quote || (!quote && (*s == '"' || *s == '\'')))
				quote = quote ? 0 : *s;
			else
				*to++ = *s;
		}
		s += *s == ' ';
		*to++ = '\0';
	}
	st = ct_cli_parse(&ct_commands, argc, argv, &cli);
	ct_cli_release(&cli);
	return st;
}

static void expect_narrow(const char *name, const char *text)
{
	const char *wide = too_wide(text);

	if (*wide)
		fail_msg("help of %s: more than 80 columns: %.*s", name, (int)strcspn(wide, "\n"), wide);
}

/* Each command has examples, and ctrain accepts them. */
static void test_pages(void **state)
{
	const struct ct_command *c;
	struct ct_str page = {0};
	char name[40];

	(void)state;
	ct_help_page(&ct_commands, NULL, &page);
	expect_narrow("ctrain", page.s);
	for (size_t i = 0; (c = ct_command_at(&ct_commands, i)); i++) {
		const struct ct_command_text *text = ct_command_text(c);

		if (!text)
			fail_msg("trainer/tools/help/examples.c has no examples of %s", ct_command_name(c, name));
		ct_str_clear(&page);
		ct_help_page(&ct_commands, c, &page);
		expect_narrow(ct_command_name(c, name), page.s);
		assert_non_null(strstr(page.s, "\nexamples\n  ctrain "));
		for (const char *s = text->examples; *s; s += strcspn(s, "\n"), s += *s == '\n') {
			char line[160], *comment;

			snprintf(line, sizeof(line), "%.*s", (int)strcspn(s, "\n"), s);
			comment = strstr(line, "  # ");
			if (!comment)
				comment = strstr(line, " | ");
			if (comment)
				*comment = '\0';
			assert_int_equal(strncmp(line, "ctrain ", 7), 0);
			if (parse(line + 7) < 0)
				fail_msg("%s: %s", line, ct_error_message());
		}
	}
	ct_str_release(&page);
}

static void test_search(void **state)
{
	struct ct_str page = {0};

	(void)state;
	assert_true(ct_help_search(&ct_commands, "warmup", &page) >= 3);
	assert_non_null(strstr(page.s, "schedule.warmup_epochs"));
	assert_non_null(strstr(page.s, "--warmup"));
	ct_str_clear(&page);
	assert_true(ct_help_search(&ct_commands, "Grad-Clip", &page) >= 1); /* a name in other tools */
	assert_non_null(strstr(page.s, "optim.clip_norm"));
	ct_str_clear(&page);
	assert_true(ct_help_search(&ct_commands, "backtrace", &page) >= 1);
	assert_non_null(strstr(page.s, "commands\n  postmortem"));
	expect_narrow("the search", page.s);
	ct_str_clear(&page);
	assert_int_equal(ct_help_search(&ct_commands, "qqqqq", &page), 0);
	assert_int_equal(page.len, 0);
	ct_str_release(&page);
}

/* The man page has all commands, and no line that roff would take for an unknown request. */
static void test_man(void **state)
{
	static const char *const requests[] = {".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi",  ".RS",
					       ".RE", ".br", ".nh", ".ad", ".B",  ".I",  ".\\\""};
	struct ct_str page = {0};
	const struct ct_command *c;
	char line[80], name[40];

	(void)state;
	ct_help_man(&ct_commands, &page);
	assert_ok(ct_str_status(&page));
	for (size_t i = 0; (c = ct_command_at(&ct_commands, i)); i++) {
		snprintf(line, sizeof(line), "\n.SS ctrain %s ", ct_command_name(c, name));
		assert_non_null(strstr(page.s, line));
	}
	for (const char *s = page.s; *s; s += strcspn(s, "\n"), s += *s == '\n') {
		bool known = *s != '.' && *s != '\'';

		for (size_t i = 0; i < CT_ARRAY_LEN(requests); i++)
			known |= strncmp(s, requests[i], strlen(requests[i])) == 0;
		if (!known)
			fail_msg("unknown request: %.*s", (int)strcspn(s, "\n"), s);
	}
	ct_str_release(&page);
}

static void test_completion(void **state)
{
	static const char *const shells[] = {"bash", "zsh", "fish"};
	struct ct_str text = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shells); i++) {
		ct_str_clear(&text);
		assert_true(ct_help_completion(&ct_commands, shells[i], &text));
		assert_ok(ct_str_status(&text));
		assert_non_null(strstr(text.s, "postmortem"));
		assert_non_null(strstr(text.s, "nproc") ? NULL : text.s); /* the first names only */
		assert_non_null(strstr(text.s, "seekable"));
		assert_non_null(strstr(text.s, "schedule.warmup_epochs"));
		assert_non_null(strstr(text.s, "adamw"));
	}
	assert_false(ct_help_completion(&ct_commands, "tcsh", &text));
	ct_str_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_search),
		cmocka_unit_test(test_man),
		cmocka_unit_test(test_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
