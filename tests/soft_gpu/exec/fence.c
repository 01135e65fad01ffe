/* Stores of a block become visible to the other blocks of its grid late: without a fence, when the grid has ended. Only
 * kernels with atomic operations on device memory can depend on this, so it begins with the first such operation of a
 * grid. From then on, `shown` is what the other blocks see. A fence makes all stores of the block visible, also those
 * of its other threads, which is more than it guarantees. When the block has ended, the bytes that it has not shown are
 * kept aside, and the next block sees the memory without them. */
#include "tests/soft_gpu/exec/fence.h"

#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct store {
	char *at, value;
};

static struct shown {
	struct shown *next;
	const struct fake_block *block;
	char *bytes;
} *shown;
static struct store *stores; /* that no other block has seen */
static int n_stores, capacity;

static void show(const struct soft__device *d)
{
	for (const struct fake_block *b = d->memory.blocks; b; b = b->next) {
		struct shown *s = fake_alloc(sizeof(*s));

		*s = (struct shown){shown, b, fake_alloc(b->bytes)};
		memcpy(s->bytes, b->at, b->bytes);
		shown = s;
	}
}

void soft_gpu_fence(void)
{
	for (struct shown *s = shown; s; s = s->next)
		memcpy(s->bytes, s->block->at, s->block->bytes);
}

void soft_gpu_atomic(const void *address, size_t bytes)
{
	struct soft__device *d;
	const struct fake_block *b = soft__find_block(address, &d);

	if (!b)
		return; /* shared memory */
	if (!shown)
		show(d);
	for (struct shown *s = shown; s; s = s->next) {
		if (s->block == b)
			memcpy(s->bytes + ((const char *)address - b->at), address, bytes);
	}
}

void soft__fence_end_block(void)
{
	for (struct shown *s = shown; s; s = s->next) {
		if (memcmp(s->bytes, s->block->at, s->block->bytes) == 0)
			continue;
		for (size_t i = 0; i < s->block->bytes; i++) {
			char *at = s->block->at + i;

			if (*at == s->bytes[i])
				continue;
			stores = fake_grow(stores, n_stores, &capacity, sizeof(*stores));
			stores[n_stores++] = (struct store){at, *at};
			*at = s->bytes[i];
		}
	}
}

void soft__fence_end_grid(void)
{
	for (int i = 0; i < n_stores; i++)
		*stores[i].at = stores[i].value;
	n_stores = 0;
	while (shown) {
		struct shown *next = shown->next;

		free(shown->bytes);
		free(shown);
		shown = next;
	}
}
