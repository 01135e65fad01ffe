/* The lines of several ranks must not mix. Each pipe has a buffer, and only complete lines are printed, each with a
 * single call. A line that does not end is printed when it is longer than LONGEST_LINE, so a rank cannot fill the
 * memory of the launcher, and at the end of the stream. The live line of rank 0 is erased first, because rank 0 writes
 * directly to the terminal and draws it again. */
#include "trainer/launch/lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "base/process/terminal.h"

#define LONGEST_LINE 65536

void ct_lines_clear_live(void)
{
	if (ct_terminal_is_live(STDERR_FILENO))
		ct_output_transient(STDERR_FILENO, "\r\033[J", 4);
}

static void print_line(int to, const char *prefix, const char *text, size_t len)
{
	struct ct_str line = {0};

	ct_str_add(&line, prefix);
	ct_str_add_bytes(&line, text, len);
	ct_str_add(&line, "\n");
	if (ct_str_status(&line) == CT_OK)
		ct_output_write(to, line.s, line.len);
	else
		ct_error_clear();
	ct_str_release(&line);
}

static void print_lines(struct ct_lines *l, int to, const char *prefix, bool all)
{
	const char *text = ct_str_text(&l->line);
	size_t done = 0;

	if (strchr(text, '\n') || (all && text[0]))
		ct_lines_clear_live();
	for (const char *nl; (nl = strchr(text + done, '\n')) != NULL; done = (size_t)(nl - text) + 1)
		print_line(to, prefix, text + done, (size_t)(nl - text) - done);
	if (all && text[done]) {
		print_line(to, prefix, text + done, strlen(text + done));
		done = l->line.len;
	}
	if (done > 0) {
		memmove(l->line.s, l->line.s + done, l->line.len - done + 1);
		l->line.len -= done;
	}
}

void ct_lines_drain(struct ct_lines *l, int to, const char *prefix)
{
	char buf[4096];
	ssize_t n;

	while (l->fd >= 0 && (n = read(l->fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		for (ssize_t i = 0; i < n; i++) /* a NUL would truncate the line */
			if (buf[i] == 0)
				buf[i] = '?';
		ct_str_add_bytes(&l->line, buf, (size_t)n);
		print_lines(l, to, prefix, l->line.len > LONGEST_LINE);
	}
	if (l->fd >= 0) {
		print_lines(l, to, prefix, true);
		close(l->fd);
		l->fd = -1;
	}
}

void ct_lines_release(struct ct_lines *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	ct_str_release(&l->line);
}
