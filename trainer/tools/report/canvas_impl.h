/* What charts draw on. The same charts are drawn as SVG for the report and as pixels for PNG files. Positions are in
 * pixels of the chart, from its top left corner. */
#ifndef CT_TRAINER_TOOLS_REPORT_CANVAS_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_CANVAS_IMPL_H

#include "base/mem.h"

/* Names of colors. In SVG, each is a class of the style sheet, so that the report can be light or dark. */
enum ct__ink {
	INK_TEXT,
	INK_MUTED, /* labels of axes */
	INK_GRID,
	INK_SURFACE, /* the background of a chart */
	INK_SERIES,  /* + i: series i, below N_SERIES_INKS */
	N_SERIES_INKS = 8,
	N_INKS = INK_SERIES + N_SERIES_INKS
};

struct ct__point {
	double x, y;
};

struct ct__pen {
	int ink;
	double width, alpha;
	bool dashed;
};

struct ct__canvas {
	void (*lines)(struct ct__canvas *c, const struct ct__point *p, size_t n, struct ct__pen pen);
	void (*rect)(struct ct__canvas *c, double x, double y, double w, double h, int ink, double alpha);
	/* anchor: the text ends at x (-1), is centered (0), or begins at x (1). y is the baseline. `text` is not
	 * trusted. */
	void (*text)(struct ct__canvas *c, double x, double y, double size, int anchor, int ink, const char *text);
};

/* Appends SVG elements to out, which is borrowed. */
struct ct__svg {
	struct ct__canvas canvas;
	struct ct_str *out;
};
void ct__svg_init(struct ct__svg *s, struct ct_str *out);

/* Draws to an image [h,w,3] with a light background. */
struct ct__raster {
	struct ct__canvas canvas;
	uint8_t *rgb;
	int w, h;
	double scale; /* pixels of the image per pixel of a chart */
};
enum ct_status ct__raster_create(struct ct__raster *r, int w, int h, double scale) CT_MUST_CHECK;
void ct__raster_release(struct ct__raster *r);

#endif
