#include "nn/onednn/program/memory.h"

#include <stdlib.h>

#include "base/mem.h"

#define ALIGN 64

struct placed {
	size_t bytes;
	int id;
};

static int compare_placed(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static bool live_together(const struct onednn_buffer *a, const struct onednn_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* Returns the offset of the smallest gap that is large enough for `b` between the buffers that are live at the same
 * time. `order` has the buffers that have been placed, sorted by offset. */
static size_t best_gap(const struct onednn_program *p, const struct onednn_buffer *b, const int *order, int n)
{
	size_t end = 0, best = SIZE_MAX, best_gap_bytes = SIZE_MAX;

	for (int i = 0; i < n; i++) {
		const struct onednn_buffer *o = &p->buffers[order[i]];
		if (!live_together(b, o))
			continue;
		if (o->offset >= end + b->bytes && o->offset - end < best_gap_bytes) {
			best = end;
			best_gap_bytes = o->offset - end;
		}
		end = o->offset + o->bytes > end ? o->offset + o->bytes : end;
	}
	return best == SIZE_MAX ? end : best;
}

/* Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020): buffers are
 * placed in order of decreasing size, each into the smallest gap. */
static void place(struct onednn_program *p, const struct placed *by_size, int n, int *order)
{
	for (int i = 0; i < n; i++) {
		struct onednn_buffer *b = &p->buffers[by_size[i].id];
		b->offset = best_gap(p, b, order, i);
		int at = i;
		for (; at > 0 && p->buffers[order[at - 1]].offset > b->offset; at--)
			order[at] = order[at - 1];
		order[at] = by_size[i].id;
		if (b->offset + b->bytes > p->memory.bytes)
			p->memory.bytes = b->offset + b->bytes;
		p->memory.unplanned_bytes += b->bytes;
	}
}

/* Finds the first task in which a later buffer overwrites this one. */
static void find_lost(struct onednn_program *p)
{
	for (int i = 0; i < p->n_buffers; i++) {
		struct onednn_buffer *b = &p->buffers[i];
		for (int j = 0; j < p->n_buffers; j++) {
			const struct onednn_buffer *o = &p->buffers[j];
			bool overlap = b->offset < o->offset + o->bytes && o->offset < b->offset + b->bytes;
			if (j != i && overlap && o->first > b->last && o->first < b->lost)
				b->lost = o->first;
		}
	}
}

enum ct_status ct__onednn_plan_memory(struct onednn_program *p)
{
	struct placed *by_size = NULL;
	int *order = NULL, n = 0;
	enum ct_status st = CT_OK;

	by_size = CT_NEW_ARRAY(struct placed, (size_t)p->n_buffers);
	order = CT_NEW_ARRAY(int, (size_t)p->n_buffers);
	if (!by_size || !order) {
		st = CT_NOMEM;
		goto out;
	}
	for (int i = 0; i < p->n_buffers; i++) {
		p->buffers[i].bytes = (p->buffers[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
		if (p->buffers[i].last >= 0)
			by_size[n++] = (struct placed){p->buffers[i].bytes, i};
	}
	qsort(by_size, (size_t)n, sizeof(*by_size), compare_placed);
	place(p, by_size, n, order);
	find_lost(p);
out:
	ct_free(order);
	ct_free(by_size);
	return st;
}
