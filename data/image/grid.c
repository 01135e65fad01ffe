#include "data/image/grid.h"

#include <string.h>

#include "base/mem.h"

static int row_height(const struct ct_image_grid *g)
{
	return g->cell_h + g->caption + g->gap;
}

void ct_image_grid_size(const struct ct_image_grid *g, int64_t *w, int64_t *h)
{
	const int rows = (g->n + g->columns - 1) / g->columns;

	*w = (int64_t)g->columns * (g->cell_w + g->gap) - g->gap + 2 * g->margin;
	*h = (int64_t)rows * row_height(g) - g->gap + 2 * g->margin + g->header;
}

enum ct_status ct_image_grid_create(struct ct_image_grid *g, uint8_t background)
{
	int64_t w, h;

	ct_image_grid_size(g, &w, &h);
	g->image = (struct ct_rgb){.w = (int)w, .h = (int)h};
	CT_TRY_ALLOC(g->image.pixels = ct_calloc((size_t)h, (size_t)w * 3));
	memset(g->image.pixels, background, (size_t)h * (size_t)w * 3);
	return CT_OK;
}

void ct_image_grid_release(struct ct_image_grid *g)
{
	ct_free(g->image.pixels);
	g->image.pixels = NULL;
}

int ct_image_grid_x(const struct ct_image_grid *g, int i)
{
	return g->margin + i % g->columns * (g->cell_w + g->gap);
}

int ct_image_grid_y(const struct ct_image_grid *g, int i)
{
	return g->margin + g->header + i / g->columns * row_height(g);
}

uint8_t *ct_image_grid_at(const struct ct_image_grid *g, int i, int x, int y)
{
	const size_t row = (size_t)(ct_image_grid_y(g, i) + y), column = (size_t)(ct_image_grid_x(g, i) + x);

	return g->image.pixels + (row * (size_t)g->image.w + column) * 3;
}
