/* The formatting functions of console.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/run/metrics/console.h"

void ct_console_span(double seconds, char *out, size_t size)
{
	unsigned long long s;

	if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) {
		snprintf(out, size, "?");
		return;
	}
	s = (unsigned long long)(seconds + 0.5);
	if (seconds < 9.95)
		snprintf(out, size, seconds < 0.995 ? "%.2fs" : "%.1fs", seconds);
	else if (s < 60)
		snprintf(out, size, "%llus", s);
	else if (s < 3600)
		snprintf(out, size, "%llum%02llus", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, size, "%lluh%02llum", s / 3600, s / 60 % 60);
	else
		snprintf(out, size, "%llud%02lluh", s / 86400, s / 3600 % 24);
}

void ct_console_rate(double v, char *out, size_t size)
{
	if (!isfinite(v) || v < 0)
		snprintf(out, size, "?");
	else if (v < 999.5)
		snprintf(out, size, "%.*f", v < 9.95 ? 1 : 0, v);
	else if (v < 999500)
		snprintf(out, size, "%.*fk", v < 9995 ? 2 : v < 99950 ? 1 : 0, v / 1e3);
	else
		snprintf(out, size, "%.*fM", v < 9995000 ? 2 : v < 99950000 ? 1 : 0, v / 1e6);
}

static void CT_PRINTF(3, 4) row(struct ct_str *out, const char *label, const char *fmt, ...)
{
	va_list ap;

	ct_str_addf(out, "  %-14s", label);
	va_start(ap, fmt);
	ct_str_addv(out, fmt, ap);
	va_end(ap);
	ct_str_add(out, "\n");
}

const char *ct_console_grouped(uint64_t v, char *buf, size_t size)
{
	char digits[24];
	size_t n = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)v), k = 0;

	for (size_t i = 0; i < n && k + 2 < size; i++) {
		if (i > 0 && (n - i) % 3 == 0)
			buf[k++] = ',';
		buf[k++] = digits[i];
	}
	buf[k] = '\0';
	return buf;
}

static void add_shares(const struct ct_run_summary *s, struct ct_str *out)
{
	static const char *const names[6] = {"data", "forward", "backward", "waiting for ranks", "optimizer", "other"};
	struct ct_str text = {0};
	double sum = 0;

	for (int i = 0; i < 6; i++) {
		sum += s->share[i];
		ct_str_addf(&text, "%s%s %.0f%%", i ? ", " : "", names[i], 100 * s->share[i]);
	}
	if (sum > 0 && s->images_per_sec > 0) /* else no step was trained */
		row(out, "step time", "%s", ct_str_text(&text));
	out->failed |= text.failed;
	ct_str_release(&text);
}

/* "63 (3 epochs)", or "11 (0.52 epochs)" if the run has stopped within an epoch. */
static void add_steps(const struct ct_run_summary *s, struct ct_str *out)
{
	char a[32];

	ct_console_grouped(s->step, a, sizeof(a));
	if (s->steps_per_epoch == 0 || s->step % s->steps_per_epoch == 0)
		row(out, "steps", "%s (%u epoch%s)", a, s->epoch, ct_plural(s->epoch));
	else
		row(out, "steps", "%s (%.2f epochs)", a, (double)s->step / (double)s->steps_per_epoch);
}

enum ct_status ct_console_table(const struct ct_run_summary *s, bool bold, struct ct_str *out)
{
	char a[32], b[32];

	ct_str_addf(out, "\n%s%s%s\n", bold ? "\033[1m" : "", s->status, bold ? "\033[0m" : "");
	add_steps(s, out);
	ct_console_span(s->seconds, a, sizeof(a));
	ct_console_span(s->startup_seconds, b, sizeof(b));
	if (s->startup_seconds > 0)
		row(out, "time", "%s, the first step done after %s", a, b);
	else
		row(out, "time", "%s", a);
	if (s->images_per_sec > 0) {
		ct_console_rate(s->images_per_sec, b, sizeof(b));
		row(out, "images", "%s, %s/s in training", ct_console_grouped(s->images, a, sizeof(a)), b);
	} else {
		row(out, "images", "%s", ct_console_grouped(s->images, a, sizeof(a)));
	}
	add_shares(s, out);
	if (!isnan(s->last_loss))
		row(out, "training loss", "%.6g in the last step", s->last_loss);
	if (s->best_top1 >= 0)
		row(out, "best top1", "%.4f", s->best_top1);
	if (s->checkpoint[0])
		row(out, "checkpoint", "%s", s->checkpoint);
	if (s->weights_digest[0])
		row(out, "weights", "%s", s->weights_digest);
	return ct_str_status(out);
}
