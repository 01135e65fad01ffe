/* The live lines of the console: which fields they have, and how they fit into the width. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process/terminal.h"
#include "trainer/run/metrics/console_impl.h"

#define FIELD_LEN 128
#define GAP 2 /* spaces between fields */
#define BAR_MIN 8
#define BAR_MAX 24
#define WAIT_ALARM 0.2 /* share of the step time that is shown in red */

#define CYAN "\033[36m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define RED "\033[31m"
#define DIM "\033[2m"
#define PLAIN "\033[0m"

/* Fields are omitted in the order of `rank`, the largest first; 0: never. */
struct field {
	char text[FIELD_LEN];
	const char *color; /* NULL: none */
	int rank;
};

static void CT_PRINTF(4, 5) set(struct field *f, int rank, const char *color, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	f->color = color;
	f->rank = rank;
}

static size_t total_columns(const struct field *f, int n)
{
	size_t total = 0;

	for (int i = 0; i < n; i++)
		total += f[i].text[0] ? ct_text_columns(f[i].text) + GAP : 0;
	return total > 0 ? total - GAP : 0;
}

static void drop_until_fit(struct field *f, int n, size_t room)
{
	while (total_columns(f, n) > room) {
		struct field *least = NULL;

		for (int i = 0; i < n; i++)
			if (f[i].text[0] && f[i].rank > 0 && (!least || f[i].rank > least->rank))
				least = &f[i];
		if (!least)
			return;
		least->text[0] = '\0';
	}
}

/* Appends the fields in at most `room` columns. If the last one that is left is still too long, it is truncated. */
static void join(struct field *f, int n, size_t room, bool colors, struct ct_str *out)
{
	size_t used = 0;

	drop_until_fit(f, n, room);
	for (int i = 0; i < n; i++) {
		if (!f[i].text[0] || used >= room)
			continue;
		const size_t gap = used > 0 ? GAP : 0, bytes = ct_text_cut(f[i].text, room - used - gap);
		const char *color = colors ? f[i].color : NULL;

		ct_str_addf(out, "%*s%s%.*s%s", (int)gap, "", color ? color : "", (int)bytes, f[i].text,
			    color ? PLAIN : "");
		used += gap + ct_text_columns(f[i].text);
	}
}

/* The bar takes the place that is left. */
static void set_bar(struct field *bar, const struct ct_progress *p, size_t room, bool utf8)
{
	const size_t width = room < BAR_MAX ? room : BAR_MAX;
	size_t len = 0;

	bar->text[0] = '\0';
	if (width < BAR_MIN || p->total_steps == 0)
		return;
	const double done = fmin(1, (double)p->step / (double)p->total_steps);
	const size_t filled = (size_t)(done * (double)width);
	for (size_t i = 0; i < width; i++) {
		const char *c = i < filled ? (utf8 ? "\u2501" : "#") : (utf8 ? "\u2500" : ".");

		len += (size_t)snprintf(bar->text + len, sizeof(bar->text) - len, "%s", c);
	}
	bar->color = CYAN;
}

enum { PHASE, EPOCH, BAR, PERCENT, STEP, RATE, ETA, N_FIRST };

static void add_first(const struct ct_progress *p, struct ct__console_style style, size_t room, struct ct_str *out)
{
	const uint32_t epoch = p->epochs > 0 && p->epoch >= p->epochs ? p->epochs : p->epoch + 1;
	struct field f[N_FIRST] = {0};
	char text[16];

	if (ct_rank_phase_has_worked(p->phase) && p->phase != CT_RANK_TRAINING)
		set(&f[PHASE], 0, YELLOW, "%s", p->phase == CT_RANK_EVALUATING ? "eval" : ct_rank_phase_name(p->phase));
	if (p->epochs > 0)
		set(&f[EPOCH], 0, NULL, "epoch %u/%u", epoch, p->epochs);
	else
		set(&f[EPOCH], 0, NULL, "epoch %u", epoch);
	if (p->total_steps > 0) {
		set(&f[STEP], 1, NULL, "step %llu/%llu", (unsigned long long)p->step,
		    (unsigned long long)p->total_steps);
		/* Rounded down, so 100% means finished. */
		set(&f[PERCENT], 2, NULL, "%d%%", (int)(100.0 * (double)p->step / (double)p->total_steps));
	} else {
		set(&f[STEP], 1, NULL, "step %llu", (unsigned long long)p->step);
	}
	/* Before the first metrics line there is no rate, so the remaining time is unknown. */
	if (p->images_per_sec > 0) {
		ct_console_rate(p->images_per_sec, text, sizeof(text));
		set(&f[RATE], 4, NULL, "%s img/s", text);
		if (p->total_steps > 0) {
			ct_console_span(p->eta_seconds, text, sizeof(text));
			set(&f[ETA], 3, NULL, "eta %s", text);
		}
	}
	const size_t used = total_columns(f, N_FIRST);
	set_bar(&f[BAR], p, room > used + GAP ? room - used - GAP : 0, style.utf8);
	join(f, N_FIRST, room, style.colors, out);
}

/* "compute 88% wait 8% data 2%": the shares of at least 1 %. */
static void set_split(struct field *f, const double share[6])
{
	const struct {
		const char *name;
		double share;
	} parts[] = {{"compute", share[1] + share[2] + share[4]},
		     {"wait", share[3]},
		     {"data", share[0]},
		     {"other", share[5]}};
	int len = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(parts); i++)
		if (parts[i].share >= 0.005 && len < FIELD_LEN)
			len += snprintf(f->text + len, (size_t)(FIELD_LEN - len), "%s%s %.0f%%", len > 0 ? " " : "",
					parts[i].name, 100 * parts[i].share);
	f->rank = 4;
	f->color = share[0] > WAIT_ALARM || share[3] > WAIT_ALARM ? RED : DIM;
}

enum { LOSS, SPARK, BEST, SPLIT, MEMORY, N_SECOND };

static void add_second(const struct ct_progress *p, const struct ct_spark *spark, struct ct__console_style style,
		       size_t room, struct ct_str *out)
{
	struct field f[N_SECOND] = {0};
	char text[FIELD_LEN];

	set(&f[LOSS], 0, NULL, "loss %.4g", p->loss);
	if (spark) {
		ct_spark_draw(spark, CT_SPARK_MAX, style.utf8, text, sizeof(text));
		set(&f[SPARK], 3, CYAN, "%s", text);
	}
	if (p->best_top1 > 0)
		set(&f[BEST], 2, GREEN, "best top1 %.4f", p->best_top1);
	set_split(&f[SPLIT], p->share);
	if (p->memory_bytes > 0)
		set(&f[MEMORY], 5, DIM, "mem %s", ct_bytes_text(p->memory_bytes, text));
	join(f, N_SECOND, room, style.colors, out);
}

void ct__console_status(const struct ct_progress *p, const struct ct_spark *spark, struct ct__console_style style,
			int width, struct ct_str *out)
{
	const size_t room = width > 1 ? (size_t)width - 1 : 0;

	add_first(p, style, room, out);
	/* Before the first step, there is no loss. */
	if (style.one_line || isnan(p->loss))
		return;
	ct_str_add(out, "\n");
	add_second(p, spark, style, room, out);
}

/* The summary of an epoch on a terminal. */
void ct__console_epoch_line(const struct ct_epoch_metrics *e, const struct ct_eval_metrics *v, bool best,
			    struct ct__console_style style, int width, struct ct_str *out)
{
	enum { E_EPOCH, E_LOSS, E_EVAL, E_TOP1, E_TIME, E_RATE, N_EPOCH };
	const size_t room = width > 1 ? (size_t)width - 1 : 0;
	struct field f[N_EPOCH] = {0};
	char text[16];

	set(&f[E_EPOCH], 0, NULL, "epoch %u", (e ? e->epoch : v->epoch) + 1);
	if (e) {
		set(&f[E_LOSS], 1, NULL, "loss %.4g", e->train_loss);
		ct_console_span(e->seconds, text, sizeof(text));
		set(&f[E_TIME], 4, DIM, "%s", text);
		if (e->seconds > 0) {
			ct_console_rate((double)e->timed / e->seconds, text, sizeof(text));
			set(&f[E_RATE], 5, DIM, "%s img/s", text);
		}
	}
	if (v) {
		set(&f[E_EVAL], 3, NULL, "evaluation loss %.4g", v->loss);
		if (v->top1 >= 0)
			set(&f[E_TOP1], 2, best ? GREEN : NULL, "top1 %.4f%s", v->top1, best ? " best" : "");
	}
	join(f, N_EPOCH, room, style.colors, out);
}
