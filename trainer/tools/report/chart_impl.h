/* Line charts. */
#ifndef CT_TRAINER_TOOLS_REPORT_CHART_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_CHART_IMPL_H

#include "trainer/tools/report/canvas_impl.h"

enum { MAX_POINTS = 1000 }; /* of a series */

struct ct__series {
	char *name; /* owned; NULL: the legend does not show it */
	int ink;
	double width, alpha;
	bool dashed;
	bool marked; /* each point is marked with a small square */
	/* Each point is the top of a bar. Bars of series at the same position are stacked: the values of a series
	 * include those of the next one. */
	bool bar;
	struct ct__point *p; /* [n] owned */
	size_t n;
};

struct ct__chart {
	const char *title, *x_name;
	bool zero;  /* the vertical axis begins at 0 */
	bool log;   /* the vertical axis is logarithmic if the values span several orders of magnitude */
	bool share; /* values are between 0 and 1, and are shown as percentages */
	struct ct__series *series;
	int n, cap;
};

/* Where the values are drawn. */
struct ct__plot {
	double x, y, w, h; /* the area in pixels */
	double x0, x1, y0, y1;
	bool log; /* y0 and y1 are decimal logarithms */
};

/* Adds a series of n points, of which those that are not finite are omitted. If there are more than MAX_POINTS, each
 * group of neighboring points is replaced by its lowest and its highest point. `like` has the name, which is taken, and
 * the properties. */
enum ct_status ct__chart_add(struct ct__chart *c, struct ct__series like, const struct ct__point *p,
			     size_t n) CT_MUST_CHECK;
void ct__chart_release(struct ct__chart *c);
/* Draws the chart to the rectangle at (x, y). */
void ct__chart_draw(const struct ct__chart *c, double x, double y, double w, double h, struct ct__canvas *to);
/* The same without the title and the legend. *plot is where the values are. */
void ct__chart_draw_plot(const struct ct__chart *c, double x, double y, double w, double h, struct ct__canvas *to,
			 struct ct__plot *plot);
/* Formats a number for labels: "12", "0.0012", "4.5k". */
void ct__chart_number(double v, bool share, char *out, size_t size);

#endif
