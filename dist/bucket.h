/* Reduce buckets planned from the static graph: contiguous ranges of the gradient arena, in the order in which backward
 * finishes them. Pure. After PyTorch's DDP (Li et al., VLDB 2020): a small first bucket starts communication early; the
 * cap is soft, a parameter is never split. */
#ifndef CT_DIST_BUCKET_H
#define CT_DIST_BUCKET_H

#include "base/dtype.h"
#include "base/status.h"

struct ct_bucket {
	size_t offset, n;    /* elements of the arena of the type */
	enum ct_dtype dtype; /* of all its slices */
	int first_slice, n_slices;
};

/* A slice of gradients. Ranges of one type are in ascending order and do not overlap. */
struct ct_bucket_slice {
	size_t offset, n;
	enum ct_dtype dtype;
};

/* Slices [n_slices] in completion order; gaps (alignment) are allowed and are part of the buckets. Caps in bytes; 0 means
 * one slice per bucket. A bucket ends before a slice of another type, as soon as it has reached its cap, and, if it is half
 * full, before a slice that reaches the cap alone, so that it does not wait for a large slice. Returns owned (ct_free); no
 * slices, no buckets. Ranges that overlap or are not in ascending order are CT_BUG. */
enum ct_status ct_bucket_plan(const struct ct_bucket_slice *slices, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets) CT_MUST_CHECK;

#endif
