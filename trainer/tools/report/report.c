/* The page is complete in memory before it replaces an older one. The files of a run are read once, and the sections
 * are written from them in a fixed order; those about images and the evaluation exist only in the report of a single
 * run. If the caller has no data set open, the one of the config is opened, and if this fails, the report has no
 * images. The curves of the page and of results.png are the same charts with different canvases. */
#define CT_LOG_COMPONENT "report"
#include "trainer/tools/report/report.h"

#include "base/file.h"
#include "data/image/image.h"
#include "trainer/tools/report/csv_impl.h"
#include "trainer/tools/report/curves_impl.h"
#include "trainer/tools/report/images_impl.h"

#define CHART_WIDTH 560
#define CHART_HEIGHT 300
#define PLOT_HEIGHT 270 /* without title and legend */
#define PNG_SCALE 2

static enum ct_status add_curves(struct ct__page *p)
{
	struct ct__chart charts[N_CURVES] = {0};
	enum ct_status st = ct__curves_make(p->runs, p->names, p->n, charts);

	ct_str_add(&p->html.out, "<h2>Curves</h2>\n<div class=\"grid\">\n");
	for (int i = 0; i < N_CURVES; i++) {
		if (st == CT_OK && charts[i].n > 0)
			st = ct__html_chart(&p->html, &charts[i], CHART_WIDTH, PLOT_HEIGHT);
		ct__chart_release(&charts[i]);
	}
	ct__page_bottleneck(p);
	ct_str_add(&p->html.out, "</div>\n");
	return st;
}

static enum ct_status make_page(struct ct__page *p, const struct ct_image_source *data)
{
	char *title =
		p->n == 1 ? ct_strfmt("%s - ctrain report", p->names[0]) : ct_strfmt("%d runs - ctrain report", p->n);
	enum ct_status st = title ? ct__html_begin(&p->html, title) : CT_NOMEM;

	ct_free(title);
	CT_TRY(st);
	ct__page_overview(p);
	CT_TRY(add_curves(p));
	ct__page_epochs(p);
	if (p->n == 1)
		CT_TRY(ct__page_eval(p, data));
	if (p->n == 1)
		CT_TRY(ct__page_samples(p, data));
	if (p->n == 1)
		CT_TRY(ct__page_filters(p, data));
	ct__page_config(p);
	ct__page_environment(p);
	ct__page_events(p);
	ct_str_addf(&p->html.out, "<footer>Written by ctrain " CTRAIN_VERSION " from");
	for (int i = 0; i < p->n; i++) {
		ct_str_add(&p->html.out, i ? ", " : " ");
		ct__html_element(&p->html, "code", p->runs[i].dir);
	}
	ct_str_add(&p->html.out, "</footer>\n");
	return ct__html_end(&p->html);
}

static enum ct_status write_page(const struct ct_run_files *runs, int n, const struct ct_image_source *data,
				 const char *out)
{
	const char **names = CT_NEW_ARRAY(const char *, (size_t)n);
	enum ct_status st = names ? CT_OK : CT_NOMEM;

	for (int i = 0; i < n && names; i++) {
		const struct ct_run_setting *name = ct_run_setting_find(&runs[i], "run.name");

		names[i] = n > 1 || !name || !name->value[0] ? runs[i].dir : name->value;
	}
	struct ct__page p = {.runs = runs, .names = names, .n = n};
	struct ct__opened_data opened = {0};
	if (st == CT_OK && n == 1 && !data) {
		ct__report_data_open(runs[0].dir, &opened);
		data = &opened.data;
	}
	if (st == CT_OK)
		st = make_page(&p, data);
	ct__report_data_close(&opened);
	if (st == CT_OK)
		st = ct_file_replace(out, p.html.out.s, p.html.out.len);
	ct__html_release(&p.html);
	ct_free(names);
	return st;
}

enum ct_status ct_report_write(const char *const *run_dirs, int n, const char *out)
{
	struct ct_run_files *runs = CT_NEW_ARRAY(struct ct_run_files, (size_t)n);
	enum ct_status st = runs ? CT_OK : CT_NOMEM;

	for (int i = 0; i < n && st == CT_OK; i++)
		st = ct_run_files_load(run_dirs[i], &runs[i]);
	if (st == CT_OK)
		st = write_page(runs, n, NULL, out);
	for (int i = 0; i < n && runs; i++)
		ct_run_files_release(&runs[i]);
	ct_free(runs);
	return st;
}

static enum ct_status write_csv(const struct ct_run_files *r)
{
	struct ct_str text = {0};
	char *path = ct_path_join(r->dir, "results.csv");
	enum ct_status st = path ? ct__results_csv(r, &text) : CT_NOMEM;

	if (st == CT_OK)
		st = ct_file_replace(path, text.s, text.len);
	ct_str_release(&text);
	ct_free(path);
	return st;
}

/* Draws all curves in two columns. */
static enum ct_status write_png(const struct ct_run_files *r)
{
	struct ct__chart charts[N_CURVES] = {0};
	const char *name = r->dir;
	struct ct__raster image = {0};
	int n = 0, at = 0;
	char *path = ct_path_join(r->dir, "results.png");
	enum ct_status st = path ? ct__curves_make(r, &name, 1, charts) : CT_NOMEM;

	for (int i = 0; i < N_CURVES; i++)
		n += charts[i].n > 0;
	if (st == CT_OK && n > 0)
		st = ct__raster_create(&image, 2 * CHART_WIDTH, (n + 1) / 2 * CHART_HEIGHT, PNG_SCALE);
	for (int i = 0; i < N_CURVES; i++) {
		if (st == CT_OK && charts[i].n > 0) {
			ct__chart_draw(&charts[i], at % 2 * CHART_WIDTH, at / 2 * CHART_HEIGHT, CHART_WIDTH,
				       CHART_HEIGHT, &image.canvas);
			at++;
		}
		ct__chart_release(&charts[i]);
	}
	if (st == CT_OK && n > 0)
		st = ct_image_write(path, image.rgb, image.w, image.h);
	ct__raster_release(&image);
	ct_free(path);
	return st;
}

enum ct_status ct_report_write_run(const char *run_dir, const struct ct_image_source *data, char **path)
{
	struct ct_run_files r;
	*path = NULL;
	enum ct_status st = ct_run_files_load(run_dir, &r);

	if (st == CT_OK && !(*path = ct_path_join(run_dir, "report.html")))
		st = CT_NOMEM;
	if (st == CT_OK)
		st = write_csv(&r);
	if (st == CT_OK)
		st = write_png(&r);
	if (st == CT_OK)
		st = write_page(&r, 1, data, *path);
	ct_run_files_release(&r);
	return st;
}
