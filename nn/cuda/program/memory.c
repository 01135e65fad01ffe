#include <stdlib.h>

#include "base/mem.h"
#include "nn/cuda/program/program.h"

enum { ALIGN = 256 };

static bool live_together(const struct cuda_buffer *a, const struct cuda_buffer *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* The offset of the smallest gap that is large enough between the placed buffers that live at the same time as b. order: the placed
 * buffers, sorted by offset. */
static size_t find_place(const struct cuda_program *p, const struct cuda_buffer *b, const int *order, size_t n)
{
	size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;

	for (size_t i = 0; i < n; i++) {
		const struct cuda_buffer *o = &p->buffers[order[i]];

		if (!live_together(b, o))
			continue;
		if (o->at >= end + b->bytes && o->at - end < best_gap) {
			best = end;
			best_gap = o->at - end;
		}
		end = o->at + o->bytes > end ? o->at + o->bytes : end;
	}
	return best == SIZE_MAX ? end : best;
}

struct sized {
	size_t bytes;
	int id;
};

static int compare_sizes(const void *a, const void *b)
{
	const struct sized *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->id - y->id;
}

/* Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020). */
static void place(struct cuda_program *p, const struct sized *by_size, size_t n, int *order)
{
	for (size_t i = 0; i < n; i++) {
		struct cuda_buffer *b = &p->buffers[by_size[i].id];
		size_t k = i;

		b->at = find_place(p, b, order, i);
		for (; k > 0 && p->buffers[order[k - 1]].at > b->at; k--)
			order[k] = order[k - 1];
		order[k] = by_size[i].id;
		p->memory_bytes = b->at + b->bytes > p->memory_bytes ? b->at + b->bytes : p->memory_bytes;
		p->unplanned_bytes += b->bytes;
	}
}

/* Finds the task from which on a later buffer has overwritten each one. */
static void find_lost(struct cuda_program *p)
{
	for (size_t i = 0; i < p->n_buffers; i++) {
		struct cuda_buffer *b = &p->buffers[i];

		b->lost = INT32_MAX;
		for (size_t j = 0; j < p->n_buffers; j++) {
			const struct cuda_buffer *o = &p->buffers[j];
			const bool overlap =
				o->last != CUDA_NONE && b->at < o->at + o->bytes && o->at < b->at + b->bytes;

			if (j != i && overlap && o->first > b->last && o->first < b->lost)
				b->lost = o->first;
		}
	}
}

enum ct_status ct__cuda_plan_memory(struct cuda_program *p)
{
	struct sized *by_size = CT_NEW_ARRAY(struct sized, p->n_buffers);
	int *order = CT_NEW_ARRAY(int, p->n_buffers);
	enum ct_status st = by_size && order ? CT_OK : CT_NOMEM;
	size_t n = 0;

	for (size_t i = 0; st == CT_OK && i < p->n_buffers; i++) {
		struct cuda_buffer *b = &p->buffers[i];

		b->bytes = (b->bytes + ALIGN - 1) / ALIGN * ALIGN;
		if (b->last != CUDA_NONE)
			by_size[n++] = (struct sized){b->bytes, (int)i};
	}
	if (st == CT_OK) {
		qsort(by_size, n, sizeof(*by_size), compare_sizes);
		place(p, by_size, n, order);
		find_lost(p);
	}
	ct_free(order);
	ct_free(by_size);
	return st;
}
