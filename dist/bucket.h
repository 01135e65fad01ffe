/* Reduce buckets planned from the static graph: contiguous ranges of the gradient arena, in the order in which backward
 * finishes them. Pure. After PyTorch's DDP (Li et al., VLDB 2020): a small first bucket starts communication early; the
 * cap is soft, a parameter is never split. */
#ifndef CT_DIST_BUCKET_H
#define CT_DIST_BUCKET_H

#include "base/status.h"

struct ct_bucket {
	size_t offset, n; /* elements of the arena */
	int first_slice, n_slices;
};
/* offset/n: [n_slices] element ranges, rising and in completion order; gaps (alignment) are allowed and fall into the
 * buckets. Caps in bytes of fp32; 0 means one slice a bucket. A bucket ends as soon as it has reached its cap, and half
 * full before a slice that has as much by itself, so that what is there need not wait for a big one. Returns owned
 * (ct_free); no slices, no buckets. Ranges that overlap or fall are CT_BUG. */
enum ct_status ct_bucket_plan(const size_t *offset, const size_t *n, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets) CT_MUST_CHECK;

#endif
