/* Restart markers reset the decoder, so the intervals between them are independent and may be put together as another
 * image: the header is copied, width and height are replaced, and the markers are numbered anew from 0. An interval
 * must be a part of a row that divides it evenly, or complete rows, else intervals would not form a rectangle. Only
 * images with one sequential Huffman scan qualify. A margin of one sample of the coarsest component is kept around the
 * box, because upsampling reads it; without it, pixels at the edge would differ from those of a complete decode. All
 * markers up to the last interval are searched for and their numbers checked. Any doubt means that the complete file is
 * decoded instead. */
#include "data/image/jpeg_part_impl.h"

#include <string.h>

#include "base/numbers.h"

#define EOI 0xd9
#define RST0 0xd0
#define FRAME_BYTES 6 /* precision, height, width, number of components */
#define MAX_COMPONENTS 4

/* The restart intervals of an image. */
struct grid {
	int w, h;           /* pixels */
	int mcu_w, mcu_h;   /* of an MCU */
	int step_w, step_h; /* size of an interval in pixels; the last interval ends at the edge of the image */
	int n_x, n_y;       /* intervals */
};

/* Intervals from x0, y0 to x1, y1 (exclusive). */
struct cut {
	int x0, y0, x1, y1;
};

static int over(int a, int b)
{
	return (a + b - 1) / b;
}

/* Reads the size of an MCU in pixels from the frame header at p. With a single component, an MCU is one block, whatever
 * the sampling factors. */
static bool mcu_of(const uint8_t *p, struct grid *g)
{
	int n = p[5], h = 1, v = 1;

	for (int i = 0; i < n; i++) {
		int factors = p[FRAME_BYTES + 3 * i + 1];

		h = factors >> 4 > h ? factors >> 4 : h;
		v = (factors & 15) > v ? factors & 15 : v;
	}
	g->mcu_w = n == 1 ? 8 : 8 * h;
	g->mcu_h = n == 1 ? 8 : 8 * v;
	return h <= 4 && v <= 4;
}

/* Returns false unless the image has a single sequential scan with Huffman coding, and its intervals are complete rows
 * or divide each row evenly. */
static bool grid_of(const struct ct_jpeg_markers *m, const uint8_t *bytes, struct grid *g)
{
	const uint8_t *p = bytes + m->frame;
	int interval = (int)m->interval, row, n;

	if (m->interval == 0 || m->sof < 0xc0 || m->sof > 0xc1 || m->scan >= m->data ||
	    m->frame + FRAME_BYTES + 3 * MAX_COMPONENTS > m->data)
		return false;
	n = p[5];
	if (n < 1 || n > MAX_COMPONENTS || bytes[m->scan] != n || !mcu_of(p, g))
		return false;
	g->h = p[1] << 8 | p[2];
	g->w = p[3] << 8 | p[4];
	if (g->w == 0 || g->h == 0)
		return false;
	row = over(g->w, g->mcu_w);
	if (row % interval != 0 && interval % row != 0)
		return false;
	g->step_w = interval < row ? interval * g->mcu_w : row * g->mcu_w;
	g->step_h = interval < row ? g->mcu_h : interval / row * g->mcu_h;
	g->n_x = over(g->w, g->step_w);
	g->n_y = over(g->h, g->step_h);
	return true;
}

/* Fancy upsampling reads one sample of the coarsest component on each side. It is disabled for rows of at most two
 * samples (an MCU has 8/scale); no part is that narrow. */
static struct cut cut_of(const struct grid *g, struct ct_box b, int scale)
{
	int dx = g->mcu_w / 8 * scale, dy = g->mcu_h / 8 * scale;
	struct cut c;

	c.x0 = b.x > dx ? (b.x - dx) / g->step_w : 0;
	c.y0 = b.y > dy ? (b.y - dy) / g->step_h : 0;
	c.x1 = over(ct_min_int(b.x + b.w + dx, g->w), g->step_w);
	c.y1 = over(ct_min_int(b.y + b.h + dy, g->h), g->step_h);
	if (ct_min_int(c.x1 * g->step_w, g->w) - c.x0 * g->step_w <= g->mcu_w * scale / 4) {
		if (c.x1 < g->n_x)
			c.x1++;
		else if (c.x0 > 0)
			c.x0--;
	}
	return c;
}

/* Returns the position of the next marker at or after `at`, or n if there is none or if it does not directly follow the
 * data. */
static size_t marker_after(const uint8_t *p, size_t at, size_t n)
{
	while (at + 1 < n) {
		const uint8_t *ff = memchr(p + at, 0xff, n - 1 - at);

		if (!ff || ff[1] == 0xff)
			return n;
		at = (size_t)(ff - p);
		if (ff[1] != 0)
			return at;
		at += 2;
	}
	return n;
}

/* Appends the intervals of the part to the first `used` bytes of dst and renumbers them. Returns 0 if a marker is not
 * where it should be. */
static size_t copy_intervals(const struct grid *g, const struct cut *c, const uint8_t *bytes, size_t at, size_t n,
			     uint8_t *dst, size_t used)
{
	int last = (c->y1 - 1) * g->n_x + c->x1 - 1, copied = 0;

	for (int i = 0; i <= last; i++) {
		size_t end = marker_after(bytes, at, n);
		int x = i % g->n_x, y = i / g->n_x;

		if (end >= n || (i + 1 < g->n_x * g->n_y && bytes[end + 1] != RST0 + i % 8))
			return 0;
		if (y >= c->y0 && x >= c->x0 && x < c->x1) {
			memcpy(dst + used, bytes + at, end - at);
			used += end - at;
			dst[used++] = 0xff;
			dst[used++] = (uint8_t)(i == last ? EOI : RST0 + copied++ % 8);
		}
		at = end + 2;
	}
	return used;
}

static void put_u16(uint8_t *p, int v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

enum ct_status ct__jpeg_part_cut(const struct ct_jpeg_markers *m, const uint8_t *bytes, size_t n, struct ct_box window,
				 int scale, struct ct_scratch *scratch, struct ct_jpeg_part *out)
{
	struct grid g;
	struct cut c;
	size_t used;

	*out = (struct ct_jpeg_part){0};
	if (!grid_of(m, bytes, &g))
		return CT_OK;
	c = cut_of(&g, window, scale);
	/* The alternative is to decode all intervals up to the last row. A part has costs of its own: the header is
	 * parsed twice, and bytes are copied. */
	if ((int64_t)(c.x1 - c.x0) * (c.y1 - c.y0) * 8 > (int64_t)g.n_x * c.y1 * 7)
		return CT_OK;
	CT_TRY(ct_scratch_reserve(scratch, n));
	memcpy(scratch->p, bytes, m->data);
	used = copy_intervals(&g, &c, bytes, m->data, n, scratch->p, m->data);
	if (used == 0)
		return CT_OK;
	out->x = c.x0 * g.step_w;
	out->y = c.y0 * g.step_h;
	put_u16(scratch->p + m->frame + 1, ct_min_int(c.y1 * g.step_h, g.h) - out->y);
	put_u16(scratch->p + m->frame + 3, ct_min_int(c.x1 * g.step_w, g.w) - out->x);
	out->bytes = scratch->p;
	out->n = used;
	return CT_OK;
}
