/* Charts are drawn through a canvas with three operations (lines, rectangle, text), so axes, legend and series exist
 * once for both SVG and pixels. Long series are thinned: each group of neighboring points keeps its lowest and its
 * highest one, so that peaks remain visible. Ticks are at 1, 2 or 5 times a power of ten, or at powers of ten on a
 * logarithmic axis, which is used only if the values span a large ratio and are positive. A range without extent gets
 * some room, so nothing is divided by zero. Stacked bars are drawn from the highest sums to the lowest, one over the
 * other. */
#include "trainer/tools/report/chart_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEFT 52 /* space for the labels of the vertical axis */
#define TOP 10
#define HEADER 30 /* title and legend */
#define BOTTOM 34
#define RIGHT 14
#define MAX_BAR 64 /* width */
#define TITLE_SIZE 14
#define LABEL_SIZE 11
#define LETTER (0.58 * LABEL_SIZE) /* estimated width */
#define LOG_RATIO 200              /* between the highest and the lowest value */

/* Keeps the lowest and the highest point of each of MAX_POINTS / 2 groups, in their order. */
static size_t thin(const struct ct__point *p, size_t n, struct ct__point *out)
{
	const size_t groups = MAX_POINTS / 2;
	size_t k = 0;

	for (size_t g = 0; g < groups; g++) {
		size_t first = n * g / groups, end = n * (g + 1) / groups, low = first, high = first;

		for (size_t i = first; i < end; i++) {
			low = p[i].y < p[low].y ? i : low;
			high = p[i].y > p[high].y ? i : high;
		}
		out[k++] = p[low < high ? low : high];
		if (low != high)
			out[k++] = p[low < high ? high : low];
	}
	return k;
}

enum ct_status ct__chart_add(struct ct__chart *c, struct ct__series like, const struct ct__point *p, size_t n)
{
	struct ct__point *all = CT_NEW_ARRAY(struct ct__point, n);
	enum ct_status st = all ? CT_OK : CT_NOMEM;

	if (st == CT_OK && c->n == c->cap) {
		size_t cap = (size_t)c->cap;
		struct ct__series *grown = ct_array_grow(c->series, (size_t)c->n, &cap, sizeof(*grown));

		if (grown)
			c->series = grown;
		else
			st = CT_NOMEM;
		c->cap = (int)cap;
	}
	if (st < 0) {
		ct_free(all);
		ct_free(like.name);
		return st;
	}
	like.n = 0;
	for (size_t i = 0; i < n; i++) {
		if (isfinite(p[i].x) && isfinite(p[i].y))
			all[like.n++] = p[i];
	}
	if (like.n > MAX_POINTS) {
		struct ct__point *kept = CT_NEW_ARRAY(struct ct__point, MAX_POINTS);

		like.n = kept ? thin(all, like.n, kept) : 0;
		ct_free(all);
		all = kept;
		st = kept ? CT_OK : CT_NOMEM;
	}
	like.p = all;
	c->series[c->n++] = like;
	return st;
}

void ct__chart_release(struct ct__chart *c)
{
	for (int i = 0; i < c->n; i++) {
		ct_free(c->series[i].name);
		ct_free(c->series[i].p);
	}
	ct_free(c->series);
	memset(c, 0, sizeof(*c));
}

void ct__chart_number(double v, bool share, char *out, size_t size)
{
	const double a = fabs(v);

	if (share)
		snprintf(out, size, "%.4g%%", a < 1e-12 ? 0 : 100 * v);
	else if (a >= 1e6)
		snprintf(out, size, "%.4gM", v * 1e-6);
	else if (a >= 1e4)
		snprintf(out, size, "%.4gk", v * 1e-3);
	else
		snprintf(out, size, "%.4g", a < 1e-12 ? 0 : v);
}

static void find_range(const struct ct__chart *c, struct ct__plot *plot)
{
	double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;

	for (int s = 0; s < c->n; s++) {
		for (size_t i = 0; i < c->series[s].n; i++) {
			const struct ct__point p = c->series[s].p[i];

			x0 = fmin(x0, p.x);
			x1 = fmax(x1, p.x);
			y0 = fmin(y0, p.y);
			y1 = fmax(y1, p.y);
		}
	}
	if (!(x0 <= x1))
		x1 = 1, y0 = 0, y1 = 1;
	x0 = fmin(x0, 0);
	plot->log = c->log && y0 > 0 && y1 > LOG_RATIO * y0;
	if (plot->log) {
		y0 = log10(y0);
		y1 = log10(y1);
	} else if (c->zero) {
		y0 = fmin(y0, 0);
	}
	const size_t bars = c->n > 0 && c->series[0].bar ? c->series[0].n : 0;
	if (bars > 0) { /* half of the first and of the last bar */
		const double first = c->series[0].p[0].x, width = bars > 1 ? c->series[0].p[1].x - first : 1;

		x0 = first - width / 2;
		x1 += width / 2;
	}
	if (x1 <= x0)
		x1 = x0 + 1;
	const double most = fmax(fabs(y0), fabs(y1));
	double room = y1 - y0 > 1e-9 * most ? 0.05 * (y1 - y0) : most > 0 ? 0.1 * most : 1;
	plot->x0 = x0;
	plot->x1 = x1;
	plot->y0 = c->zero && y0 >= 0 && !plot->log ? 0 : y0 - room;
	plot->y1 = y1 + room;
	if (c->share && plot->y1 > 1)
		plot->y1 = 1;
	if (c->share && plot->y0 < 0)
		plot->y0 = 0;
}

static double to_x(const struct ct__plot *p, double v)
{
	return p->x + (v - p->x0) / (p->x1 - p->x0) * p->w;
}

static double to_y(const struct ct__plot *p, double v)
{
	return p->y + p->h - ((p->log ? log10(v) : v) - p->y0) / (p->y1 - p->y0) * p->h;
}

/* The distance between labels: 1, 2 or 5 times a power of ten, for about n labels. */
static double tick_step(double range, double n)
{
	const double rough = range / n, power = pow(10, floor(log10(rough))), m = rough / power;

	return power * (m > 5 ? 10 : m > 2 ? 5 : m > 1 ? 2 : 1);
}

static void draw_axes(const struct ct__chart *c, const struct ct__plot *p, struct ct__canvas *to)
{
	char label[32];
	double step = tick_step(p->y1 - p->y0, p->h / 34);

	if (p->log)
		step = fmax(1, ceil(step));
	for (double k = ceil(p->y0 / step - 1e-9); k * step <= p->y1 + 1e-9 * step; k++) {
		const double v = p->log ? pow(10, k * step) : k * step, y = to_y(p, v);

		to->lines(to, (struct ct__point[]){{p->x, y}, {p->x + p->w, y}}, 2,
			  (struct ct__pen){INK_GRID, 1, 1, false});
		ct__chart_number(v, c->share, label, sizeof(label));
		to->text(to, p->x - 6, y + 4, LABEL_SIZE, -1, INK_MUTED, label);
	}
	step = fmax(1, tick_step(p->x1 - p->x0, p->w / 70));
	if (p->x1 - p->x0 <= 1.5)
		step = tick_step(p->x1 - p->x0, p->w / 70);
	for (double k = ceil(p->x0 / step - 1e-9); k * step <= p->x1 + 1e-9 * step; k++) {
		ct__chart_number(k * step, false, label, sizeof(label));
		const double x = to_x(p, k * step);
		to->text(to, x, p->y + p->h + 15, LABEL_SIZE, x > p->x + p->w - RIGHT ? -1 : 0, INK_MUTED, label);
	}
	to->text(to, p->x + p->w, p->y + p->h + 28, LABEL_SIZE, -1, INK_MUTED, c->x_name);
	to->lines(to, (struct ct__point[]){{p->x, p->y + p->h}, {p->x + p->w, p->y + p->h}}, 2,
		  (struct ct__pen){INK_MUTED, 1, 1, false});
}

/* Draws the names of the series from right to left beside the title. Those for which there is no space are omitted. */
static void draw_legend(const struct ct__chart *c, double x, double right, double y, struct ct__canvas *to)
{
	const double least = x + TITLE_SIZE * 0.62 * (double)strlen(c->title) + 12;

	for (int i = c->n - 1; i >= 0; i--) {
		const struct ct__series *s = &c->series[i];

		if (!s->name)
			continue;
		const double width = LETTER * (double)strlen(s->name);
		if (right - width - 15 < least)
			break;
		to->text(to, right, y, LABEL_SIZE, -1, INK_MUTED, s->name);
		right -= width + 5;
		to->lines(to, (struct ct__point[]){{right - 10, y - 4}, {right, y - 4}}, 2,
			  (struct ct__pen){s->ink, 2.5, 1, s->dashed});
		right -= 10 + 10;
	}
}

static void draw_bars(const struct ct__series *s, const struct ct__plot *plot, struct ct__canvas *to)
{
	const double bottom = plot->y + plot->h;
	const double space = s->n > 1 ? to_x(plot, s->p[1].x) - to_x(plot, s->p[0].x) : plot->w,
		     width = fmin(space, MAX_BAR);

	for (size_t i = 0; i < s->n; i++) {
		const double y = to_y(plot, s->p[i].y), x = to_x(plot, s->p[i].x) - width / 2;

		to->rect(to, x + 0.5, y, width > 3 ? width - 1 : width, bottom - y, s->ink, 1);
	}
}

static void draw_series(const struct ct__series *s, const struct ct__plot *plot, struct ct__canvas *to)
{
	struct ct__point p[MAX_POINTS];

	if (s->bar) {
		draw_bars(s, plot, to);
		return;
	}
	for (size_t i = 0; i < s->n; i++)
		p[i] = (struct ct__point){to_x(plot, s->p[i].x), to_y(plot, s->p[i].y)};
	if (s->n > 1)
		to->lines(to, p, s->n, (struct ct__pen){s->ink, s->width, s->alpha, s->dashed});
	for (size_t i = 0; i < s->n && (s->n == 1 || (s->marked && s->n <= 100)); i++)
		to->rect(to, p[i].x - 2.5, p[i].y - 2.5, 5, 5, s->ink, 1);
}

void ct__chart_draw_plot(const struct ct__chart *c, double x, double y, double w, double h, struct ct__canvas *to,
			 struct ct__plot *plot)
{
	*plot = (struct ct__plot){.x = x + LEFT, .y = y + TOP, .w = w - LEFT - RIGHT, .h = h - TOP - BOTTOM};
	find_range(c, plot);
	draw_axes(c, plot, to);
	for (int i = 0; i < c->n; i++)
		draw_series(&c->series[i], plot, to);
}

void ct__chart_draw(const struct ct__chart *c, double x, double y, double w, double h, struct ct__canvas *to)
{
	struct ct__plot plot;

	to->text(to, x + 14, y + 24, TITLE_SIZE, 1, INK_TEXT, c->title);
	draw_legend(c, x + 14, x + w - RIGHT, y + 24, to);
	ct__chart_draw_plot(c, x, y + HEADER, w, h - HEADER, to, &plot);
}
