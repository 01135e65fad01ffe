#define CT_LOG_COMPONENT "main"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "trainer/commands/cli.h"
#include "trainer/loop/worker.h"

/* Text may hold bytes of a user's file: what is no character is shown by number, line breaks stay. */
static void print_text(const char *text)
{
	size_t n = strlen(text), taken;
	char shown[5];

	for (size_t i = 0; i < n; i += taken) {
		taken = text[i] == '\n' ? 1 : ct_escape_next(text + i, n - i, shown);
		fputs(text[i] == '\n' ? "\n" : shown, stderr);
	}
}

/* One sentence and what to do; where it came from at debug level. */
static void report(void)
{
	/* Lists of problems have their own "file:line:column: error:". */
	if (!strstr(ct_error_message(), ": error: "))
		fputs("ctrain: error: ", stderr);
	print_text(ct_error_message());
	if (ct_error_hint_text()[0])
		fputs("\nhint: ", stderr);
	print_text(ct_error_hint_text());
	fputs("\n", stderr);
	for (const char *s = ct_error_frames(); *s; s += strcspn(s, "\n"), s += *s == '\n')
		CT_DEBUG("  at %.*s", (int)strcspn(s, "\n"), s);
}

int main(int argc, char **argv)
{
	const char *levels = getenv("CTRAIN_LOG");
	struct ct_cli cli = {0};
	enum ct_status st;

	st = levels && levels[0] ? ct_log_configure(levels) : CT_OK;
	if (st < 0)
		ct_error_wrap("environment CTRAIN_LOG");
	if (st == CT_OK)
		st = ct_cli_parse(argc, argv, &cli);
	if (st == CT_OK && cli.command->run)
		st = cli.command->run(&cli);
	/* Workers of our launcher hand their message to it: it prints that of the first rank that failed. */
	if (st < 0 && !ct_worker_deliver_error(st))
		report();
	ct_cli_release(&cli);
	return ct_status_exit_code(st);
}
