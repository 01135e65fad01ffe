/* The formatting functions of console_impl.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/report/console_impl.h"

#define N_FIELDS 6
#define FIELD_LEN 48
#define GAP 2 /* spaces between fields */

enum field { FIELD_EPOCH, FIELD_STEP, FIELD_PERCENT, FIELD_RATE, FIELD_LOSS, FIELD_ETA };

void ct__console_span(double seconds, char *out, size_t size)
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

void ct__console_rate(double v, char *out, size_t size)
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

static void make_fields(const struct ct_progress *p, char f[N_FIELDS][FIELD_LEN])
{
	uint32_t epoch = p->epochs > 0 && p->epoch >= p->epochs ? p->epochs : p->epoch + 1;
	const char *phase = p->phase && strcmp(p->phase, "train") != 0 ? p->phase : "";
	const char *gap = *phase ? "  " : "";
	char text[16];

	if (p->epochs > 0)
		snprintf(f[FIELD_EPOCH], FIELD_LEN, "%.12s%sepoch %u/%u", phase, gap, epoch, p->epochs);
	else
		snprintf(f[FIELD_EPOCH], FIELD_LEN, "%.12s%sepoch %u", phase, gap, epoch);
	if (p->total_steps > 0) {
		snprintf(f[FIELD_STEP], FIELD_LEN, "step %llu/%llu", (unsigned long long)p->step,
			 (unsigned long long)p->total_steps);
		/* Rounded down, so 100% means finished. */
		snprintf(f[FIELD_PERCENT], FIELD_LEN, "%d%%", (int)(100.0 * (double)p->step / (double)p->total_steps));
	} else {
		snprintf(f[FIELD_STEP], FIELD_LEN, "step %llu", (unsigned long long)p->step);
	}
	/* Before the first metrics line there is no rate, so the remaining time is unknown. */
	if (p->images_per_sec > 0) {
		ct__console_rate(p->images_per_sec, text, sizeof(text));
		snprintf(f[FIELD_RATE], FIELD_LEN, "%s img/s", text);
	}
	snprintf(f[FIELD_LOSS], FIELD_LEN, "loss %.4g", p->loss);
	if (p->images_per_sec > 0 && p->total_steps > 0) {
		ct__console_span(p->eta_seconds, text, sizeof(text));
		snprintf(f[FIELD_ETA], FIELD_LEN, "eta %s", text);
	}
}

static size_t total_width(char f[N_FIELDS][FIELD_LEN])
{
	size_t n = 0;

	for (int i = 0; i < N_FIELDS; i++)
		n += f[i][0] ? strlen(f[i]) + GAP : 0;
	return n > 0 ? n - GAP : 0;
}

void ct__console_line(const struct ct_progress *p, int width, char *out, size_t size)
{
	static const enum field least_first[] = {FIELD_RATE, FIELD_ETA, FIELD_PERCENT, FIELD_LOSS, FIELD_STEP};
	char f[N_FIELDS][FIELD_LEN] = {{0}};
	size_t room = width > 1 ? (size_t)width - 1 : 0, len = 0;

	if (room >= size)
		room = size - 1;
	make_fields(p, f);
	for (size_t i = 0; i < CT_ARRAY_LEN(least_first) && total_width(f) > room; i++)
		f[least_first[i]][0] = '\0';
	out[0] = '\0';
	for (int i = 0; i < N_FIELDS && len < room; i++) {
		if (f[i][0])
			len += (size_t)snprintf(out + len, room + 1 - len, "%*s%s", len > 0 ? GAP : 0, "", f[i]);
	}
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

/* 60000 -> "60,000" */
static const char *grouped(uint64_t v, char *buf, size_t size)
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
	if (sum > 0)
		row(out, "step time", "%s", ct_str_text(&text));
	out->failed |= text.failed;
	ct_str_release(&text);
}

enum ct_status ct__console_table(const struct ct_run_summary *s, bool bold, struct ct_str *out)
{
	char a[32], b[32];

	ct_str_addf(out, "\n%s%s%s\n", bold ? "\033[1m" : "", s->status, bold ? "\033[0m" : "");
	row(out, "steps", "%s (%u epoch%s)", grouped(s->step, a, sizeof(a)), s->epoch, ct_plural(s->epoch));
	ct__console_span(s->seconds, a, sizeof(a));
	ct__console_span(s->startup_seconds, b, sizeof(b));
	if (s->startup_seconds > 0)
		row(out, "time", "%s, the first step done after %s", a, b);
	else
		row(out, "time", "%s", a);
	if (s->images_per_sec > 0) {
		ct__console_rate(s->images_per_sec, b, sizeof(b));
		row(out, "images", "%s, %s/s in training", grouped(s->images, a, sizeof(a)), b);
	} else {
		row(out, "images", "%s", grouped(s->images, a, sizeof(a)));
	}
	add_shares(s, out);
	if (!isnan(s->last_loss))
		row(out, "training loss", "%.6g", s->last_loss);
	if (s->best_top1 >= 0)
		row(out, "best top1", "%.4f", s->best_top1);
	if (s->checkpoint[0])
		row(out, "checkpoint", "%s", s->checkpoint);
	if (s->weights_digest[0])
		row(out, "weights", "%s", s->weights_digest);
	return ct_str_status(out);
}
