/* The evaluation: confusion matrix, scores of the classes, calibration. The matrix is drawn through a canvas
 * (canvas_impl.h), once as SVG into the page and once as pixels into eval/confusion.png, and only for few classes. Its
 * rows are shares of their label: the diagonal and mistakes have different colors, and the color of mistakes grows with
 * the square root, so that rare ones can be seen. A run without an evaluation of classes gives no section, not an
 * error. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/image/image.h"
#include "trainer/run/evaluation/eval_files.h"
#include "trainer/tools/report/chart_impl.h"
#include "trainer/tools/report/images_impl.h"

enum { MAX_MATRIX = 40, MAX_CELL_TEXT = 20, MAX_PAIRS = 8, MAX_CLASS_ROWS = 200 };
#define MATRIX_TITLE "Confusion matrix"
#define MATRIX_NOTE "rows: label, columns: prediction"

enum { SIDE = 560, MATRIX_RIGHT = 16, TITLE_HEIGHT = 34 };

const char *ct__class_name(const struct ct_run_files *r, int k, char *buf, size_t size)
{
	snprintf(buf, size, "class %d", k);
	return k < r->classes.n ? r->classes.names[k] : buf;
}

/* A name that fits in the margin, after its number. */
static void short_name(const struct ct_run_files *r, int k, char *out, size_t size)
{
	char buf[24];
	const char *name = ct__class_name(r, k, buf, sizeof(buf));
	size_t n = strlen(name);

	if (k >= r->classes.n || n == 0) {
		snprintf(out, size, "%d", k);
		return;
	}
	if (n > 12)
		for (n = 11; n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80; n--) /* not inside a character */
			;
	snprintf(out, size, "%.*s%s  %d", (int)n, name, name[n] ? "." : "", k);
}

/* Where the cells of a matrix are. */
struct layout {
	double left, top, cell;
	int height; /* of the whole drawing */
};

/* Leaves space for the longest name. */
static struct layout lay_out(const struct ct_run_files *r, const struct ct_scores *s, double top)
{
	size_t longest = 1;
	char text[48];

	for (int k = 0; k < s->n_classes; k++) {
		short_name(r, k, text, sizeof(text));
		longest = strlen(text) > longest ? strlen(text) : longest;
	}
	struct layout l = {.left = 20 + 7.4 * (double)longest, .top = top + 24};
	l.cell = (SIDE - l.left - MATRIX_RIGHT) / s->n_classes;
	l.height = (int)(l.top + l.cell * s->n_classes + 16);
	return l;
}

static void draw_matrix(const struct ct_run_files *r, const struct ct_scores *s, struct layout l, struct ct__canvas *to)
{
	const double left = l.left, top = l.top, cell = l.cell, size = fmin(12, cell * 0.5 + 3);
	char text[48];

	for (int k = 0; k < s->n_classes; k++) {
		const double y = top + cell * (k + 0.5) + size * 0.35;

		short_name(r, k, text, sizeof(text));
		to->text(to, left - 8, y, size, -1, INK_MUTED, text);
		snprintf(text, sizeof(text), "%d", k);
		to->text(to, left + cell * (k + 0.5), top - 8, size, 0, INK_MUTED, text);
		for (int j = 0; j < s->n_classes; j++) {
			const uint32_t n = s->confusion[(size_t)k * (size_t)s->n_classes + (size_t)j];
			const double share = s->classes[k].n > 0 ? (double)n / s->classes[k].n : 0, x = left + cell * j;

			to->rect(to, x + 0.5, top + cell * k + 0.5, cell - 1, cell - 1, INK_GRID, 0.5);
			if (n == 0)
				continue;
			to->rect(to, x + 0.5, top + cell * k + 0.5, cell - 1, cell - 1, INK_SERIES + (j == k ? 0 : 4),
				 j == k ? 0.15 + 0.6 * share : fmin(1, 0.1 + sqrt(share)));
			snprintf(text, sizeof(text), "%u", n);
			if (s->n_classes <= MAX_CELL_TEXT)
				to->text(to, x + cell / 2, y, size, 0, INK_TEXT, text);
		}
	}
}

/* Begins a figure with a title and a note above the drawing. */
static void begin_figure(struct ct__page *p, const char *title, const char *note, int height, const char *class)
{
	ct_str_addf(&p->html.out,
		    "<figure class=\"card\"><figcaption><b>%s</b><span>%s</span></figcaption>"
		    "<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
		    title, note, class, SIDE, height, title);
}

static void add_matrix(struct ct__page *p, const struct ct_run_files *r, const struct ct_scores *s)
{
	const struct layout l = lay_out(r, s, 0);
	struct ct__svg svg;

	ct__svg_init(&svg, &p->html.out);
	begin_figure(p, MATRIX_TITLE, MATRIX_NOTE, l.height, "");
	draw_matrix(r, s, l, &svg.canvas);
	ct_str_add(&p->html.out, "</svg></figure>\n");
}

/* Writes the matrix to eval/confusion.png as well. */
static enum ct_status write_matrix(const char *dir, const struct ct_run_files *r, const struct ct_scores *s)
{
	const struct layout l = lay_out(r, s, TITLE_HEIGHT);
	struct ct__raster image;
	struct ct__canvas *to = &image.canvas;
	char *path = ct_path_join(dir, "confusion.png");
	enum ct_status st = path ? ct__raster_create(&image, SIDE, l.height, 2) : CT_NOMEM;

	if (st == CT_OK) {
		to->text(to, 14, 24, 14, 1, INK_TEXT, MATRIX_TITLE);
		to->text(to, SIDE - MATRIX_RIGHT, 24, 11, -1, INK_MUTED, MATRIX_NOTE);
		draw_matrix(r, s, l, to);
		st = ct_image_write(path, image.rgb, image.w, image.h);
		ct__raster_release(&image);
	}
	ct_free(path);
	return st;
}

static void add_pairs(struct ct__page *p, const struct ct_run_files *r, const struct ct_scores *s)
{
	char a[24], b[24];

	ct_str_add(&p->html.out, "<div class=\"card pad scroll\"><h3>Most frequent mistakes</h3>");
	ct__page_table(p, "label|prediction|#samples|#of the label");
	for (uint32_t i = 0; i < s->n_confused && i < MAX_PAIRS; i++) {
		const struct ct_confused *c = &s->confused[i];

		ct_str_add(&p->html.out, "<tr>");
		ct__html_element(&p->html, "td", ct__class_name(r, c->label, a, sizeof(a)));
		ct__html_element(&p->html, "td", ct__class_name(r, c->predicted, b, sizeof(b)));
		ct_str_addf(&p->html.out, "<td class=\"n\">%u</td><td class=\"n\">%.1f%%</td></tr>\n", c->n,
			    100.0 * c->n / s->classes[c->label].n);
	}
	ct_str_add(&p->html.out, "</tbody></table></div>\n");
}

/* Accuracy by confidence. Where the bars reach the line, the model is right as often as it claims. */
static void add_calibration(struct ct__page *p, const struct ct_scores *s)
{
	const double left = 52, top = 10, w = SIDE - left - 16, h = 230;
	struct ct__svg svg;
	struct ct__canvas *to = &svg.canvas;
	char text[48];

	ct__svg_init(&svg, &p->html.out);
	snprintf(text, sizeof(text), "expected calibration error %.4f", s->calibration_error);
	begin_figure(p, "Calibration", text, (int)(top + h + 36), "chart");
	for (int k = 0; k <= 4; k++) {
		const double y = top + h * (1 - k / 4.0);

		to->lines(to, (struct ct__point[]){{left, y}, {left + w, y}}, 2,
			  (struct ct__pen){INK_GRID, 1, 1, false});
		ct__chart_number(k / 4.0, true, text, sizeof(text));
		to->text(to, left - 6, y + 4, 11, -1, INK_MUTED, text);
		to->text(to, left + w * k / 4, top + h + 15, 11, k < 4 ? 0 : -1, INK_MUTED, text);
	}
	to->text(to, left + w, top + h + 29, 11, -1, INK_MUTED,
		 "bars: accuracy, by the probability of the predicted class");
	for (int i = 0; i < CT_CALIBRATION_BINS; i++) {
		const double x = left + w * i / CT_CALIBRATION_BINS, bar = w / CT_CALIBRATION_BINS;

		if (s->bins[i].n > 0) /* bins with few samples are faint */
			to->rect(to, x + 1, top + h * (1 - s->bins[i].accuracy), bar - 2, h * s->bins[i].accuracy,
				 INK_SERIES, 0.35 + 0.65 * fmin(1, sqrt(10.0 * s->bins[i].n / s->n)));
	}
	to->lines(to, (struct ct__point[]){{left, top + h}, {left + w, top}}, 2,
		  (struct ct__pen){INK_SERIES + 1, 1.5, 1, true});
	ct_str_add(&p->html.out, "</svg></figure>\n");
}

static void add_share(struct ct__page *p, double v)
{
	ct_str_addf(&p->html.out,
		    "<td class=\"n\"><span class=\"bar\"><i style=\"width:%.1f%%\"></i></span>%.2f%%</td>", 100 * v,
		    100 * v);
}

static void add_classes(struct ct__page *p, const struct ct_run_files *r, const struct ct_scores *s)
{
	char name[24];

	ct_str_add(&p->html.out, "<div class=\"card pad scroll classes\"><h3>Classes</h3>");
	if (s->n_classes > MAX_CLASS_ROWS)
		ct_str_addf(&p->html.out,
			    "<p class=\"note\">The first %d classes; eval/classes.csv has all of them.</p>",
			    MAX_CLASS_ROWS);
	ct__page_table(p, "#|class|#samples|#precision|#recall|#F1");
	for (int k = 0; k < s->n_classes && k < MAX_CLASS_ROWS; k++) {
		const struct ct_class_score *c = &s->classes[k];

		ct_str_addf(&p->html.out, "<tr><td class=\"n\">%d</td>", k);
		ct__html_element(&p->html, "td", ct__class_name(r, k, name, sizeof(name)));
		ct_str_addf(&p->html.out, "<td class=\"n\">%u</td>", c->n);
		add_share(p, c->precision);
		add_share(p, c->recall);
		add_share(p, c->f1);
		ct_str_add(&p->html.out, "</tr>\n");
	}
	ct_str_addf(
		&p->html.out,
		"<tr class=\"changed\"><td></td><td>mean of the classes</td><td class=\"n\">%u</td><td class=\"n\">%.2f%%</td>"
		"<td class=\"n\">%.2f%%</td><td class=\"n\">%.2f%%</td></tr></tbody></table></div>\n",
		s->n, 100 * s->precision, 100 * s->recall, 100 * s->f1);
}

static void add_scores(struct ct__page *p, const struct ct_run_files *r, const struct ct_predictions *e,
		       const struct ct_scores *s)
{
	ct__html_element(&p->html, "h2", "Evaluation");
	ct_str_addf(&p->html.out,
		    "<p class=\"note\">%u of %u samples are correct (%.2f%%), with the weights after step %llu.</p>\n"
		    "<div class=\"grid top\">\n",
		    s->correct, s->n, 100.0 * s->correct / s->n, (unsigned long long)e->step);
	const bool matrix = s->n_classes <= MAX_MATRIX; /* in the left column */
	if (matrix) {
		add_matrix(p, r, s);
		ct_str_add(&p->html.out, "<div class=\"stack\">\n");
	}
	add_calibration(p, s);
	add_pairs(p, r, s);
	ct_str_add(&p->html.out, matrix ? "</div></div>\n" : "</div>\n");
	add_classes(p, r, s);
}

enum ct_status ct__page_eval(struct ct__page *p, const struct ct_image_source *data)
{
	const struct ct_run_files *r = &p->runs[0];
	struct ct_predictions e = {0};
	struct ct_scores s = {0};
	char *dir;

	CT_TRY_ALLOC(dir = ct_path_join(r->dir, "eval"));
	enum ct_status st = ct_eval_files_load(dir, &e);
	if (st == CT_OK)
		st = ct_scores_create(&e, &s);
	if (st == CT_OK && s.n > 0)
		add_scores(p, r, &e, &s);
	if (st == CT_OK && s.n > 0 && s.n_classes <= MAX_MATRIX)
		st = write_matrix(dir, r, &s);
	if (st == CT_OK)
		st = ct__page_mistakes(p, data, &e);
	if (st == CT_NOT_FOUND) { /* there was no evaluation, or not of classes */
		ct_error_clear();
		st = CT_OK;
	}
	ct_scores_release(&s);
	ct_predictions_release(&e);
	ct_free(dir);
	return st;
}
