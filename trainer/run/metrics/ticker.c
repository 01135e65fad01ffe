#include "trainer/run/metrics/ticker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/terminal.h"
#include "trainer/run/metrics/console.h"

#define REDRAW_NS (100 * CT_MS)
#define DEFAULT_WIDTH 80

struct ct_ticker {
	const char *what;
	bool live;
	_Atomic bool drawn;
	int64_t start_ns, last_ns;
};

static void take_off(void *user)
{
	ct_ticker *t = user;

	if (atomic_exchange(&t->drawn, false))
		fputs("\r\033[J", stderr);
}

enum ct_status ct_ticker_create(const char *what, ct_ticker **out)
{
	ct_ticker *t;

	CT_TRY_ALLOC(t = CT_NEW(ct_ticker));
	t->what = what;
	t->live = ct_terminal_is_live(STDERR_FILENO);
	t->start_ns = ct_now_ns();
	if (t->live)
		ct_log_set_before(take_off, t);
	*out = t;
	return CT_OK;
}

void ct_ticker_destroy(ct_ticker *t)
{
	if (!t)
		return;
	if (t->live) {
		take_off(t);
		ct_log_set_before(NULL, NULL);
	}
	ct_free(t);
}

void ct_ticker_line(const char *what, uint64_t done, uint64_t total, double seconds, const char *note, int width,
		    char *out, size_t size)
{
	char rate[16], left[16], line[256];
	double per_second = seconds > 0 ? (double)done / seconds : 0;

	ct_console_rate(per_second, rate, sizeof(rate));
	ct_console_span(done > 0 ? (double)(total - done) / per_second : -1, left, sizeof(left));
	snprintf(line, sizeof(line), "%s  %llu/%llu (%d%%)  %s/s  %s left%s%s", what, (unsigned long long)done,
		 (unsigned long long)total, total > 0 ? (int)(100 * done / total) : 100, rate, done > 0 ? left : "?",
		 note ? "  " : "", note ? note : "");
	snprintf(out, size, "%.*s", width > 1 ? width - 1 : 0, line);
}

void ct_ticker_show(ct_ticker *t, uint64_t done, uint64_t total, const char *note)
{
	int64_t now = t->live ? ct_now_ns() : 0;
	char line[256];

	if (!t->live || (now - t->last_ns < REDRAW_NS && done < total))
		return;
	t->last_ns = now;
	ct_ticker_line(t->what, done, total, (double)(now - t->start_ns) * 1e-9, note,
		       ct_terminal_columns(STDERR_FILENO, DEFAULT_WIDTH), line, sizeof(line));
	fprintf(stderr, "\r%s\033[K\r", line);
	atomic_store(&t->drawn, true);
}
