#define CT_LOG_COMPONENT "console"
#include "trainer/report/console_impl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"

#define REDRAW_NS (100 * CT_MS)
#define DEFAULT_WIDTH 80
/* Moves to the start of the row and clears to the end of the screen: a narrower terminal has wrapped the line. */
#define TO_START "\r"
#define CLEAR "\033[J"

struct ct_console {
	bool live, off;
	bool bold;          /* standard output may contain colors */
	_Atomic bool drawn; /* the live line is visible on the terminal; log lines of other threads erase it */
	int64_t last_ns;
	const char *last_phase;
};

/* Called by any thread, while the log's lock is held. */
static void take_off(void *user)
{
	ct_console *c = user;

	if (atomic_exchange(&c->drawn, false))
		ct_output_transient(STDERR_FILENO, TO_START CLEAR, strlen(TO_START CLEAR));
}

static bool can_move_cursor(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

/* no-color.org: any value except an empty one. */
static bool wants_colour(int fd)
{
	const char *no = getenv("NO_COLOR");

	return can_move_cursor(fd) && !(no && *no);
}

enum ct_status ct__console_create(enum ct_cfg_console mode, ct_console **out)
{
	ct_console *c;

	CT_TRY_ALLOC(c = CT_NEW(ct_console));
	c->live = mode == CT_CFG_CONSOLE_LIVE || (mode == CT_CFG_CONSOLE_AUTO && can_move_cursor(STDERR_FILENO));
	c->off = mode == CT_CFG_CONSOLE_OFF;
	c->bold = wants_colour(STDOUT_FILENO);
	if (c->live)
		ct_log_set_before(take_off, c);
	*out = c;
	return CT_OK;
}

void ct__console_destroy(ct_console *c)
{
	if (!c)
		return;
	if (c->live)
		ct_log_set_before(NULL, NULL);
	take_off(c);
	ct_free(c);
}

bool ct__console_is_live(const ct_console *c)
{
	return c->live;
}

static int terminal_width(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return DEFAULT_WIDTH;
	return size.ws_col;
}

void ct__console_progress(ct_console *c, const struct ct_progress *p)
{
	char line[256], text[sizeof(line) + 16];
	int64_t now;
	int n;

	if (!c->live)
		return;
	now = ct_now_ns();
	if (now - c->last_ns < REDRAW_NS && c->last_ns != 0 && c->last_phase == p->phase)
		return;
	c->last_ns = now;
	c->last_phase = p->phase;
	ct__console_line(p, terminal_width(), line, sizeof(line));
	n = snprintf(text, sizeof(text), TO_START "%s" CLEAR TO_START, line);
	atomic_store(&c->drawn, true);
	ct_output_transient(STDERR_FILENO, text, (size_t)n);
}

void ct__console_sayv(ct_console *c, const char *fmt, va_list ap)
{
	struct ct_str line = {0};

	if (c->off)
		return;
	ct_str_addv(&line, fmt, ap);
	ct_str_add(&line, "\n");
	take_off(c);
	(void)fflush(stdout);
	if (!line.failed)
		ct_output_write(STDOUT_FILENO, line.s, line.len);
	ct_str_release(&line);
	/* Allows the next redraw to happen at once. */
	c->last_ns = 0;
}

void ct__console_say(ct_console *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ct__console_sayv(c, fmt, ap);
	va_end(ap);
}

void ct__console_summary(ct_console *c, const struct ct_run_summary *s)
{
	struct ct_str table = {0};

	take_off(c);
	if (c->off)
		return;
	(void)fflush(stdout);
	if (ct__console_table(s, c->bold, &table) == CT_OK)
		ct_output_write(STDOUT_FILENO, table.s, table.len);
	else
		ct_error_clear();
	ct_str_release(&table);
}
