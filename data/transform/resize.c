/* A source row is resized horizontally when the first result row needs it. It goes to a ring buffer that has one row
 * more than a result row reads, so rows that are read again are in the first-level cache. As in Pillow, values are
 * rounded to bytes between the two directions. */
#include "data/transform/resize.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/image/codec.h"
#include "data/transform/resize_axis_impl.h"
#include "data/transform/resize_kernel_impl.h"

struct ct_resizer {
	const struct ct_resize_kernel *kernel;
	struct ct_resize_axis across, down;
	struct ct_resize_table table; /* table of `across` for the kernel */
	struct ct_scratch ring;       /* rows */
	struct ct_scratch tap_rows;   /* pointers to the ring rows that one result row reads */
};

enum ct_status ct_resizer_create(ct_resizer **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct_resizer));
	(*out)->kernel = ct__resize_kernel_get(0);
	return CT_OK;
}

void ct_resizer_destroy(ct_resizer *r)
{
	if (!r)
		return;
	ct__resize_axis_release(&r->across);
	ct__resize_axis_release(&r->down);
	ct_scratch_release(&r->table.mem);
	ct_scratch_release(&r->ring);
	ct_scratch_release(&r->tap_rows);
	ct_free(r);
}

struct ct_box ct_resize_window(const struct ct_resize *req)
{
	const struct ct_box *l = &req->limits;
	int x0, x1, y0, y1;

	/* Here and below, positions are relative to the limits, because an image for Pillow would start there. */
	ct__resize_axis_range(req->x - l->x, req->w, 0, l->w, req->out_w, &x0, &x1);
	ct__resize_axis_range(req->y - l->y, req->h, 0, l->h, req->out_h, &y0, &y1);
	return (struct ct_box){l->x + x0, l->y + y0, x1 - x0, y1 - y0};
}

/* An interval on one axis, in source pixels relative to `zero`. Pixels outside the source have no weight. */
struct interval {
	double at, len;
	int zero, lo, hi;
};

static struct interval interval_of(double at, double len, int limit, int limit_len, int box, int box_len, int scale)
{
	struct interval v = {.zero = limit / scale, .len = len / scale};
	int end = (limit + limit_len + scale - 1) / scale;

	v.at = scale == 1 ? at - limit : at / scale - v.zero;
	v.lo = v.zero > box ? 0 : box - v.zero;
	v.hi = (end < box + box_len ? end : box + box_len) - v.zero;
	return v;
}

void ct_resize_center(struct ct_resize *req, int w, int h, int short_side)
{
	const int64_t to = short_side;
	const int64_t new_w = w <= h ? to : to * w / h, new_h = w <= h ? to * h / w : to;
	const double scale_x = (double)w / (double)new_w, scale_y = (double)h / (double)new_h;

	req->x = rint((double)(new_w - req->out_w) / 2) * scale_x;
	req->y = rint((double)(new_h - req->out_h) / 2) * scale_y;
	req->w = req->out_w * scale_x;
	req->h = req->out_h * scale_y;
	req->limits = (struct ct_box){0, 0, w, h};
}

/* The state of a vertical pass. */
struct walk {
	const uint8_t *src; /* the first row with weight */
	size_t src_pitch;
	int src_rows, done; /* rows before `done` have been resized or have no weight */
	size_t pitch;       /* of the ring, */
	int slots;          /* number of rows of the ring, a power of two */
	int n;              /* bytes of a row of the result */
};

static uint8_t *slot(const ct_resizer *r, const struct walk *w, int row)
{
	return r->ring.p + (size_t)(row & (w->slots - 1)) * w->pitch;
}

/* Resizes the next two rows horizontally. Repeats the last row after the end. */
static void run_across(ct_resizer *r, struct walk *w)
{
	const uint8_t *first = w->src + (size_t)w->done * w->src_pitch;
	const uint8_t *const src[2] = {first, w->done + 1 < w->src_rows ? first + w->src_pitch : first};
	uint8_t *const dst[2] = {slot(r, w, w->done), slot(r, w, w->done + 1)};

	r->kernel->across(&r->table, src, dst);
	w->done += 2;
}

/* Computes row y of the result: resizes new source rows horizontally, then sums vertically. */
static void run_row(ct_resizer *r, struct walk *w, int y, uint8_t *dst)
{
	const struct ct_resize_axis *d = &r->down;
	const int32_t *k = d->k + (size_t)y * (size_t)d->taps;
	const uint8_t **rows = (const uint8_t **)r->tap_rows.p;
	int skip = 0, taps = d->taps;

	for (int t = 0; t < d->taps; t++)
		rows[t] = slot(r, w, d->from[y] + t);
	while (taps > 1 && k[taps - 1] == 0)
		taps--;
	while (skip < taps - 1 && k[skip] == 0)
		skip++;
	while (w->done < d->from[y] + taps)
		run_across(r, w);
	r->kernel->down(rows + skip, k + skip, taps - skip, w->n, dst);
}

enum ct_status ct_resize_run(ct_resizer *r, const struct ct_resize *req, const struct ct_pixels *src, uint8_t *dst)
{
	const struct ct_box *l = &req->limits, *b = &src->box;
	struct interval h = interval_of(req->x, req->w, l->x, l->w, b->x, b->w, src->scale),
			v = interval_of(req->y, req->h, l->y, l->h, b->y, b->h, src->scale);
	struct walk w = {.src_pitch = src->pitch, .src_rows = v.hi - v.lo};
	size_t line_bytes = (size_t)req->out_w * 3, left = (size_t)req->out_h * line_bytes;
	uint8_t *line;

	CT_TRY(ct__resize_axis_set(&r->across, h.at, h.len, h.lo, h.hi, req->out_w, req->flip, r->kernel->unit));
	CT_TRY(ct__resize_axis_set(&r->down, v.at, v.len, v.lo, v.hi, req->out_h, false, 1));
	CT_TRY(r->kernel->tabulate(&r->table, &r->across, h.hi - h.lo));
	w.src = src->rgbx + (size_t)(v.zero + v.lo - b->y) * src->pitch + (size_t)(h.zero + h.lo - b->x) * 4;
	w.pitch = CT_RESIZE_PITCH((size_t)req->out_w);
	w.n = (int)((line_bytes + CT_RESIZE_ROW - 1) / CT_RESIZE_ROW * CT_RESIZE_ROW);
	for (w.slots = 2; w.slots < r->down.taps + 1;) /* one row in advance */
		w.slots *= 2;
	w.done = r->down.from[0];
	CT_TRY(ct_scratch_reserve(&r->ring, (size_t)(w.slots + 1) * w.pitch));
	CT_TRY(ct_scratch_reserve(&r->tap_rows, (size_t)r->down.taps * sizeof(uint8_t *)));
	line = r->ring.p + (size_t)w.slots * w.pitch;
	for (int y = 0; y < req->out_h; y++, dst += line_bytes, left -= line_bytes) {
		/* Each row writes up to 63 bytes too many. They end up in the next row, so only the last row needs more
		 * space. */
		bool room = left >= (size_t)w.n;

		run_row(r, &w, y, room ? dst : line);
		if (!room)
			memcpy(dst, line, line_bytes);
	}
	return CT_OK;
}
