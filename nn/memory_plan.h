/* Placement of the buffers of a program in one block of memory. A program is a list of tasks that run one after the
 * other. A buffer is live from the first to the last task that uses it; buffers that are live at the same time do not
 * overlap. */
#ifndef CT_NN_MEMORY_PLAN_H
#define CT_NN_MEMORY_PLAN_H

#include <stddef.h>

#include "base/status.h"

struct ct_plan_buffer {
	size_t bytes;  /* rounded up to the alignment by ct_memory_plan */
	size_t offset; /* in the block; set by ct_memory_plan */
	int first;     /* the first task that uses the buffer */
	int last;      /* the last task that uses it; negative if no task uses it */
	int lost;      /* the first task after `last` that overwrites it; INT32_MAX if there is none; set by
			* ct_memory_plan */
};

/* A buffer that no task uses yet. */
#define CT_PLAN_BUFFER(size) \
	((struct ct_plan_buffer){.bytes = (size), .first = INT32_MAX, .last = -1, .lost = INT32_MAX})

struct ct_memory_plan {
	size_t bytes;           /* size of the block */
	size_t unplanned_bytes; /* size of the block if no buffers shared memory */
};

/* Notes that the task uses the buffer. */
void ct_plan_buffer_use(struct ct_plan_buffer *b, int task);
/* Places all buffers. Offsets are multiples of `align`, which is a power of two. */
enum ct_status ct_memory_plan(struct ct_plan_buffer *buffers, size_t n, size_t align,
			      struct ct_memory_plan *out) CT_MUST_CHECK;

#endif
