/* Values are copied to host memory and from there written one tensor at a time, so memory grows only by the largest
 * tensor. They are those of rank 0 after the last step of the epoch, which has the same weights as all others. Images
 * go into one grid of fixed size; those that are too large are left out. A failure is a warning, because TensorBoard is
 * not the result of the run, and the next epoch tries again. */
#define CT_LOG_COMPONENT "report"
#include "trainer/run/loop/board.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/image/codec.h"
#include "data/image/grid.h"
#include "trainer/run/evaluation/run_images.h"

enum { COLUMNS = 6, ROWS = 4, GAP = 2, MAX_SIDE = 256 };

/* Images of the same size. Nothing is created before the first one. */
struct grid {
	struct ct_image_grid cells;
	int n; /* images in it */
};

static enum ct_status add_image(void *user, const struct ct_run_image *image)
{
	const size_t row_bytes = (size_t)image->w * 3;
	struct grid *g = user;

	if (image->h > MAX_SIDE || image->w > MAX_SIDE || g->n == COLUMNS * ROWS)
		return CT_OK;
	if (!g->cells.image.pixels) {
		g->cells = (struct ct_image_grid){
			.n = COLUMNS * ROWS, .columns = COLUMNS, .cell_w = image->w, .cell_h = image->h, .gap = GAP};
		CT_TRY(ct_image_grid_create(&g->cells, 255));
	}
	for (int y = 0; y < image->h; y++)
		memcpy(ct_image_grid_at(&g->cells, g->n, 0, y), image->rgb + (size_t)y * row_bytes, row_bytes);
	g->n++;
	return CT_OK;
}

/* Writes the grid, and releases it. */
static enum ct_status put_grid(struct grid *g, ct_metrics_log *m, uint64_t step, const char *tag)
{
	const struct ct_rgb *image = &g->cells.image;
	struct ct_str png = {0};
	enum ct_status st = CT_OK;

	if (image->pixels)
		st = ct_png_encode(image->pixels, image->w, image->h, &png);
	if (st == CT_OK && image->pixels)
		st = ct_metrics_image(m, step, tag, &(struct ct_tb_image){png.s, png.len, image->h, image->w});
	ct_str_release(&png);
	ct_image_grid_release(&g->cells);
	return st;
}

static enum ct_status put_samples(const struct ct_session *s, ct_metrics_log *m, const struct ct_image_source *data)
{
	struct grid g = {0};
	const enum ct_status st = ct_run_images_samples(data, add_image, &g);

	if (st < 0) {
		ct_image_grid_release(&g.cells);
		return st;
	}
	return put_grid(&g, m, s->state.step, "images/training");
}

static int dims_of(const void *user, int i, int64_t dims[4])
{
	const struct ct_param *p = i < ct_graph_n_params(user) ? ct_graph_param(user, i) : NULL;

	for (int k = 0; p && k < p->ndim && k < 4; k++)
		dims[k] = p->dims[k];
	return p ? p->ndim : -1;
}

static enum ct_status put_filters(const struct ct_session *s, ct_metrics_log *m, const struct ct_filters *l,
				  const float *v)
{
	struct ct_str png = {0};
	int w, h;
	enum ct_status st = ct_run_images_draw_filters(l, v, &png);

	ct_run_images_filters_size(l, &w, &h);
	if (st == CT_OK)
		st = ct_metrics_image(m, s->state.step, "images/first_layer",
				      &(struct ct_tb_image){png.s, png.len, h, w});
	ct_str_release(&png);
	return st;
}

/* Writes the histogram of each tensor of an arena. If `data` is not NULL, also the filters of the first layer. */
static enum ct_status put_arena(struct ct_session *s, ct_metrics_log *m, ct_arena *a, int n, const char *group,
				const struct ct_image_source *data)
{
	struct ct_filters filters;
	struct ct_mirror mirror;
	char tag[128];
	const int first = data ? ct_run_images_find_filters(data, dims_of, s->model.graph, &filters) : -1;
	enum ct_status st = CT_OK;

	CT_TRY(ct_mirror_open(a, CT_MIRROR_READ, ct_engine_stream(s->engine), &mirror));
	for (int i = 0; i < n && st == CT_OK; i++) {
		const int id = ct_net_slice(s->net, i)->param;
		const struct ct_param *p = ct_graph_param(s->model.graph, id);
		float *v = CT_NEW_ARRAY(float, p->n);

		snprintf(tag, sizeof(tag), "%s/%s", group, p->name);
		st = v ? ct_net_export(s->net, &mirror, id, v) : CT_NOMEM;
		if (st == CT_OK)
			st = ct_metrics_histogram(m, s->state.step, tag, v, p->n);
		if (st == CT_OK && id == first)
			st = put_filters(s, m, &filters, v);
		ct_free(v);
	}
	ct_mirror_drop(&mirror);
	return st;
}

static enum ct_status put_epoch(struct ct_session *s, ct_metrics_log *m)
{
	struct ct_image_source data;

	ct_image_source_set(&data, s->cfg, &s->plan, s->data.train, s->data.val);
	if (s->state.epoch == 1)
		CT_TRY(put_samples(s, m, &data));
	CT_TRY(put_arena(s, m, ct_net_params(s->net), ct_net_n_slices(s->net), "weights", &data));
	return put_arena(s, m, s->grad.arena, ct_net_n_trained(s->net), "gradients", NULL);
}

static void warn(enum ct_status st)
{
	if (st < 0)
		CT_WARN("cannot write to TensorBoard: %s", ct_error_message());
	if (st < 0)
		ct_error_clear();
}

void ct_board_epoch(struct ct_session *s, ct_metrics_log *metrics)
{
	if (metrics && ct_metrics_has_board(metrics) && !s->pipe)
		warn(put_epoch(s, metrics));
}

void ct_board_mistakes(const struct ct_session *s, ct_metrics_log *metrics, const struct ct_predictions *p)
{
	struct ct_image_source data;
	struct grid g = {0};

	if (!metrics || !ct_metrics_has_board(metrics) || p->n == 0)
		return;
	ct_image_source_set(&data, s->cfg, &s->plan, s->data.train, s->data.val);
	const enum ct_status st = ct_run_images_mistakes(&data, p, add_image, &g);
	if (st < 0)
		ct_image_grid_release(&g.cells);
	warn(st < 0 ? st : put_grid(&g, metrics, p->step, "images/mistakes"));
}
