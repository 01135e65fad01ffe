/* The live lines are drawn without leaving a trace: the cursor goes back to their start after each drawing, and
 * anything that prints erases them first. Other threads may log at any time. They erase the lines through a callback of
 * the log, under its lock, and `drawn` is exchanged atomically, so that only one of them does it; the next drawing
 * brings the lines back. Nothing else of a console may be used by two threads.
 *
 * The line of an epoch is held back until the evaluation that may follow it, the next training step, or the end, so
 * that both fit on one line. A bottleneck report is printed only when the bottleneck differs from that of the epoch
 * before. */
#define CT_LOG_COMPONENT "console"
#include "trainer/run/metrics/console.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "base/process/terminal.h"
#include "trainer/run/metrics/console_impl.h"
#include "trainer/run/metrics/wrap.h"

#define REDRAW_NS (100 * CT_MS)
#define DEFAULT_WIDTH 80
#define DEFAULT_ROWS 24
#define MIN_ROWS 4 /* for two live lines */
#define TO_START "\r"
#define CLEAR_ROW "\033[K"
/* Clears to the end of the screen: a narrower terminal has wrapped the lines. */
#define CLEAR "\033[J"
#define UP "\033[A"

struct ct_console {
	bool live, off;
	bool bold;                      /* standard output may contain colors */
	struct ct__console_style style; /* of the live lines */
	_Atomic bool drawn; /* the live lines are visible on the terminal; log lines of other threads erase them */
	int64_t last_ns;
	enum ct_rank_phase last_phase;
	uint64_t last_step;
	struct ct_spark loss;
	struct ct_str lines, text; /* kept, so that drawing allocates nothing */
	double best_top1;          /* of the evaluations that were shown */
	bool has_epoch;            /* the line of `epoch` is printed with the evaluation that may follow */
	struct ct_epoch_metrics epoch;
	struct ct_str verdict; /* of this epoch; empty if the bottleneck is that of the epoch before */
	char bound_by[32];     /* of the last epoch */
};

/* Called by any thread, while the log's lock is held. */
static void take_off(void *user)
{
	ct_console *c = user;

	if (atomic_exchange(&c->drawn, false))
		ct_output_transient(STDERR_FILENO, TO_START CLEAR, strlen(TO_START CLEAR));
}

static void print_epoch(ct_console *c, const struct ct_eval_metrics *v);

enum ct_status ct_console_create(enum ct_cfg_console mode, ct_console **out)
{
	ct_console *c;

	CT_TRY_ALLOC(c = CT_NEW(ct_console));
	c->live = mode == CT_CFG_CONSOLE_LIVE || (mode == CT_CFG_CONSOLE_AUTO && ct_terminal_is_live(STDERR_FILENO));
	c->off = mode == CT_CFG_CONSOLE_OFF;
	c->bold = ct_terminal_has_colors(STDOUT_FILENO);
	c->style = (struct ct__console_style){.colors = ct_terminal_has_colors(STDERR_FILENO),
					      .utf8 = ct_terminal_is_utf8()};
	c->best_top1 = -1;
	if (c->live)
		ct_log_set_before(take_off, c);
	*out = c;
	return CT_OK;
}

void ct_console_destroy(ct_console *c)
{
	if (!c)
		return;
	if (c->live)
		ct_log_set_before(NULL, NULL);
	print_epoch(c, NULL);
	take_off(c);
	ct_str_release(&c->lines);
	ct_str_release(&c->text);
	ct_str_release(&c->verdict);
	ct_free(c);
}

bool ct_console_is_live(const ct_console *c)
{
	return c && c->live;
}

static int terminal_width(void)
{
	return ct_terminal_columns(STDERR_FILENO, DEFAULT_WIDTH);
}

/* Draws lines, which are separated by a line feed, and moves the cursor back to their start. */
static void draw(ct_console *c, const char *lines)
{
	int n = 0;

	ct_str_clear(&c->text);
	ct_str_add(&c->text, TO_START);
	for (const char *at = lines, *end; *at; at = end) {
		end = at + strcspn(at, "\n");
		ct_str_add_bytes(&c->text, at, (size_t)(end - at));
		if (*end) {
			ct_str_add(&c->text, CLEAR_ROW "\r\n");
			end++;
			n++;
		}
	}
	ct_str_add(&c->text, CLEAR);
	for (; n > 0; n--)
		ct_str_add(&c->text, UP);
	ct_str_add(&c->text, TO_START);
	if (c->text.failed)
		return;
	atomic_store(&c->drawn, true);
	ct_output_transient(STDERR_FILENO, c->text.s, c->text.len);
}

/* Returns true at most 10 times a second, unless `phase` has changed. */
static bool is_due(ct_console *c, enum ct_rank_phase phase)
{
	int64_t now = ct_now_ns();

	if (now - c->last_ns < REDRAW_NS && c->last_ns != 0 && c->last_phase == phase)
		return false;
	c->last_ns = now;
	c->last_phase = phase;
	return true;
}

void ct_console_progress(ct_console *c, const struct ct_progress *p)
{
	if (!ct_console_is_live(c))
		return;
	if (c->best_top1 < 0) /* a run that was continued has had evaluations */
		c->best_top1 = p->best_top1 > 0 ? p->best_top1 : -1;
	if (p->step != c->last_step)
		ct_spark_add(&c->loss, p->loss);
	c->last_step = p->step;
	if (c->has_epoch && p->phase == CT_RANK_TRAINING) /* no evaluation has followed */
		print_epoch(c, NULL);
	if (!is_due(c, p->phase))
		return;
	c->style.one_line = ct_terminal_rows(STDERR_FILENO, DEFAULT_ROWS) < MIN_ROWS;
	ct_str_clear(&c->lines);
	ct__console_status(p, &c->loss, c->style, terminal_width(), &c->lines);
	if (!c->lines.failed)
		draw(c, ct_str_text(&c->lines));
}

/* Shows one line of text, truncated to the width. */
static void draw_text(ct_console *c, struct ct_str *line)
{
	const int width = terminal_width();

	if (line->failed || line->len == 0)
		return;
	line->s[ct_text_cut(line->s, width > 1 ? (size_t)width - 1 : 0)] = '\0';
	draw(c, line->s);
}

void ct_console_count(ct_console *c, const char *what, size_t done, size_t total)
{
	struct ct_str line = {0};

	if (!ct_console_is_live(c) || !is_due(c, CT_RANK_COMPILING))
		return;
	ct_str_addf(&line, "%s %zu/%zu", what, done, total);
	draw_text(c, &line);
	ct_str_release(&line);
}

/* The arguments may come from files that are not trusted. */
static void add_escaped(struct ct_str *out, const char *fmt, va_list ap)
{
	struct ct_str text = {0};

	ct_str_addv(&text, fmt, ap);
	ct_str_add_lines(out, ct_str_text(&text));
	out->failed |= text.failed;
	ct_str_release(&text);
}

void ct_console_stage(ct_console *c, const char *fmt, ...)
{
	struct ct_str line = {0};
	va_list ap;

	if (!c || c->off)
		return;
	va_start(ap, fmt);
	add_escaped(&line, fmt, ap);
	va_end(ap);
	if (c->live) {
		draw_text(c, &line);
		c->last_ns = 0;
	} else {
		ct_console_say(c, "%s", ct_str_text(&line));
	}
	ct_str_release(&line);
}

/* Prints complete lines above the live lines. On a terminal, lines are broken between words. */
static void print_lines(ct_console *c, const char *text)
{
	struct ct_str lines = {0};

	ct_wrap(text, c->live && isatty(STDOUT_FILENO) ? ct_terminal_columns(STDOUT_FILENO, DEFAULT_WIDTH) : 0, &lines);
	take_off(c);
	(void)fflush(stdout);
	if (!lines.failed && lines.len > 0)
		ct_output_write(STDOUT_FILENO, lines.s, lines.len);
	ct_str_release(&lines);
	/* Allows the next redraw to happen at once. */
	c->last_ns = 0;
}

/* Prints the line of the epoch that was held back, if there is one, and of the evaluation, and the bottleneck report if
 * the bottleneck has changed. */
static void print_epoch(ct_console *c, const struct ct_eval_metrics *v)
{
	const struct ct_epoch_metrics *e = c->has_epoch && (!v || v->epoch == c->epoch.epoch) ? &c->epoch : NULL;
	const bool best = v && v->top1 > c->best_top1;
	struct ct_str line = {0};

	if (c->has_epoch && !e) /* the evaluation is of another epoch */
		print_epoch(c, NULL);
	c->has_epoch = false;
	if (!e && !v)
		return;
	if (best)
		c->best_top1 = v->top1;
	ct__console_epoch_line(e, v, best, (struct ct__console_style){.colors = c->bold}, terminal_width(), &line);
	ct_str_add(&line, "\n");
	if (e && c->verdict.len > 0)
		ct_str_addf(&line, "  %s\n", ct_str_text(&c->verdict));
	print_lines(c, ct_str_text(&line));
	ct_str_release(&line);
}

void ct__console_hold_epoch(ct_console *c, const struct ct_epoch_metrics *e)
{
	print_epoch(c, NULL);
	c->epoch = *e;
	c->epoch.verdict = c->epoch.bound_by = ""; /* those of e are borrowed */
	c->has_epoch = true;
	ct_str_clear(&c->verdict);
	if (strcmp(e->bound_by, c->bound_by) != 0)
		ct_str_add_lines(&c->verdict, e->verdict);
	snprintf(c->bound_by, sizeof(c->bound_by), "%s", e->bound_by);
}

void ct__console_end_epoch(ct_console *c, const struct ct_eval_metrics *v)
{
	print_epoch(c, v);
}

void ct_console_sayv(ct_console *c, const char *fmt, va_list ap)
{
	struct ct_str line = {0};

	if (!c || c->off)
		return;
	add_escaped(&line, fmt, ap);
	ct_str_add(&line, "\n");
	if (!line.failed)
		print_lines(c, line.s);
	ct_str_release(&line);
}

void ct_console_say(ct_console *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ct_console_sayv(c, fmt, ap);
	va_end(ap);
}

void ct_console_summary(ct_console *c, const struct ct_run_summary *s)
{
	struct ct_str table = {0};

	if (!c)
		return;
	print_epoch(c, NULL);
	take_off(c);
	if (c->off)
		return;
	if (ct_console_table(s, c->bold, &table) == CT_OK)
		print_lines(c, table.s);
	else
		ct_error_clear();
	ct_str_release(&table);
}
