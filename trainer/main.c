#define CT_LOG_COMPONENT "main"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "trainer/job/launched.h"
#include "trainer/job/signals.h"
#include "trainer/launch/remote/control.h"
#include "trainer/tools/commands/commands.h"

#define FINISH_NS (5 * CT_SEC) /* how long the final message waits for a reader that has stopped reading */

/* Prints the message and the hint, which may contain bytes of a user's file. At debug level, also prints where the
 * error was set. */
static void report(void)
{
	struct ct_str out = {0};

	if (ct_error_reason() == CT_REASON_REPORTED)
		return;
	/* A stop that the user has requested is not an error. A list of problems already contains "file:line:column:
	 * error:". */
	if (ct_error_status() == CT_INTERRUPTED)
		ct_str_add(&out, "ctrain: ");
	else if (ct_error_reason() != CT_REASON_PROBLEMS)
		ct_str_add(&out, "ctrain: error: ");
	ct_str_add_lines(&out, ct_error_message());
	if (ct_error_hint_text()[0])
		ct_str_add(&out, "\nhint: ");
	ct_str_add_lines(&out, ct_error_hint_text());
	ct_str_add(&out, "\n");
	if (out.failed) /* out of memory: print the message unchanged */
		ct_output_print(STDERR_FILENO, "ctrain: error: %s\n", ct_error_message());
	else
		ct_output_write(STDERR_FILENO, out.s, out.len);
	ct_str_release(&out);
	for (const char *s = ct_error_frames(); *s; s += strcspn(s, "\n"), s += *s == '\n')
		CT_DEBUG("  at %.*s", (int)strcspn(s, "\n"), s);
}

/* If a standard file is closed, the next file that is opened gets its descriptor: output would be written to that file,
 * and children would get it as their standard file. */
static void open_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	const char *levels;
	struct ct_cli cli = {0};
	enum ct_status st;

	open_standard_files();
	/* If the program that started ctrain ignores SIGCHLD, waitpid would not get the exit codes of children. */
	(void)signal(SIGCHLD, SIG_DFL);
	ct_signals_prepare_init_process();
	st = ct_control_start();
	levels = getenv("CTRAIN_LOG");
	if (st == CT_OK && levels && levels[0])
		st = ct_log_configure(levels) < 0 ? ct_error_wrap("environment CTRAIN_LOG") : CT_OK;
	if (st == CT_OK)
		st = ct_launched_join();
	if (st == CT_OK)
		st = ct_cli_parse(&ct_commands, argc, argv, &cli);
	if (st == CT_OK)
		ct_cli_set_log(&cli);
	if (st == CT_OK)
		st = cli.command->run(&cli);
	/* A worker of our launcher passes its message to the launcher, which prints that of the first rank that failed.
	 */
	if (st < 0 && !ct_launched_deliver_error(st))
		report();
	ct_cli_release(&cli);
	ct_output_finish(ct_deadline_in(FINISH_NS));
	return ct_status_exit_code(st);
}
