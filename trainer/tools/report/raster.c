/* Draws charts as pixels (canvas_impl.h). Lines are smooth: a pixel is covered according to its distance from the line.
 * Each segment visits only the pixels of its bounding box, and blend ignores those outside of the image, so charts need
 * no clipping. Dashes continue over the points of a line, which may be closer to each other than a dash is long. The
 * colors are those of the light style sheet in page_style.c, which has to change with them. */
#include <math.h>
#include <string.h>

#include "data/image/text.h"
#include "trainer/tools/report/canvas_impl.h"

/* The light colors of the style sheet, by enum ct__ink. */
static const uint8_t colors[N_INKS][3] = {{22, 25, 31},  {104, 112, 125}, {230, 232, 236}, {255, 255, 255},
					  {37, 99, 235}, {234, 88, 12},   {13, 148, 136},  {147, 51, 234},
					  {220, 38, 38}, {56, 163, 209},  {148, 163, 184}, {219, 39, 119}};

static void blend(struct ct__raster *r, int x, int y, int ink, double alpha)
{
	if (x < 0 || y < 0 || x >= r->w || y >= r->h || !(alpha > 0))
		return;
	uint8_t *p = r->rgb + ((size_t)y * (size_t)r->w + (size_t)x) * 3;
	for (int k = 0; k < 3; k++)
		p[k] = (uint8_t)lrint(p[k] + (colors[ink][k] - p[k]) * fmin(alpha, 1));
}

static double distance(struct ct__point p, struct ct__point a, struct ct__point b)
{
	const double dx = b.x - a.x, dy = b.y - a.y, n = dx * dx + dy * dy;
	const double t = n > 0 ? fmin(1, fmax(0, ((p.x - a.x) * dx + (p.y - a.y) * dy) / n)) : 0;

	return hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

static void segment(struct ct__raster *r, struct ct__point a, struct ct__point b, struct ct__pen pen)
{
	const double half = pen.width * r->scale / 2;

	a = (struct ct__point){a.x * r->scale, a.y * r->scale};
	b = (struct ct__point){b.x * r->scale, b.y * r->scale};
	const int x0 = (int)fmax(0, fmin(a.x, b.x) - half - 1), x1 = (int)fmin(r->w - 1, fmax(a.x, b.x) + half + 1);
	const int y0 = (int)fmax(0, fmin(a.y, b.y) - half - 1), y1 = (int)fmin(r->h - 1, fmax(a.y, b.y) + half + 1);
	for (int y = y0; y <= y1; y++) {
		for (int x = x0; x <= x1; x++) {
			const double d = distance((struct ct__point){x + 0.5, y + 0.5}, a, b);

			blend(r, x, y, pen.ink, pen.alpha * fmin(1, half + 0.5 - d));
		}
	}
}

static void lines(struct ct__canvas *c, const struct ct__point *p, size_t n, struct ct__pen pen)
{
	enum { DASH = 5 };
	struct ct__raster *r = (struct ct__raster *)c;

	double before = 0; /* the length of the segments before this one */

	for (size_t i = 1; i < n; i++) {
		const struct ct__point a = p[i - 1], b = p[i];
		const double length = hypot(b.x - a.x, b.y - a.y), dx = (b.x - a.x) / length, dy = (b.y - a.y) / length;

		if (!pen.dashed) {
			segment(r, a, b, pen);
			continue;
		}
		for (double k = 2 * floor(before / (2 * DASH)); k * DASH < before + length; k += 2) {
			const double from = fmax(0, k * DASH - before), to = fmin(length, (k + 1) * DASH - before);

			if (from < to)
				segment(r, (struct ct__point){a.x + from * dx, a.y + from * dy},
					(struct ct__point){a.x + to * dx, a.y + to * dy}, pen);
		}
		before += length;
	}
}

static void rect(struct ct__canvas *c, double x, double y, double w, double h, int ink, double alpha)
{
	struct ct__raster *r = (struct ct__raster *)c;
	const int x0 = (int)lrint(x * r->scale), x1 = (int)lrint((x + w) * r->scale);
	const int y0 = (int)lrint(y * r->scale), y1 = (int)lrint((y + h) * r->scale);

	for (int py = y0; py < y1; py++) {
		for (int px = x0; px < x1; px++)
			blend(r, px, py, ink, alpha);
	}
}

static void text(struct ct__canvas *c, double x, double y, double size, int anchor, int ink, const char *string)
{
	struct ct__raster *r = (struct ct__raster *)c;
	const struct ct_rgb image = {r->rgb, r->w, r->h};
	const int dot = (int)fmax(1, lrint(size * r->scale / 9.5));
	const int width = (ct_text_length(string) * CT_TEXT_WIDTH - 1) * dot;
	const int left = (int)lrint(x * r->scale) - (anchor < 0 ? width : anchor == 0 ? width / 2 : 0);

	ct_text_draw(&image, left, (int)lrint(y * r->scale) - CT_TEXT_HEIGHT * dot, dot, colors[ink], string);
}

enum ct_status ct__raster_create(struct ct__raster *r, int w, int h, double scale)
{
	*r = (struct ct__raster){.canvas = {.lines = lines, .rect = rect, .text = text},
				 .w = (int)lrint(w * scale),
				 .h = (int)lrint(h * scale),
				 .scale = scale};
	const size_t bytes = (size_t)r->w * (size_t)r->h * 3;
	CT_TRY_ALLOC(r->rgb = CT_NEW_ARRAY(uint8_t, bytes));
	memset(r->rgb, 255, bytes);
	return CT_OK;
}

void ct__raster_release(struct ct__raster *r)
{
	ct_free(r->rgb);
	r->rgb = NULL;
}
