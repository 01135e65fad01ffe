/* Rows are resized across when the first row of the result needs them, into a ring that holds as many as one row of
 * the result looks at: what is read again is in the first cache. Rounding to bytes in between is Pillow's. */
#include "data/resize.h"

#include <string.h>

#include "base/mem.h"
#include "data/codec.h"
#include "data/resize_axis.h"
#include "data/resize_kernel.h"

struct ct_resizer {
	const struct ct_resize_kernel *kernel;
	struct ct_resize_axis across, down;
	struct ct_resize_table table; /* of `across`, as the kernel wants it */
	struct ct_scratch ring;       /* rows */
	struct ct_scratch tap_rows;   /* pointers and weights of one row of the result */
};

enum ct_status ct_resizer_create(ct_resizer **out)
{
	CT_TRY_ALLOC(*out = CT_NEW(ct_resizer));
	(*out)->kernel = ct_resize_kernel_get(0);
	return CT_OK;
}

void ct_resizer_destroy(ct_resizer *r)
{
	if (!r)
		return;
	ct_resize_axis_release(&r->across);
	ct_resize_axis_release(&r->down);
	ct_scratch_release(&r->table.mem);
	ct_scratch_release(&r->ring);
	ct_scratch_release(&r->tap_rows);
	ct_free(r);
}

struct ct_box ct_resize_window(const struct ct_resize *req)
{
	const struct ct_box *l = &req->limits;
	int x0, x1, y0, y1;

	/* Counted from the limits, here and below: where Pillow's image begins. */
	ct_resize_axis_range(req->x - l->x, req->w, 0, l->w, req->out_w, &x0, &x1);
	ct_resize_axis_range(req->y - l->y, req->h, 0, l->h, req->out_h, &y0, &y1);
	return (struct ct_box){l->x + x0, l->y + y0, x1 - x0, y1 - y0};
}

/* An interval of one axis, in pixels of the source and counted from `zero`; what the source lacks has no weight. */
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

/* Row y of the result, n bytes: resizes across those rows of the source that are new, then adds up. */
static void run_row(ct_resizer *r, const uint8_t *src, size_t src_pitch, int y, int *done, size_t pitch, uint8_t *dst,
		    int n)
{
	const struct ct_resize_axis *d = &r->down;
	const int32_t *weights = d->k + (size_t)y * (size_t)d->taps;
	const uint8_t **rows = (const uint8_t **)r->tap_rows.p;
	int32_t *k = (int32_t *)(rows + d->taps);
	int used = 0;

	for (int t = 0; t < d->taps; t++) {
		int row = d->from[y] + t;
		uint8_t *slot = r->ring.p + (size_t)(row % d->taps) * pitch;

		if (row >= *done) {
			r->kernel->across(&r->table, src + (size_t)row * src_pitch, slot);
			*done = row + 1;
		}
		if (weights[t] != 0) {
			rows[used] = slot;
			k[used++] = weights[t];
		}
	}
	r->kernel->down(rows, k, used, n, dst);
}

enum ct_status ct_resize_run(ct_resizer *r, const struct ct_resize *req, const struct ct_pixels *src, uint8_t *dst)
{
	const struct ct_box *l = &req->limits, *b = &src->box;
	struct interval h = interval_of(req->x, req->w, l->x, l->w, b->x, b->w, src->scale),
			v = interval_of(req->y, req->h, l->y, l->h, b->y, b->h, src->scale);
	size_t pitch = CT_RESIZE_PITCH((size_t)req->out_w), tap = sizeof(uint8_t *) + sizeof(int32_t);
	size_t line_bytes = (size_t)req->out_w * 3, left = (size_t)req->out_h * line_bytes;
	int n = (int)((line_bytes + CT_RESIZE_ROW - 1) / CT_RESIZE_ROW * CT_RESIZE_ROW), done = 0;
	const uint8_t *first;
	uint8_t *line;

	CT_TRY(ct_resize_axis_set(&r->across, h.at, h.len, h.lo, h.hi, req->out_w, req->flip, r->kernel->unit));
	CT_TRY(ct_resize_axis_set(&r->down, v.at, v.len, v.lo, v.hi, req->out_h, false, 1));
	CT_TRY(r->kernel->tabulate(&r->table, &r->across, h.hi - h.lo));
	CT_TRY(ct_scratch_reserve(&r->ring, (size_t)(r->down.taps + 1) * pitch));
	CT_TRY(ct_scratch_reserve(&r->tap_rows, (size_t)r->down.taps * tap));
	line = r->ring.p + (size_t)r->down.taps * pitch;
	first = src->rgbx + (size_t)(v.zero + v.lo - b->y) * src->pitch + (size_t)(h.zero + h.lo - b->x) * 4;
	for (int y = 0; y < req->out_h; y++, dst += line_bytes, left -= line_bytes) {
		/* A row ends up to 63 bytes too late, in the next one but for the last. */
		bool room = left >= (size_t)n;

		run_row(r, first, src->pitch, y, &done, pitch, room ? dst : line, n);
		if (!room)
			memcpy(dst, line, line_bytes);
	}
	return CT_OK;
}
