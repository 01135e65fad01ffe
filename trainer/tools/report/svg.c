/* Draws charts as SVG elements (canvas_impl.h). Colors are classes of the style sheet (k: stroke, f: fill;
 * page_style.c), so that the same chart is light or dark. Coordinates have one decimal, which keeps pages with long
 * curves small. Text is escaped, because names of classes and runs are not trusted. */
#include <stdio.h>

#include "trainer/tools/report/canvas_impl.h"
#include "trainer/tools/report/html_impl.h"

static void add_number(struct ct_str *out, double v)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%.1f", v);

	if (n > 2 && text[n - 1] == '0') /* "12.0" */
		text[n - 2] = '\0';
	ct_str_add(out, text);
}

static void attribute(struct ct_str *out, const char *name, double v)
{
	ct_str_addf(out, " %s=\"", name);
	add_number(out, v);
	ct_str_add(out, "\"");
}

static void lines(struct ct__canvas *c, const struct ct__point *p, size_t n, struct ct__pen pen)
{
	struct ct_str *out = ((struct ct__svg *)c)->out;

	ct_str_addf(out, "<path class=\"k%d%s\"", pen.ink, pen.dashed ? " dash" : "");
	attribute(out, "stroke-width", pen.width);
	if (pen.alpha < 1)
		ct_str_addf(out, " opacity=\"%.2f\"", pen.alpha);
	ct_str_add(out, " d=\"");
	for (size_t i = 0; i < n; i++) {
		ct_str_add(out, i == 0 ? "M" : "L");
		add_number(out, p[i].x);
		ct_str_add(out, " ");
		add_number(out, p[i].y);
	}
	ct_str_add(out, "\"/>");
}

static void rect(struct ct__canvas *c, double x, double y, double w, double h, int ink, double alpha)
{
	struct ct_str *out = ((struct ct__svg *)c)->out;

	ct_str_addf(out, "<rect class=\"f%d\"", ink);
	attribute(out, "x", x);
	attribute(out, "y", y);
	attribute(out, "width", w);
	attribute(out, "height", h);
	if (alpha < 1)
		ct_str_addf(out, " opacity=\"%.3g\"", alpha);
	ct_str_add(out, "/>");
}

static void text(struct ct__canvas *c, double x, double y, double size, int anchor, int ink, const char *string)
{
	struct ct_str *out = ((struct ct__svg *)c)->out;

	ct_str_addf(out, "<text class=\"f%d\" text-anchor=\"%s\"", ink,
		    anchor < 0   ? "end"
		    : anchor > 0 ? "start"
				 : "middle");
	attribute(out, "x", x);
	attribute(out, "y", y);
	attribute(out, "font-size", size);
	ct_str_add(out, ">");
	ct__html_text(out, string);
	ct_str_add(out, "</text>");
}

void ct__svg_init(struct ct__svg *s, struct ct_str *out)
{
	*s = (struct ct__svg){.canvas = {.lines = lines, .rect = rect, .text = text}, .out = out};
}
