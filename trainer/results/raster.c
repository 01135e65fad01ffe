/* Draws charts as pixels (canvas_impl.h). Lines are smooth: a pixel is covered according to its distance from the line. Text
 * is drawn with a small bitmap font, which has the characters of titles, labels and names. */
#include <math.h>
#include <string.h>

#include "trainer/results/canvas_impl.h"

enum { FONT_W = 5, FONT_H = 7 };

/* The letters: rows from top to bottom, the leftmost pixel in bit 4. */
static const struct {
	char c;
	uint8_t rows[FONT_H];
} font[] = {
	{'%', {24, 25, 2, 4, 8, 19, 3}}, {'\'', {4, 4, 8, 0, 0, 0, 0}}, {'(', {2, 4, 8, 8, 8, 4, 2}},
	{')', {8, 4, 2, 2, 2, 4, 8}}, {'+', {0, 4, 4, 31, 4, 4, 0}}, {',', {0, 0, 0, 0, 12, 4, 8}},
	{'-', {0, 0, 0, 14, 0, 0, 0}}, {'.', {0, 0, 0, 0, 0, 12, 12}}, {'/', {1, 1, 2, 4, 8, 16, 16}},
	{'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}}, {'2', {14, 17, 1, 6, 8, 16, 31}},
	{'3', {30, 1, 1, 14, 1, 1, 30}}, {'4', {2, 6, 10, 18, 31, 2, 2}}, {'5', {31, 16, 30, 1, 1, 17, 14}},
	{'6', {6, 8, 16, 30, 17, 17, 14}}, {'7', {31, 1, 2, 4, 8, 8, 8}}, {'8', {14, 17, 17, 14, 17, 17, 14}},
	{'9', {14, 17, 17, 15, 1, 2, 12}}, {':', {0, 12, 12, 0, 12, 12, 0}}, {'=', {0, 0, 31, 0, 31, 0, 0}},
	{'A', {14, 17, 17, 31, 17, 17, 17}}, {'B', {30, 17, 17, 30, 17, 17, 30}}, {'C', {14, 17, 16, 16, 16, 17, 14}},
	{'D', {30, 17, 17, 17, 17, 17, 30}}, {'E', {31, 16, 16, 30, 16, 16, 31}}, {'F', {31, 16, 16, 30, 16, 16, 16}},
	{'G', {14, 17, 16, 23, 17, 17, 15}}, {'H', {17, 17, 17, 31, 17, 17, 17}}, {'I', {14, 4, 4, 4, 4, 4, 14}},
	{'J', {7, 2, 2, 2, 2, 18, 12}}, {'K', {17, 18, 20, 24, 20, 18, 17}}, {'L', {16, 16, 16, 16, 16, 16, 31}},
	{'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 25, 21, 19, 17, 17, 17}}, {'O', {14, 17, 17, 17, 17, 17, 14}},
	{'P', {30, 17, 17, 30, 16, 16, 16}}, {'Q', {14, 17, 17, 17, 21, 18, 13}}, {'R', {30, 17, 17, 30, 20, 18, 17}},
	{'S', {15, 16, 16, 14, 1, 1, 30}}, {'T', {31, 4, 4, 4, 4, 4, 4}}, {'U', {17, 17, 17, 17, 17, 17, 14}},
	{'V', {17, 17, 17, 17, 17, 10, 4}}, {'W', {17, 17, 17, 21, 21, 27, 17}}, {'X', {17, 17, 10, 4, 10, 17, 17}},
	{'Y', {17, 17, 10, 4, 4, 4, 4}}, {'Z', {31, 1, 2, 4, 8, 16, 31}}, {'_', {0, 0, 0, 0, 0, 0, 31}},
	{'a', {0, 0, 14, 1, 15, 17, 15}}, {'b', {16, 16, 30, 17, 17, 17, 30}}, {'c', {0, 0, 14, 16, 16, 17, 14}},
	{'d', {1, 1, 15, 17, 17, 17, 15}}, {'e', {0, 0, 14, 17, 31, 16, 14}}, {'f', {6, 9, 8, 28, 8, 8, 8}},
	{'g', {0, 15, 17, 17, 15, 1, 14}}, {'h', {16, 16, 30, 17, 17, 17, 17}}, {'i', {4, 0, 12, 4, 4, 4, 14}},
	{'j', {2, 0, 6, 2, 2, 18, 12}}, {'k', {16, 16, 18, 20, 24, 20, 18}}, {'l', {12, 4, 4, 4, 4, 4, 14}},
	{'m', {0, 0, 26, 21, 21, 21, 21}}, {'n', {0, 0, 30, 17, 17, 17, 17}}, {'o', {0, 0, 14, 17, 17, 17, 14}},
	{'p', {0, 30, 17, 17, 30, 16, 16}}, {'q', {0, 15, 17, 17, 15, 1, 1}}, {'r', {0, 0, 22, 25, 16, 16, 16}},
	{'s', {0, 0, 15, 16, 14, 1, 30}}, {'t', {8, 8, 28, 8, 8, 9, 6}}, {'u', {0, 0, 17, 17, 17, 19, 13}},
	{'v', {0, 0, 17, 17, 17, 10, 4}}, {'w', {0, 0, 17, 17, 21, 21, 10}}, {'x', {0, 0, 17, 10, 4, 10, 17}},
	{'y', {0, 17, 17, 17, 15, 1, 14}}, {'z', {0, 0, 31, 2, 4, 8, 31}},
};

/* The light colors of the style sheet, by enum ct__ink. */
static const uint8_t colors[N_INKS][3] = {
	{22, 25, 31},  {104, 112, 125}, {230, 232, 236}, {255, 255, 255}, {37, 99, 235},   {234, 88, 12},
	{13, 148, 136}, {147, 51, 234},  {220, 38, 38},   {56, 163, 209},  {148, 163, 184}, {219, 39, 119}};

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
	for (size_t i = 1; i < n; i++) {
		const double length = hypot(p[i].x - p[i - 1].x, p[i].y - p[i - 1].y);
		const int parts = pen.dashed ? (int)ceil(length / DASH) : 1;
		for (int k = 0; k < parts; k += 2) {
			const double from = k / (double)parts, to = fmin(1, (k + 1) / (double)parts);
			const double dx = p[i].x - p[i - 1].x, dy = p[i].y - p[i - 1].y;
			segment(r, (struct ct__point){p[i - 1].x + from * dx, p[i - 1].y + from * dy},
				(struct ct__point){p[i - 1].x + to * dx, p[i - 1].y + to * dy}, pen);
		}
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

/* Returns the rows of a letter; unknown ones are empty. */
static const uint8_t *letter(char c)
{
	static const uint8_t none[FONT_H] = {0};
	for (size_t i = 0; i < CT_ARRAY_LEN(font); i++) {
		if (font[i].c == c)
			return font[i].rows;
	}
	return none;
}

static void text(struct ct__canvas *c, double x, double y, double size, int anchor, int ink, const char *string)
{
	struct ct__raster *r = (struct ct__raster *)c;
	const int dot = (int)fmax(1, lrint(size * r->scale / 9.5)), step = (FONT_W + 1) * dot;
	const int width = (int)strlen(string) * step - dot;
	const int left = (int)lrint(x * r->scale) - (anchor < 0 ? width : anchor == 0 ? width / 2 : 0);
	const int top = (int)lrint(y * r->scale) - FONT_H * dot;
	for (size_t i = 0; string[i]; i++) {
		const uint8_t *rows = letter(string[i]);
		const int below = strchr("gpqy", string[i]) ? dot : 0; /* the baseline */
		for (int k = 0; k < FONT_W * dot * FONT_H * dot; k++) {
			const int px = k % (FONT_W * dot), py = k / (FONT_W * dot);
			if (rows[py / dot] >> (FONT_W - 1 - px / dot) & 1)
				blend(r, left + (int)i * step + px, top + below + py, ink, 1);
		}
	}
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
