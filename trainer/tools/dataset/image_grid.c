/* The geometry is computed anew from the fields of the grid for each call, by data/image/grid.h, so there is no second
 * copy that could differ. The font has the double size if all captions fit then. Images are scaled by repeating or
 * omitting pixels. Captions are cut between characters. */
#include "trainer/tools/dataset/image_grid.h"

#include <stdio.h>

#include "base/mem.h"
#include "data/image/grid.h"

enum {
	GAP = 10,
	PADDING = 5,
	MAX_SIDE = 32768,
	LINE = CT_TEXT_HEIGHT + CT_TEXT_DESCENT + 2,
	TITLE = 2,
	MAX_CAPTION = 256
};

static const uint8_t ink[3] = {22, 25, 31}, muted[3] = {104, 112, 125};

static struct ct_image_grid cells_of(const struct ct__grid *g)
{
	return (struct ct_image_grid){.n = g->n,
				      .columns = g->columns,
				      .cell_w = g->cell_w,
				      .cell_h = g->cell_h,
				      .gap = GAP,
				      .margin = GAP,
				      .header = g->title ? LINE * TITLE + PADDING : 0,
				      .caption = g->lines > 0 ? PADDING + g->lines * LINE * g->dot : 0,
				      .image = g->image};
}

enum ct_status ct_grid_create(struct ct__grid *g, int longest)
{
	struct ct_image_grid cells;
	int64_t w, h;

	g->dot = longest * CT_TEXT_WIDTH * 2 <= g->cell_w ? 2 : 1;
	cells = cells_of(g);
	ct_image_grid_size(&cells, &w, &h);
	if (w > MAX_SIDE || h > MAX_SIDE)
		return CT_FAIL(
			CT_USAGE,
			"%d images of %d x %d pixels would need an output image of %lld x %lld pixels; the maximum is %d on each side",
			g->n, g->cell_w, g->cell_h, (long long)w, (long long)h, MAX_SIDE);
	CT_TRY(ct_image_grid_create(&cells, 255));
	g->image = cells.image;
	if (g->title)
		ct_text_draw(&g->image, GAP, GAP, TITLE, muted, g->title);
	return CT_OK;
}

void ct_grid_release(struct ct__grid *g)
{
	ct_free(g->image.pixels);
	g->image.pixels = NULL;
}

void ct_grid_draw(struct ct__grid *g, int i, int left, int top, int out_w, int out_h, const uint8_t *x, int h, int w,
		  int c)
{
	const struct ct_image_grid cells = cells_of(g);

	for (int y = 0; y < out_h; y++) {
		const uint8_t *row = x + (size_t)(y * h / out_h) * (size_t)w * (size_t)c;
		uint8_t *to = ct_image_grid_at(&cells, i, left, top + y);

		for (int k = 0; k < out_w; k++, to += 3) {
			const uint8_t *p = row + (size_t)(k * w / out_w) * (size_t)c;

			for (int j = 0; j < 3; j++)
				to[j] = p[c >= 3 ? j : 0];
		}
	}
}

void ct_grid_caption(struct ct__grid *g, int i, int line, const char *text)
{
	const int most = (g->cell_w + GAP - 2) / (CT_TEXT_WIDTH * g->dot), n = ct_text_length(text);
	const int shown = n <= most ? n : most, width = (shown * CT_TEXT_WIDTH - 1) * g->dot;
	const struct ct_image_grid cells = cells_of(g);
	char cut[MAX_CAPTION];
	size_t bytes = 0;

	if (n > most) { /* a string of `most` characters, the last two of which are dots */
		for (int k = 0; k < most - 2 && bytes + 8 < sizeof(cut); k++) {
			do
				cut[bytes] = text[bytes];
			while (((unsigned char)text[++bytes] & 0xc0) == 0x80 && bytes + 4 < sizeof(cut));
		}
		snprintf(cut + bytes, sizeof(cut) - bytes, "..");
		text = cut;
	}
	ct_text_draw(&g->image, ct_image_grid_x(&cells, i) + (g->cell_w - width) / 2,
		     ct_image_grid_y(&cells, i) + g->cell_h + PADDING + line * LINE * g->dot, g->dot,
		     line == 0 ? ink : muted, text);
}
