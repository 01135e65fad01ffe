/* Plans reduce buckets from the static graph: contiguous ranges of the gradient arena, in the order in which the
 * backward pass finishes them. The function has no side effects. The design follows PyTorch's DDP (Li et al., VLDB
 * 2020): a small first bucket starts communication early; the size cap is soft, because a parameter is never split. */
#ifndef CT_DIST_BUCKET_H
#define CT_DIST_BUCKET_H

#include "base/dtype.h"
#include "base/status.h"

struct ct_bucket {
	size_t offset, n;    /* elements, in the arena of this type */
	enum ct_dtype dtype; /* the type of all its slices */
	int first_slice, n_slices;
};

/* A slice of gradients. Slices of the same type are in ascending order and do not overlap. */
struct ct_bucket_slice {
	size_t offset, n;
	enum ct_dtype dtype;
};

/* Divides slices [n_slices], which are in completion order, into buckets. Gaps between slices (for alignment) are
 * allowed and become part of the buckets. The caps are in bytes; 0 means one slice per bucket. A bucket ends when it
 * has reached its cap, and before a slice of another type. A bucket that is half full also ends before a slice that
 * reaches the cap alone, so that it does not wait for this large slice. The caller owns *out (ct_free). Without slices
 * there are no buckets. Slices that overlap or are not in ascending order are CT_BUG. */
enum ct_status ct_bucket_plan(const struct ct_bucket_slice *slices, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets) CT_MUST_CHECK;

#endif
