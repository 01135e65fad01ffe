/* Buffers are placed one after the other, the largest first. Each is compared with those that are placed already and
 * live at the same time, in the order of their offsets, and gets the smallest gap between them or the place after the
 * last one. Buffers of equal size are placed in the order of their numbers, because qsort does not keep the order of
 * equal elements and all machines must get the same plan. A buffer that no task uses gets no place. A value can be read
 * after its last use until task `lost`, the first one that begins to use overlapping memory. */
#include "nn/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

struct sized {
	size_t bytes;
	int id;
};

static int compare_sizes(const void *a, const void *b)
{
	const struct sized *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static bool live_together(const struct ct_plan_buffer *a, const struct ct_plan_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* Returns the offset of the smallest gap that is large enough for `b` between the buffers that are live at the same
 * time. `order` has the buffers that have been placed, sorted by offset. */
static size_t best_gap(const struct ct_plan_buffer *buffers, const struct ct_plan_buffer *b, const int *order, size_t n)
{
	size_t end = 0, best = SIZE_MAX, best_gap_bytes = SIZE_MAX;

	for (size_t i = 0; i < n; i++) {
		const struct ct_plan_buffer *o = &buffers[order[i]];

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
static void place(struct ct_plan_buffer *buffers, const struct sized *by_size, size_t n, int *order,
		  struct ct_memory_plan *out)
{
	for (size_t i = 0; i < n; i++) {
		struct ct_plan_buffer *b = &buffers[by_size[i].id];
		size_t at = i;

		b->offset = best_gap(buffers, b, order, i);
		for (; at > 0 && buffers[order[at - 1]].offset > b->offset; at--)
			order[at] = order[at - 1];
		order[at] = by_size[i].id;
		if (b->offset + b->bytes > out->bytes)
			out->bytes = b->offset + b->bytes;
		out->unplanned_bytes += b->bytes;
	}
}

/* Finds the first task in which a later buffer overwrites this one. */
static void find_lost(struct ct_plan_buffer *buffers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct ct_plan_buffer *b = &buffers[i];

		for (size_t j = 0; j < n; j++) {
			const struct ct_plan_buffer *o = &buffers[j];
			const bool overlap = b->offset < o->offset + o->bytes && o->offset < b->offset + b->bytes;

			if (j != i && overlap && o->first > b->last && o->first < b->lost)
				b->lost = o->first;
		}
	}
}

void ct_plan_buffer_use(struct ct_plan_buffer *b, int task)
{
	b->first = task < b->first ? task : b->first;
	b->last = task > b->last ? task : b->last;
}

enum ct_status ct_memory_plan(struct ct_plan_buffer *buffers, size_t n, size_t align, struct ct_memory_plan *out)
{
	struct sized *by_size = CT_NEW_ARRAY(struct sized, n);
	int *order = CT_NEW_ARRAY(int, n);
	const enum ct_status st = by_size && order ? CT_OK : CT_NOMEM;
	size_t n_used = 0;

	*out = (struct ct_memory_plan){0};
	for (size_t i = 0; st == CT_OK && i < n; i++) {
		buffers[i].bytes = (buffers[i].bytes + align - 1) / align * align;
		if (buffers[i].last >= 0)
			by_size[n_used++] = (struct sized){buffers[i].bytes, (int)i};
	}
	if (st == CT_OK) {
		qsort(by_size, n_used, sizeof(*by_size), compare_sizes);
		place(buffers, by_size, n_used, order, out);
		find_lost(buffers, n);
	}
	ct_free(order);
	ct_free(by_size);
	return st;
}
